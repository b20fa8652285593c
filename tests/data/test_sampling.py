import numpy as np
import pytest

from fedfisher_core.data.sampling import ALL, Sample
from fedfisher_core.engine.errors import InputError

SIZE = 50
LABELS = np.arange(SIZE) % 3


def test_without_settings_all_are_used() -> None:
    used, apart = ALL.draw(LABELS)
    assert used.tolist() == list(range(SIZE))
    assert not len(apart)


@pytest.mark.parametrize(("examples", "held_out"), [(None, 10), (20, None), (20, 10), (40, 10), (50, None)])
def test_nobody_trains_on_what_is_held_out(examples: int | None, held_out: int | None) -> None:
    used, apart = Sample(examples, held_out).draw(LABELS)
    assert len(used) == len(set(used)) == (examples or SIZE - (held_out or 0))
    assert len(apart) == len(set(apart)) == (held_out or 0)
    assert not set(used) & set(apart)
    assert set(used) | set(apart) <= set(range(SIZE))
    # Files are read in their order.
    assert (np.diff(used) > 0).all()
    assert (np.diff(apart) > 0).all()


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
