"""What clients agree on before the first message."""

import logging
from dataclasses import replace

import pytest

from fedfisher_core.communication.secure.fixed_point import FixedPoint
from fedfisher_core.communication.secure.terms import default_threshold
from fedfisher_core.engine.errors import InputError
from tests.communication.secure.parties import terms


@pytest.mark.parametrize(
    ("clients", "curious", "active"), [(1, 2, 2), (2, 2, 2), (3, 2, 3), (4, 3, 3), (5, 3, 4), (6, 4, 5), (30, 16, 21)]
)
def test_thresholds_are_more_than_half_or_than_two_thirds(clients: int, curious: int, active: int) -> None:
    assert default_threshold(clients, active=False) == curious
    assert default_threshold(clients, active=True) == active


@pytest.mark.parametrize("threshold", [1, 6])
@pytest.mark.parametrize("active", [False, True])
def test_a_threshold_that_clients_cannot_meet_is_refused(threshold: int, active: bool) -> None:
    with pytest.raises(InputError, match=rf"threshold={threshold} with 5 clients; allowed: 2 to the number of clients"):
        terms(threshold=threshold, active=active)


def test_half_of_the_clients_are_enough_with_a_warning_for_a_server_that_follows_the_protocol(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command keeps the project's log to itself.
    monkeypatch.setattr(logging.getLogger("fedfisher"), "propagate", True)
    terms(threshold=3, clients=5)
    terms(threshold=4, clients=6, active=True)
    assert not caplog.records
    terms(threshold=3, clients=6)
    (record,) = caplog.records
    assert "wire.secure.threshold=3 is at most half of 6 clients" in record.getMessage()
    assert "honest-but-curious server only" in record.getMessage()
    with pytest.raises(InputError, match=r"at most half of 6 clients; allowed with .*'active': 4 or more"):
        terms(threshold=3, clients=6, active=True)


def test_a_sum_of_nothing_is_refused() -> None:
    empty = FixedPoint({"x": (0, 3)}, (1,), clients=5, bits=64)
    with pytest.raises(InputError, match="has no numbers"):
        replace(terms(), code=empty)


def test_the_context_is_of_all_terms() -> None:
    code = terms().code
    others = [
        terms(),
        terms(session=b"two"),
        terms(threshold=4),
        terms(bits=32),
        terms(active=True),
        terms(clients=4),
        replace(terms(), participants=(0, 1, 2, 3, 7)),
        replace(terms(), code=replace(code, exponents=(7, 6))),
        replace(terms(), code=replace(code, layout={"weight": (30, 20), "bias": (7,)})),
    ]
    assert len({one.context for one in others}) == len(others)
    assert terms().context == terms().context
