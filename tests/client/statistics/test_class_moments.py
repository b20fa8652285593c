import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import upload_schema
from fedfisher_core.communication.wire.leading import Owned
from fedfisher_core.data.layouts import Images, Tokens, Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from tests import tiny

SHAPE = (1, tiny.SIZE, tiny.SIZE)
LOW = LowFrequencies(SHAPE, 4)
# More of class 0 than the low frequencies have numbers, fewer of class 1, and none of class 2.
COUNTS = {0: LOW.size + 20, 1: 10}
LABELS = torch.tensor([label for label, count in COUNTS.items() for _ in range(count)])
INPUTS = tiny.examples(len(LABELS), seed=1).inputs + LABELS[:, None, None, None]
SHARES = torch.bincount(LABELS, minlength=tiny.CLASSES).double() / len(LABELS)


def moments(inputs: Tensor, labels: Tensor, directions: int, frequencies: int = 4) -> dict[str, Tensor]:
    client = tiny.local(tiny.TINY.load(tiny.initial()), Examples(inputs, labels))
    return ClassMoments.compute(client, directions=directions, frequencies=frequencies).tensors


def of(label: int, frequencies: int = 4) -> Tensor:
    return LowFrequencies(SHAPE, frequencies).keep(INPUTS[label == LABELS].flatten(1).double())


def covariance(label: int) -> Tensor:
    return torch.cov(of(label).T, correction=0)


def test_shares_and_means_are_those_of_the_classes() -> None:
    found = moments(INPUTS, LABELS, 5)
    assert torch.allclose(found["shares"].double(), SHARES)
    for label in COUNTS:
        assert torch.allclose(found["means"][label].double(), of(label).mean(0), atol=1e-5)
    assert not found["means"][2].any()


def test_directions_are_the_longest_of_all_classes_by_their_shares() -> None:
    found, rows = moments(INPUTS, LABELS, 10), []
    for label in COUNTS:
        values, vectors = torch.linalg.eigh(SHARES[label] * covariance(label))
        rows += [(value.item(), label, vector) for value, vector in zip(values, vectors.T, strict=True)]
    longest = sorted(rows, key=lambda row: -row[0])[:10]
    assert found["owners"].tolist() == [label for _, label, _ in longest]
    assert len(set(found["owners"].tolist())) == len(COUNTS)
    for direction, (value, _, vector) in zip(found["directions"].double(), longest, strict=True):
        assert torch.allclose(direction.outer(direction), value * vector.outer(vector), atol=1e-5)


def test_what_the_directions_leave_has_the_variances_within_classes() -> None:
    found = moments(INPUTS, LABELS, 5)
    within = sum(SHARES[label] * covariance(label).diagonal() for label in COUNTS)
    variances = found["directions"].square().sum(0) + found["deviations"].square()
    assert torch.allclose(variances.double(), within, rtol=1e-4)
    assert found["deviations"].min() > 0.1


def test_residuals_are_what_the_low_frequencies_leave() -> None:
    flat = INPUTS.flatten(1).double()
    expected = (flat - LOW.fill(LOW.keep(flat))).square().mean(0).sqrt()
    assert torch.allclose(moments(INPUTS, LABELS, 5)["residuals"].double(), expected, atol=1e-5)
    assert moments(INPUTS, LABELS, 5, frequencies=tiny.SIZE)["residuals"].max() < 1e-5


def test_a_class_with_one_example_is_left_out() -> None:
    """The mean of one example would be the example."""
    one = tiny.examples(1, seed=7).inputs
    found = moments(torch.cat([INPUTS, one]), torch.cat([LABELS, torch.tensor([2])]), 5)
    assert all(torch.equal(found[name], tensor) for name, tensor in moments(INPUTS, LABELS, 5).items())


def test_a_client_without_two_examples_of_a_class_is_refused() -> None:
    with pytest.raises(InputError, match=r"'class_moments' needs 2 examples of one class, .*min_size=4 each client"):
        moments(INPUTS[:2], torch.tensor([0, 1]), 5)


@pytest.mark.parametrize("directions", [4, 2 * LOW.size, 3 * LOW.size + 7])
def test_shapes_are_those_of_what_is_computed(directions: int) -> None:
    shapes, found = (
        ClassMoments.shapes(tiny.TINY, directions=directions, frequencies=4),
        moments(INPUTS, LABELS, directions),
    )
    assert shapes == {name: tensor.shape for name, tensor in found.items()}
    assert shapes["directions"] == torch.Size([min(directions, tiny.CLASSES * LOW.size), LOW.size])
    # Two classes have no more directions than these.
    assert not found["directions"][2 * LOW.size :].any()


@pytest.mark.parametrize(
    ("model", "images", "rows", "width"),
    [
        ("mlp", Images(1, 28, 28), 240, 11),
        ("lenet", Images(1, 28, 28), 240, 5),
        ("mlp", Images(3, 32, 32), 232, 4),
        ("lenet", Images(3, 32, 32), 201, 4),
    ],
)
def test_at_fedavgs_bits_as_many_directions_are_sent_as_the_documents_say(
    model: str, images: Images, rows: int, width: int
) -> None:
    bound = configure_statistics((Weights, KFAC, ClassMoments), {})
    schema = upload_schema(bound, ModelSpec(model, images, 10), WireSettings())
    assert schema.sections[-1].codec == Owned.of(rows, width)


def test_rows_of_numbers_have_moments_of_all_numbers_and_tokens_have_none() -> None:
    shapes = ClassMoments.shapes(ModelSpec("mlp", Vectors(40), 2), directions=3, frequencies=2)
    assert shapes["directions"] == torch.Size([3, 40])
    with pytest.raises(InputError, match="'class_moments' takes images and numbers; the data has 5 tokens of 9"):
        ClassMoments.shapes(ModelSpec("mlp", Tokens(5, 9), 2), directions=3)
