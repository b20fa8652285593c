"""Statistics of features that all clients share: the inputs of a network that is one linear layer."""

import math

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.class_gaussians import ClassGaussians, Covariance
from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.features import features_of, require_head
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec
from tests import arranged, tiny

SPEC = ModelSpec("linear", Vectors(4), classes=tiny.CLASSES)
COVARIANCES: tuple[Covariance, ...] = ("diagonal", "spherical", "full")
by_covariance = pytest.mark.parametrize("covariance", COVARIANCES)


def client(labels: list[int], *, seed: int = 0) -> Local:
    """A client whose features are correlated, and far from 0 by their class."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(len(labels), 4, generator=generator) @ torch.randn(4, 4, generator=generator)
    rows = mixed + 5 * torch.tensor(labels)[:, None]
    return tiny.local(SPEC.load(tiny.initial(SPEC)), Examples(rows, torch.tensor(labels)))


def rows_of(local: Local, label: int) -> Tensor:
    return local.examples.inputs[local.examples.labels == label].double()


@pytest.mark.parametrize(
    ("spec", "layers"),
    [
        (tiny.TINY, "conv, hidden, head"),
        (ModelSpec("mlp", arranged.NUMBERS, classes=3, widths=(7, 6, 5)), r"\w+(, \w+)+"),
        (ModelSpec("bag", arranged.SEQUENCES, classes=3), "embedding, head"),
    ],
    ids=lambda one: one.name if isinstance(one, ModelSpec) else "",
)
@pytest.mark.parametrize("statistic", [ClassSums, ClassGaussians])
def test_trained_layers_before_the_last_are_refused(
    statistic: type[ClassSums | ClassGaussians], spec: ModelSpec, layers: str
) -> None:
    message = f"the layers with weights are {layers}; allowed: one Linear alone, as of model 'linear'"
    with pytest.raises(UnsupportedLayerError, match=message):
        statistic.shapes(spec)


def test_a_client_is_refused_as_its_network_is() -> None:
    local = tiny.local(tiny.TINY.load(tiny.initial()), tiny.examples(5))
    with pytest.raises(UnsupportedLayerError, match="allowed: one Linear alone"):
        ClassSums.compute(local)


def test_features_are_what_the_layer_reads_in_the_order_of_the_examples() -> None:
    spec = ModelSpec("one_hot", arranged.SEQUENCES, classes=3)
    tokens = spec.inputs.drawn(1003, torch.Generator().manual_seed(0))
    local = tiny.local(spec.load(tiny.initial(spec)), Examples(tokens, torch.zeros(1003, dtype=torch.int64)))
    expected = torch.nn.functional.one_hot(tokens, arranged.SEQUENCES.vocabulary).flatten(1)
    assert torch.equal(features_of(local), expected.float())
    assert require_head(spec).in_features == expected.shape[1]


def test_sums_by_class_are_those_of_a_loop() -> None:
    local = client([0, 2, 2, 0, 2] * 401)
    expected = torch.zeros(tiny.CLASSES, 4, dtype=torch.float64)
    for row, label in zip(local.examples.inputs, local.examples.labels, strict=True):
        expected[label] += row.double() / len(local.examples)
    found = ClassSums.compute(local).tensors["sums"]
    assert torch.allclose(found, expected.float(), rtol=1e-6, atol=0)
    assert found[1].abs().max() == 0


@by_covariance
def test_shapes_are_those_of_what_is_computed(covariance: Covariance) -> None:
    found = ClassGaussians.compute(client([0, 1, 1]), covariance=covariance).tensors
    assert list(ClassGaussians.shapes(SPEC, covariance=covariance).items()) == [
        (name, tensor.shape) for name, tensor in found.items()
    ]
    assert ClassSums.shapes(SPEC)["sums"] == ClassSums.compute(client([0])).tensors["sums"].shape


def test_means_and_covariances_are_the_most_likely_ones() -> None:
    local = client([0] * 9 + [2] * 5)
    found = {one: ClassGaussians.compute(local, covariance=one).tensors for one in COVARIANCES}
    row, column = torch.tril_indices(4, 4)
    for label in (0, 2):
        rows = rows_of(local, label)
        covariance = torch.cov(rows.T, correction=0)
        for one in COVARIANCES:
            assert torch.allclose(found[one]["means"][label].double(), rows.mean(0), rtol=1e-5)
        full = torch.zeros(4, 4, dtype=torch.float64)
        full[row, column] = found["full"]["covariances"][label].double()
        assert torch.allclose(full, covariance.tril(), rtol=1e-4, atol=1e-6)
        assert torch.allclose(found["diagonal"]["deviations"][label].double(), covariance.diag().sqrt(), rtol=1e-5)
        variance = float(covariance.trace() / 4)
        assert float(found["spherical"]["deviations"][label]) == pytest.approx(math.sqrt(variance), rel=1e-5)


@by_covariance
def test_a_class_with_one_example_does_not_give_it_away(covariance: Covariance) -> None:
    found = ClassGaussians.compute(client([0, 0, 1]), covariance=covariance).tensors
    assert all(tensor[1:].abs().max() == 0 for tensor in found.values())
    assert all(tensor[0].abs().max() > 0 for tensor in found.values())


@by_covariance
def test_what_is_drawn_has_the_mean_and_covariance_that_were_sent(covariance: Covariance) -> None:
    local = client([2] * 30)
    gaussians = ClassGaussians.compute(local, covariance=covariance)
    drawn = gaussians.draw(2, 40_000, torch.Generator().manual_seed(0)).double()
    rows = rows_of(local, 2)
    expected = torch.cov(rows.T, correction=0)
    if covariance != "full":
        expected = expected.diag().diag()
    if covariance == "spherical":
        expected = expected.trace() / 4 * torch.eye(4, dtype=torch.float64)
    # Five standard errors of the largest: sqrt(variance / n) of a mean, variance sqrt(2 / n) of a variance.
    largest = float(expected.diag().max())
    assert torch.allclose(drawn.mean(0), rows.mean(0), atol=5 * (largest / 40_000) ** 0.5)
    assert torch.allclose(torch.cov(drawn.T), expected, atol=5 * largest * (2 / 40_000) ** 0.5)
    assert expected.diag().min() > 0.1


@by_covariance
def test_the_same_is_drawn_again_from_the_same_seed(covariance: Covariance) -> None:
    gaussians = ClassGaussians.compute(client([0] * 8), covariance=covariance)
    one, other, third = (gaussians.draw(0, 5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


@by_covariance
def test_features_that_do_not_vary_are_drawn_as_they_are(covariance: Covariance) -> None:
    rows = torch.full((6, 4), 1.5)
    local = tiny.local(SPEC.load(tiny.initial(SPEC)), Examples(rows, torch.zeros(6, dtype=torch.int64)))
    drawn = ClassGaussians.compute(local, covariance=covariance).draw(0, 3, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, rows[:3])


def test_another_covariance_is_refused() -> None:
    message = r"statistics\.class_gaussians\.covariance='tied': Input should be 'diagonal', 'spherical' or 'full'"
    with pytest.raises(InputError, match=message):
        configure_statistics([ClassGaussians], {"class_gaussians": {"covariance": "tied"}})
