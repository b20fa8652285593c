import numpy as np
import pytest
import torch

from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.errors import InputError
from tests import tiny

SIZE = 50


def dataset() -> Dataset:
    """A data set whose examples are their own numbers; test examples are negative."""
    numbers = torch.arange(SIZE)
    return Dataset(
        spec=tiny.TINY_DATA,
        train=Split(inputs=numbers, labels=numbers % 3, groups=numbers % 7),
        test=Split(inputs=-numbers, labels=numbers % 3),
        class_names=("a", "b", "c"),
    )


def test_without_settings_a_data_set_is_as_it_is() -> None:
    whole = dataset()
    assert ALL.of(whole) is whole
    used, apart = ALL.draw(SIZE)
    assert used.tolist() == list(range(SIZE))
    assert not len(apart)


@pytest.mark.parametrize(("train_size", "held_out"), [(None, 10), (20, None), (20, 10), (40, 10), (50, None)])
def test_nobody_trains_on_what_is_held_out(train_size: int | None, held_out: int | None) -> None:
    sampled = Sample(train_size, held_out).of(dataset())
    trained, tested = set(sampled.train.inputs.tolist()), set(sampled.test.inputs.tolist())
    assert len(sampled.train) == len(trained) == (train_size or SIZE - (held_out or 0))
    if held_out is None:
        assert torch.equal(sampled.test.inputs, dataset().test.inputs)
    else:
        assert len(sampled.test) == len(tested) == held_out
        assert tested <= set(range(SIZE)) - trained
    for split in (sampled.train, sampled.test):
        assert torch.equal(split.labels, split.inputs.abs() % 3)
    assert sampled.train.groups is not None
    assert torch.equal(sampled.train.groups, sampled.train.inputs % 7)


def test_the_draw_is_random_and_always_the_same() -> None:
    used, apart = Sample(train_size=300, held_out=200).draw(1000)
    again = Sample(train_size=300, held_out=200).draw(1000)
    assert np.array_equal(used, again[0])
    assert np.array_equal(apart, again[1])
    assert 400 < used.mean() < 600
    # Fewer are used of the same draw, so that a smaller sample is a part of a larger one.
    assert set(Sample(train_size=100, held_out=200).draw(1000)[0]) < set(used)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (Sample(train_size=51), r"data\.train_size=51 needs 51 training examples; there are 50"),
        (Sample(held_out=50), r"data\.held_out=50 needs 51 training examples; there are 50"),
        (Sample(30, 21), r"data\.train_size=30 with data\.held_out=21 needs 51 training examples; there are 50"),
    ],
)
def test_too_few_examples_are_refused(sample: Sample, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sample.draw(SIZE)
