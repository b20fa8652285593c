import numpy as np
import pytest
import torch

from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.data.tensors import Dataset, Split
from fedfisher_core.errors import InputError
from tests import tiny

SIZE = 50
LABELS = np.arange(SIZE) % 3


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
    used, apart = ALL.draw(LABELS)
    assert used.tolist() == list(range(SIZE))
    assert not len(apart)


@pytest.mark.parametrize(("examples", "held_out"), [(None, 10), (20, None), (20, 10), (40, 10), (50, None)])
def test_nobody_trains_on_what_is_held_out(examples: int | None, held_out: int | None) -> None:
    sampled = Sample(examples, held_out).of(dataset())
    trained, tested = set(sampled.train.inputs.tolist()), set(sampled.test.inputs.tolist())
    assert len(sampled.train) == len(trained) == (examples or SIZE - (held_out or 0))
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
    labels = np.arange(1000) // 250
    used, apart = Sample(examples=300, held_out=200).draw(labels)
    again = Sample(examples=300, held_out=200).draw(labels)
    assert np.array_equal(used, again[0])
    assert np.array_equal(apart, again[1])
    for label in range(4):
        # Of each label, not the first ones and not the last.
        assert 80 < (used[labels[used] == label] - 250 * label).mean() < 170
    # Fewer are used of the same draw, so that a smaller sample is a part of a larger one.
    assert set(Sample(examples=100, held_out=200).draw(labels)[0]) < set(used)


@pytest.mark.parametrize("held_out", [None, 37])
@pytest.mark.parametrize("examples", [1, 9, 10, 60, 333])
def test_each_label_has_its_share_of_a_sample(examples: int, held_out: int | None) -> None:
    labels = np.repeat(np.arange(5), [300, 100, 50, 49, 1])
    every, _ = Sample(held_out=held_out).draw(labels)
    used, _ = Sample(examples=examples, held_out=held_out).draw(labels)
    assert len(used) == examples
    exact = np.bincount(labels[every], minlength=5) * examples / len(every)
    assert np.abs(np.bincount(labels[used], minlength=5) - exact).max() <= 1


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (Sample(examples=51), r"data\.examples=51 needs 51 training examples; there are 50"),
        (Sample(held_out=50), r"data\.held_out=50 needs 51 training examples; there are 50"),
        (Sample(30, 21), r"data\.examples=30 with data\.held_out=21 needs 51 training examples; there are 50"),
    ],
)
def test_too_few_examples_are_refused(sample: Sample, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sample.draw(LABELS)
