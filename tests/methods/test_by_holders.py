"""Averages as MA-Echo's authors take them: over clients alike, and of a class over those that hold it."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Combine
from fedfisher_core.models.evaluation import mean_logit, measure
from fedfisher_core.models.spec import ModelSpec, Parameters, model
from fedfisher_core.models.streams import reordered, stream_units, streams
from tests import tiny
from tests.methods.clients import aggregate, bind_written

# One example is too few: class 0 is held by the first two clients, class 1 by the last two, class 2 by no client.
COUNTS = [[9, 1, 0], [2, 4, 1], [0, 2, 1]]
HELD_BY = {0: [0, 1], 1: [1, 2], 2: []}
ALL = [[2, 2, 2]] * 3
by_bias = pytest.mark.parametrize("spec", [tiny.TINY, tiny.TINY_WITH_BIAS], ids=["no bias", "bias"])


@model("in_pairs")
class InPairs(nn.Module):
    """A network with two outputs a class, of which the larger one counts."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, 2 * spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs.flatten(1)).unflatten(1, (-1, 2)).amax(2)


def uploads_of(networks: Sequence[Parameters], counts: Sequence[Sequence[int]] = COUNTS) -> list[Upload]:
    return [
        Upload(sum(row), {Weights: Weights(one), LabelCounts: LabelCounts({"counts": torch.tensor(row).float()})})
        for one, row in zip(networks, counts, strict=True)
    ]


def different(spec: ModelSpec) -> list[Parameters]:
    return [tiny.initial(spec, seed=seed) for seed in range(3)]


def close(one: Parameters, other: Parameters, atol: float = 1e-6) -> bool:
    return list(one) == list(other) and all(
        torch.allclose(one[key], tensor, atol=atol) for key, tensor in other.items()
    )


@by_bias
def test_clients_weigh_the_same_and_in_the_last_layer_those_that_hold_a_class(spec: ModelSpec) -> None:
    networks = different(spec)
    (network,) = aggregate("fedavg_by_holders", uploads_of(networks), spec=spec).networks
    for name, tensor in network.items():
        if not name.startswith("head"):
            assert torch.allclose(tensor, (networks[0][name] + networks[1][name] + networks[2][name]) / 3, atol=1e-7)
            continue
        for label, clients in HELD_BY.items():
            expected = sum((networks[i][name][label] for i in clients), torch.zeros(tensor[label].shape))
            assert torch.allclose(tensor[label], expected / max(len(clients), 1), atol=1e-7)


@by_bias
def test_where_all_hold_all_classes_it_is_the_plain_mean(spec: ModelSpec) -> None:
    networks = different(spec)
    (network,) = aggregate("fedavg_by_holders", uploads_of(networks, ALL), spec=spec).networks
    assert close(network, aggregate("fedavg", uploads_of(networks, ALL), spec=spec).networks[0])


@by_bias
@pytest.mark.parametrize("pivot", [0, 2])
def test_copies_that_differ_in_the_order_and_length_of_units_find_the_pivot(spec: ModelSpec, pivot: int) -> None:
    layers, client = streams(spec), tiny.initial(spec)
    generator = torch.Generator().manual_seed(4)
    copies = [
        reordered(client, layers, [torch.randperm(units, generator=generator) for units in stream_units(layers)])
        for _ in range(3)
    ]
    assert not torch.equal(copies[0]["hidden.weight"], copies[1]["hidden.weight"])
    uploads = uploads_of(copies, ALL)
    (network,) = aggregate("otfusion_by_holders", uploads, spec=spec, pivot=pivot).networks
    assert close(network, copies[pivot])
    # Units of other lengths point the same way still.
    for factor, copy in zip((0.2, 1, 5), copies, strict=True):
        copy.update({name: tensor * factor for name, tensor in copy.items() if name.startswith("conv")})
    (network,) = aggregate("otfusion_by_holders", uploads, spec=spec, pivot=pivot).networks
    assert torch.allclose(network["hidden.weight"], copies[pivot]["hidden.weight"], atol=1e-6)


def aligned_by_definition(network: Parameters, pivot: Parameters) -> Parameters:
    """The tiny network without biases, aligned by permutations that bring units of length 1 nearest."""
    result, before = {}, torch.arange(1)
    for layer in ("conv", "hidden"):
        weight, theirs = network[f"{layer}.weight"], pivot[f"{layer}.weight"]
        moved = weight.reshape(len(weight), len(before), -1)[:, before].flatten(1).double()
        rows = moved / moved.norm(dim=1, keepdim=True)
        targets = theirs.flatten(1).double() / theirs.flatten(1).double().norm(dim=1, keepdim=True)
        distances = np.array([[float((row - target).norm()) for row in rows] for target in targets])
        before = torch.from_numpy(linear_sum_assignment(distances)[1])
        result[f"{layer}.weight"] = moved[before].reshape(weight.shape).float()
    return result | {"head.weight": network["head.weight"][:, before]}


def test_units_are_compared_by_the_distance_of_their_directions() -> None:
    networks = different(tiny.TINY)
    for seed, network in enumerate(networks):
        scales = torch.rand(len(network["hidden.weight"]), 1, generator=torch.Generator().manual_seed(seed))
        network["hidden.weight"] *= 0.1 + 5 * scales
    aligned = [networks[0], *(aligned_by_definition(one, networks[0]) for one in networks[1:])]
    (network,) = aggregate("otfusion_by_holders", uploads_of(networks)).networks
    assert close(network, aggregate("fedavg_by_holders", uploads_of(aligned)).networks[0])
    plain = aggregate("otfusion", uploads_of(networks), correction=[True], past_correction=[True]).networks[0]
    assert not torch.allclose(network["hidden.weight"], plain["hidden.weight"], atol=1e-3)


def test_a_pivot_that_is_no_client_is_refused() -> None:
    with pytest.raises(InputError, match="pivot=3: allowed: 0 to 2, one of the clients"):
        aggregate("otfusion_by_holders", uploads_of(different(tiny.TINY)), pivot=3)


@pytest.mark.parametrize("name", ["fedavg_by_holders", "otfusion_by_holders"])
def test_a_network_whose_last_layer_has_no_row_a_class_is_refused(name: str) -> None:
    spec = ModelSpec("in_pairs", Images(1, 4, 4), classes=3)
    message = r"can't serve model 'in_pairs': .*the last layer, 'head', has tensors of .*; allowed: .*, 3$"
    with pytest.raises(InputError, match=message):
        bind_written(name, {}, [spec])


def test_outputs_of_classes_that_a_client_does_not_hold_are_masked() -> None:
    # Two clients whose outputs do not depend on the image; the first holds class 0 alone, the second 0 and 1.
    spec = ModelSpec("linear", Images(1, 1, 1), classes=3)
    networks = [{"head.weight": torch.tensor([[2.0], [9], [9]])}, {"head.weight": torch.tensor([[4.0], [3.5], [9]])}]
    result = aggregate(
        "ensemble_by_holders", uploads_of(networks, [[5, 1, 0], [2, 2, 1]]), spec=spec, wire={"budget": "none"}
    )
    assert result.combine is Combine.MEAN_LOGIT
    assert result.weights is not None
    assert result.weights.tolist() == [[0.5, 0, 0], [0.5, 1, 0]]
    one_image = Examples(inputs=torch.ones(1, 1, 1, 1), labels=torch.tensor([1]))
    loaded = [spec.load(network).eval() for network in result.networks]
    found = measure([mean_logit(loaded, result.weights)], one_image, torch.ones(2, 3))
    # The outputs are (2 + 4) / 2, 3.5 and, as no client holds the last class, 0.
    assert found.accuracy == 1
    assert found.loss == pytest.approx(float(torch.tensor([3.0, 3.5, 0]).logsumexp(0)) - 3.5)
    assert measure([mean_logit(loaded, None)], one_image, torch.ones(2, 3)).accuracy == 0
