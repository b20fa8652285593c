from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from fedfisher_core.client.statistics.further_modes import FURTHER, FurtherFactors, FurtherWeights
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.methods.clients import aggregate, made_up_uploads, trained_uploads
from tests.walked import walk_tiny

FREE = {"budget": "none", "format": "float32"}
LAYERS = ("conv", "hidden", "head")


def uploads(spec: ModelSpec, clients: int = 3) -> list[Upload]:
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(clients)], spec)


def models(client: Upload) -> list[Parameters]:
    return [client[Weights].tensors, *client[FurtherWeights].modes()]


def mixture_of(clients: Sequence[Upload], **settings: Any) -> Aggregate:
    # So few weights leave no bits for three networks.
    return aggregate("fedbens_mixture", clients, wire=FREE, **settings)


def flat(parameters: Parameters) -> Tensor:
    return torch.cat([to_matrix(parameters, layer).double().flatten() for layer in LAYERS])


def gaussians(client: Upload, *, temperature: float, variance: float) -> list[MultivariateNormal]:
    found = []
    for model, kfac in zip(models(client), [client[KFAC], *client[FurtherFactors].modes()], strict=True):
        factors = [kfac.factors[layer] for layer in LAYERS]
        dense = torch.block_diag(*(torch.kron(one.outputs.double(), one.inputs.double()) for one in factors))
        precision = client.num_examples / temperature * dense + torch.eye(len(dense)).double() / variance
        found.append(MultivariateNormal(flat(model), precision_matrix=precision))
    return found


@pytest.mark.parametrize("spec", [tiny.TINY, tiny.TINY_WITH_BIAS], ids=["no bias", "bias"])
# With a temperature as high, several modes of a client explain the same weights.
@pytest.mark.parametrize("temperature", [0.5, 1e4])
def test_the_steps_are_adams_on_the_mixtures(spec: ModelSpec, temperature: float) -> None:
    clients = uploads(spec)
    mixtures = [gaussians(one, temperature=temperature, variance=5.0) for one in clients]
    settings = {"prior_variance": 5.0, "temperature": temperature, "steps": 15, "learning_rate": 0.01}
    found = mixture_of(clients, spec=spec, select=False, longest_gradient=3.0, **settings)
    assert found.combine is Combine.MEAN_PROBABILITY
    assert len(found.networks) == 3
    for mode, network in enumerate(found.networks):
        point = torch.stack([flat(models(one)[mode]) for one in clients]).median(0).values.requires_grad_()
        prior = MultivariateNormal(torch.zeros_like(point), 5.0 * torch.eye(len(point)).double())
        optimiser = torch.optim.Adam([point], lr=0.01)
        for _ in range(15):
            optimiser.zero_grad()
            densities = [torch.stack([one.log_prob(point) for one in mixture]).logsumexp(0) for mixture in mixtures]
            loss = -torch.stack(densities).sum() + 2 * prior.log_prob(point)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([point], max_norm=3.0)
            optimiser.step()
        assert torch.allclose(flat(network), point.detach(), atol=1e-4)


def test_a_client_alone_keeps_its_networks() -> None:
    (client,) = uploads(tiny.TINY, clients=1)
    found = mixture_of([client], select=False, prior_variance=1e-3)
    for network, model in zip(found.networks, models(client), strict=True):
        assert all(torch.allclose(network[name], one, atol=1e-5) for name, one in model.items())


def around(parameters: Parameters, *, seed: int) -> Parameters:
    generator = torch.Generator().manual_seed(seed)
    return {name: one + 0.02 * torch.randn(one.shape, generator=generator) for name, one in parameters.items()}


def test_with_modes_far_apart_each_network_is_fedbens_of_one_mode() -> None:
    # Clients' networks of one start stay near one another.
    near = [
        [around(tiny.initial(seed=mode), seed=10 * mode + client) for mode in range(FURTHER + 1)] for client in range(3)
    ]
    clients = []
    for upload, own in zip(made_up_uploads([one[0] for one in near]), near, strict=True):
        further = {f"{mode}/{name}": one for mode in range(1, FURTHER + 1) for name, one in own[mode].items()}
        clients.append(Upload(upload.num_examples, {**upload.statistics, FurtherWeights: FurtherWeights(further)}))
    found = mixture_of(clients, select=False)
    for mode, network in enumerate(found.networks):
        factors = [[one[KFAC], *one[FurtherFactors].modes()][mode] for one in clients]
        alone = [
            Upload(one.num_examples, {Weights: Weights(own[mode]), KFAC: kfac})
            for one, own, kfac in zip(clients, near, factors, strict=True)
        ]
        (expected,) = aggregate("fedbens", alone, select=False).networks
        assert all(torch.allclose(network[name], one, atol=5e-4) for name, one in expected.items())


def test_the_best_of_the_scored_iterates_is_kept_of_each_start() -> None:
    found = mixture_of(trained_uploads(), steps=40, check_every=15)
    for mode, network in enumerate(found.networks):
        chosen = int(found.details[f"selected_step_{mode}"])
        assert chosen in (1, 16, 31, 40)
        last = mixture_of(trained_uploads(), steps=chosen, select=False).networks[mode]
        assert all(torch.equal(network[name], one) for name, one in last.items())


def test_it_is_a_reference_that_pays_for_three_networks(workplace: Path) -> None:
    rows = walk_tiny(workplace, {"fedbens": {"wire": FREE}, "fedbens_mixture": {"wire": FREE}}).rows
    mixture = rows["fedbens_mixture"]
    assert mixture.reference
    # All of it thrice, but for one head of a payload.
    assert 2.9 < mixture.upload_bits / rows["fedbens"].upload_bits < 3.01
    assert set(mixture.client_statistics_seconds) == {"kfac", "further_weights", "further_factors"}
    assert mixture.accuracy > 0.4


def test_a_further_training_that_diverges_names_the_client(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Diverging(TrainClient):
        def train(self, *_: Any) -> NoReturn:
            raise DivergedClientError("training loss is nan in epoch 1")

    monkeypatch.setattr("fedfisher_core.federation.statistics.TrainClient", Diverging)
    with pytest.raises(DivergedClientError, match=r"client \d of .*, further network 1: training loss is nan"):
        walk_tiny(workplace, {"fedbens_mixture": {"wire": FREE}})


def test_further_networks_are_refused_with_privacy(workplace: Path) -> None:
    privacy = {"epsilon": 8.0, "delta": 1e-3}
    with pytest.raises(InputError, match="further_weights"):
        check_federations(tiny.tiny_settings(workplace, privacy=privacy, methods={"fedbens_mixture": {"wire": FREE}}))


def test_one_set_of_pre_trained_weights_is_one_start(workplace: Path) -> None:
    given = {"file": "weights.pt", "sha256": "0" * 64}
    settings = tiny.tiny_settings(workplace, model={"pretrained": given}, methods={"fedbens_mixture": {"wire": FREE}})
    with pytest.raises(InputError, match=r"model\.pretrained=.*weights\.pt.*, but 'further_weights' of method"):
        check_federations(settings)
