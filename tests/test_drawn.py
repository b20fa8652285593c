"""Cases of a test are drawn where it says how many."""

import pytest

from tests.chaos.scale import scaled
from tests.drawn import left_out


@pytest.mark.drawn(3)
@pytest.mark.parametrize("case", range(9))
def test_no_more_cases_are_taken_than_are_to_be_drawn_and_again_the_same(
    request: pytest.FixtureRequest, case: int
) -> None:
    drawn = [item for item in request.session.items if item.path == request.path]
    assert request.node in drawn
    assert len(drawn) <= scaled(test=3, chaos=9)
    assert left_out(drawn[::-1]) == set()
