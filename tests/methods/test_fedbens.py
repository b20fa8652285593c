import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, made_up_uploads

SPECS = [tiny.TINY, tiny.TINY_WITH_BIAS]
LAYERS = ("conv", "hidden", "head")


def uploads(spec: ModelSpec, clients: int = 3) -> list[Upload]:
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(clients)], spec)


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([to_matrix(parameters, layer).double().flatten() for layer in LAYERS])


def precision(client: Upload, *, temperature: float, variance: float) -> Tensor:
    blocks = [
        torch.kron(factors.outputs.double(), factors.inputs.double())
        for factors in (client[KFAC].factors[layer] for layer in LAYERS)
    ]
    dense = torch.block_diag(*blocks)
    return client.num_examples / temperature * dense + torch.eye(len(dense)).double() / variance


@pytest.mark.parametrize("spec", SPECS, ids=["no bias", "bias"])
def test_the_steps_are_adams_on_the_posterior(spec: ModelSpec) -> None:
    clients = uploads(spec)
    point = torch.stack([flat(one[Weights].tensors) for one in clients]).median(0).values.requires_grad_()
    posteriors = [
        MultivariateNormal(flat(one[Weights].tensors), precision_matrix=precision(one, temperature=0.5, variance=0.2))
        for one in clients
    ]
    prior = MultivariateNormal(torch.zeros_like(point), 0.2 * torch.eye(len(point)).double())
    optimiser = torch.optim.Adam([point], lr=0.01)
    for _ in range(15):
        optimiser.zero_grad()
        loss = -sum(one.log_prob(point) for one in posteriors) + 2 * prior.log_prob(point)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([point], max_norm=3.0)
        optimiser.step()
    settings = {"prior_variance": 0.2, "temperature": 0.5, "steps": 15, "learning_rate": 0.01, "longest_gradient": 3.0}
    (network,) = aggregate("fedbens", clients, spec=spec, select=False, **settings).networks
    assert torch.allclose(flat(network), point.detach(), atol=1e-4)


def test_many_steps_end_where_the_posterior_is_highest() -> None:
    clients = uploads(tiny.TINY)
    dense = {"temperature": 10.0, "variance": 0.5}
    together = sum(precision(one, **dense) for one in clients) - 2 * torch.eye(len(flat(tiny.initial()))).double() / 0.5
    weighted = sum(precision(one, **dense) @ flat(one[Weights].tensors) for one in clients)
    settings = {"temperature": 10.0, "prior_variance": 0.5, "steps": 6000, "learning_rate": 3e-3}
    (network,) = aggregate("fedbens", clients, select=False, longest_gradient=1e6, **settings).networks
    assert torch.allclose(flat(network), torch.linalg.solve(together, weighted), atol=1e-3)


@pytest.mark.parametrize("select", [False, True])
def test_one_client_alone_keeps_its_model(select: bool) -> None:
    (client,) = uploads(tiny.TINY, clients=1)
    (network,) = aggregate("fedbens", [client], select=select).networks
    assert all(torch.equal(network[name], tensor) for name, tensor in client[Weights].tensors.items())


def test_the_first_iterate_is_one_step_from_the_median() -> None:
    clients = uploads(tiny.TINY)
    (network,) = aggregate("fedbens", clients, steps=1, select=False).networks
    for name, tensor in network.items():
        median = torch.stack([one[Weights].tensors[name] for one in clients]).median(0).values
        # Adam's first step has the length of its rate in every coordinate.
        assert torch.allclose((tensor - median).abs(), torch.tensor(1e-3), atol=1e-5), name


def test_the_best_of_the_scored_iterates_is_returned() -> None:
    clients = uploads(tiny.TINY)
    result = aggregate("fedbens", clients, steps=100, check_every=30)
    chosen = int(result.details["selected_step"])
    assert chosen in (1, 31, 61, 91, 100)
    (last,) = aggregate("fedbens", clients, steps=chosen, select=False).networks
    assert all(torch.equal(result.networks[0][name], tensor) for name, tensor in last.items())
