from typing import Any

import pytest

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.engine.errors import InputError

GREY = Images(1, 6, 6)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (Images(2, 6, 6), {}, r"images of 2 channels; allowed: 1 \(grey\) or 3 \(red, green and blue\)"),
        (Images(30, 6, 6), {}, "images of 30 channels"),
        (Vectors(4), {"augment": True}, "augment=True, but it has 4 numbers; allowed: with images"),
        (Tokens(4, 9), {"augment": True}, "augment=True, but it has 4 tokens of 9; allowed: with images"),
        (GREY, {"mean": (0.5, 0.5)}, "mean has 2 numbers, but its examples are 1 x 6 x 6; allowed: 1 or none"),
        (Vectors(4), {"std": (1.0,)}, "std has 1 numbers, but its examples are 4 numbers; allowed: 4 or none"),
        (Tokens(4, 9), {"mean": (1.0,)}, "mean has 1 numbers, .* allowed: none"),
        (GREY, {"std": (0.0,)}, r"std=\(0\.0,\); allowed: positive numbers"),
        (GREY, {"std": (float("nan"),)}, r"std=\(nan,\); allowed: positive numbers"),
    ],
)
def test_what_does_not_fit_together_is_refused(inputs: Layout, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"data set 'odd': {message}"):
        DatasetSpec("odd", None, 3, inputs, **options)


@pytest.mark.parametrize("inputs", [GREY, Images(3, 4, 9), Vectors(4), Tokens(4, 9)], ids=str)
def test_constants_may_be_left_out(inputs: Layout) -> None:
    spec = DatasetSpec("plain", None, 3, inputs)
    assert (spec.mean, spec.std) == ((), ())


def test_the_built_in_data_sets_are_square_images() -> None:
    assert datasets.get("mnist5k").inputs == Images(1, 28, 28)
    assert datasets.get("gtsrb").inputs == Images(3, 32, 32)
