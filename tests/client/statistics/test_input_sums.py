import pytest
import torch

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.input_sums import InputSums
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.data.layouts import Images, Vectors
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from tests import tiny


def local(count: int) -> Local:
    return tiny.local(tiny.TINY.load(tiny.initial()), tiny.examples(count))


def test_sums_are_those_of_a_loop_over_examples() -> None:
    held = local(23)
    low = LowFrequencies((1, tiny.SIZE, tiny.SIZE), 2)
    sums, squares = torch.zeros(tiny.CLASSES, 4), torch.zeros(tiny.SIZE**2)
    products = torch.zeros(tiny.CLASSES, 4, 4)
    for one, label in zip(held.examples.inputs.flatten(1), held.examples.labels, strict=True):
        kept = low.keep(one[None])
        sums[label] += kept[0] / 23
        products[label] += torch.outer(kept[0], kept[0]) / 23
        squares += (one - low.fill(kept)[0]).square() / 23
    found = InputSums.compute(held, numbers=4).tensors
    assert torch.allclose(found["sums"], sums, atol=1e-5)
    assert torch.allclose(found["squares"], squares, atol=1e-5)
    above = torch.triu_indices(4, 4)
    assert torch.allclose(found["products"], products[:, above[0], above[1]], atol=1e-5)


def test_the_mean_over_clients_is_that_over_all_their_examples() -> None:
    held = local(40)
    inputs, labels = held.examples.inputs, held.examples.labels
    one, other = (
        InputSums.compute(tiny.local(held.network, Examples(inputs[rows], labels[rows]))).tensors
        for rows in (slice(0, 12), slice(12, 40))
    )
    for name, tensor in InputSums.compute(held).tensors.items():
        assert torch.allclose(tensor, 0.3 * one[name] + 0.7 * other[name], atol=1e-5)


def test_shapes_are_those_of_the_tensors() -> None:
    found = InputSums.compute(local(9), numbers=9).tensors
    assert {name: tensor.shape for name, tensor in found.items()} == InputSums.shapes(tiny.TINY, numbers=9)
    assert found["sums"].shape == (tiny.CLASSES, 9)


def test_fewer_numbers_than_channels_are_refused() -> None:
    coloured = ModelSpec("lenet", Images(3, 32, 32), classes=10)
    with pytest.raises(InputError, match=r"statistics\.input_sums\.numbers=2 with 3 channels; allowed: at least one"):
        InputSums.shapes(coloured, numbers=2)
    assert InputSums.shapes(coloured)["sums"] == (10, 75)


def test_tables_of_too_many_numbers_are_refused() -> None:
    assert InputSums.shapes(ModelSpec("linear", Vectors(1000), classes=2))["sums"] == (2, 1000)
    with pytest.raises(InputError, match="the data has 1001 numbers; allowed: up to 1000"):
        InputSums.shapes(ModelSpec("linear", Vectors(1001), classes=2))


def test_numbers_get_ten_bits_or_none() -> None:
    tensors = [TensorSpec("sums", (3, 4)), TensorSpec("squares", (5,))]
    scales = 2 * 32
    ten = InputSums.structure.shorten(tensors, 17 * 10 + scales)
    assert ten is not None
    assert ten.bits(tensors) == 17 * 10 + scales
    assert InputSums.structure.shorten(tensors, 17 * 10 + scales - 1) is None
    assert InputSums.structure.shorten_as_paper(tensors, 17 * 9, factor_bits=9) is None
