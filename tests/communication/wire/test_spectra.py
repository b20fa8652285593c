import numpy as np
import pytest

from fedfisher_core.communication.wire.spectra import row_errors, row_ranges

# Rows so long that few of them are looked at together.
ROWS = np.random.default_rng(0).standard_t(3, size=(7, 20_000))
FREE = np.arange(20_000)[None, :] > np.arange(7)[:, None]


@pytest.mark.parametrize("width", [1, 4, 6, 9])
def test_a_row_is_measured_as_if_it_were_alone(width: int) -> None:
    rows = np.where(FREE, ROWS, 0.0)
    widths = np.full(7, width)
    errors, ranges = row_errors(rows, FREE, width), row_ranges(rows, FREE, widths)
    for row in range(7):
        one = slice(row, row + 1)
        assert row_errors(rows[one], FREE[one], width) == errors[one]
        assert row_ranges(rows[one], FREE[one], widths[one]) == ranges[one]
    assert len(set(errors)) == 7
