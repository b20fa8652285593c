from typing import Any

import pytest
import torch

from fedfisher_core.client.statistics.class_gaussians import ClassGaussians, Covariance
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, bind_written, server

SPEC = ModelSpec("linear", Vectors(4), classes=tiny.CLASSES, bias=True)
MEANS = 4 * torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, -1], [-1, 0, 1, 0]])


def examples(counts: list[int], *, seed: int = 0) -> Examples:
    """Real features of well separated classes."""
    labels = torch.arange(tiny.CLASSES).repeat_interleave(torch.tensor(counts))
    return Examples(MEANS[labels] + torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(seed)), labels)


def upload(counts: list[int], *, seed: int = 0, covariance: Covariance = "diagonal") -> Upload:
    local = tiny.local(SPEC.load(tiny.initial(SPEC)), examples(counts, seed=seed))
    sent = {
        LabelCounts: LabelCounts.compute(local),
        ClassGaussians: ClassGaussians.compute(local, covariance=covariance),
    }
    return Upload(sum(counts), sent)


def trained(uploads: list[Upload], spec: ModelSpec = SPEC, **settings: Any) -> Aggregate:
    return aggregate("fedpft", uploads, spec=spec, **settings)


@pytest.mark.parametrize("covariance", ["diagonal", "spherical", "full"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_head_classifies_real_features_of_clients_with_one_class_each(covariance: Covariance, bias: bool) -> None:
    spec = ModelSpec("linear", Vectors(4), classes=tiny.CLASSES, bias=bias)
    uploads = [
        upload(counts, seed=seed, covariance=covariance)
        for seed, counts in enumerate([[60, 0, 0], [0, 40, 0], [0, 0, 50]])
    ]
    result = trained(uploads, spec)
    assert result.details["drawn"] == 150
    assert accuracy(spec.load(result.networks[0]).eval(), examples([200, 200, 200], seed=9)) > 0.97
    start = accuracy(spec.load(tiny.initial(spec)).eval(), examples([200, 200, 200], seed=9))
    assert start < 0.7


def test_as_many_features_are_drawn_as_there_are_examples_without_single_ones() -> None:
    result = trained([upload([5, 1, 0]), upload([1, 1, 4], seed=1)], epochs=1)
    assert result.details["drawn"] == 5 + 4


def test_clients_whose_classes_have_one_example_leave_the_head_as_it_was() -> None:
    result = trained([upload([1, 0, 1]), upload([0, 1, 0])])
    assert result.details == {"drawn": 0.0}
    assert all(torch.equal(result.networks[0][name], tensor) for name, tensor in tiny.initial(SPEC).items())


def test_what_a_client_has_more_of_weighs_more() -> None:
    # Both have the same features, of which they say different things.
    same = [upload([40, 0, 0], seed=3), upload([0, 4, 0], seed=3)]
    for one, label in zip(same, (0, 1), strict=True):
        tensors = one[ClassGaussians].tensors
        tensors["means"][label], tensors["deviations"][label] = 0.0, 1.0
    (network,) = trained(same).networks
    shares = SPEC.load(network)(torch.zeros(1, 4)).softmax(1)[0]
    assert shares[0] > 0.8
    assert 0.01 < shares[1] < 0.2


def test_a_class_that_nobody_has_is_not_predicted() -> None:
    (network,) = trained([upload([50, 50, 0])]).networks
    outputs = SPEC.load(network)(examples([100, 100, 0], seed=5).inputs).softmax(1)
    assert outputs[:, 2].max() < 0.2
    assert all(torch.isfinite(tensor).all() for tensor in network.values())


def test_the_server_draws_the_same_from_the_same_seed() -> None:
    uploads = [upload([20, 20, 20])]
    bound = bind_written("fedpft", {"epochs": 2}, [SPEC])
    networks = []
    for seed in (0, 0, 1):
        held = server(SPEC)
        held.generator = torch.Generator().manual_seed(seed)
        networks.append(bound(held, uploads).networks[0]["head.weight"])
    assert torch.equal(networks[0], networks[1])
    assert not torch.equal(networks[0], networks[2])


def test_the_training_starts_from_the_weights_that_clients_started_from() -> None:
    (network,) = trained([upload([20, 20, 20])], epochs=1, learning_rate=1e-9).networks
    assert all(torch.allclose(network[name], tensor, atol=1e-6) for name, tensor in tiny.initial(SPEC).items())


def test_a_training_that_diverges_is_an_error_that_names_the_rate() -> None:
    far = upload([20, 20, 20])
    far[ClassGaussians].tensors["means"].mul_(1e30)
    with pytest.raises(ArithmeticError, match="learning_rate=1e"):
        trained([far], learning_rate=1e30)


def test_covariances_that_find_no_room_are_refused_by_their_name() -> None:
    spec = ModelSpec("linear", Vectors(100), classes=3, bias=True)
    full = {"class_gaussians": {"covariance": "full"}}
    with pytest.raises(InputError, match="too little for statistic 'class_gaussians'"):
        bind_written("fedpft", {}, [spec], statistics=full)
    bind_written("fedpft", {"wire": {"budget": "none"}}, [spec], statistics=full)
    bind_written("fedpft", {}, [spec])


@pytest.mark.parametrize(
    ("setting", "value"), [("epochs", 0), ("batch_size", 0), ("learning_rate", 0), ("momentum", 1)]
)
def test_a_wrong_setting_is_refused_by_its_name(setting: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"methods\.fedpft\.{setting}={value}: "):
        bind_written("fedpft", {setting: value}, [SPEC])
