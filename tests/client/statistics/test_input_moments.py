import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.data.layouts import Tokens, Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from tests import tiny

SIZE = tiny.SIZE**2
INPUTS = tiny.examples(200, seed=1).inputs


def moments(inputs: Tensor, directions: int) -> dict[str, Tensor]:
    examples = Examples(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    client = tiny.local(tiny.TINY.load(tiny.initial()), examples)
    return InputMoments.compute(client, directions=directions).tensors


def test_mean_and_all_directions_are_those_of_the_inputs() -> None:
    found, flat = moments(INPUTS, SIZE), INPUTS.flatten(1).double()
    assert torch.allclose(found["mean"].double(), flat.mean(0), atol=1e-6)
    covariance = found["directions"].double().T @ found["directions"].double()
    assert torch.allclose(covariance, torch.cov(flat.T, correction=0), atol=1e-5)
    assert found["deviations"].max() < 1e-2


def test_what_few_directions_leave_has_the_variances_of_the_data() -> None:
    found = moments(INPUTS, 5)
    variances = found["directions"].square().sum(0) + found["deviations"].square()
    assert torch.allclose(variances, INPUTS.flatten(1).var(0, correction=0), rtol=1e-4)
    assert found["deviations"].min() > 0.1


def test_few_directions_are_the_best_covariance_of_their_rank() -> None:
    found, flat = moments(INPUTS, 5)["directions"], INPUTS.flatten(1).double()
    values, vectors = torch.linalg.eigh(torch.cov(flat.T, correction=0))
    best = (vectors[:, -5:] * values[-5:]) @ vectors[:, -5:].T
    assert torch.allclose((found.T @ found).double(), best, atol=1e-5)
    lengths = found.norm(dim=1)
    assert lengths.tolist() == pytest.approx(values[-5:].flip(0).sqrt().tolist(), rel=1e-4)


def test_directions_that_the_data_lacks_are_zero() -> None:
    # Three examples span two directions.
    found = moments(INPUTS[:3], 6)["directions"]
    assert found[:2].norm(dim=1).min() > 0.1
    assert found[2:].abs().max() < 1e-2


@pytest.mark.parametrize("directions", [5, 30, SIZE])
def test_few_examples_have_the_directions_of_their_covariance(directions: int) -> None:
    few, kept = INPUTS[:20], min(directions, 20)
    found, flat = moments(few, directions)["directions"].double(), few.flatten(1).double()
    values, vectors = torch.linalg.eigh(torch.cov(flat.T, correction=0))
    best = (vectors[:, -kept:] * values[-kept:]) @ vectors[:, -kept:].T
    assert len(few) < flat.shape[1]
    assert torch.allclose(found.T @ found, best, atol=1e-6)
    assert found.norm(dim=1)[:kept].tolist() == pytest.approx(
        values[-kept:].clamp(min=0).flip(0).sqrt().tolist(), abs=1e-5
    )
    assert not found[kept:].any()


@pytest.mark.parametrize(("directions", "rows"), [(4, 4), (SIZE + 7, SIZE)])
def test_shapes_are_those_of_what_is_computed(directions: int, rows: int) -> None:
    shapes = InputMoments.shapes(tiny.TINY, directions=directions)
    vector = torch.Size([SIZE])
    assert shapes == {"mean": vector, "directions": torch.Size([rows, SIZE]), "deviations": vector}
    assert shapes == {name: tensor.shape for name, tensor in moments(INPUTS, directions).items()}


def test_rows_of_numbers_have_moments_and_tokens_do_not() -> None:
    assert InputMoments.shapes(ModelSpec("mlp", Vectors(7), 2), directions=3)["directions"] == torch.Size([3, 7])
    with pytest.raises(InputError, match="'input_moments' takes images and numbers; the data has 5 tokens of 9"):
        InputMoments.shapes(ModelSpec("mlp", Tokens(5, 9), 2), directions=3)
