import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.methods.candidates import keep_best
from fedfisher_core.models.spec import Parameters
from tests import tiny
from tests.methods.clients import empty, server


def scaled(factor: float) -> Parameters:
    return {name: factor * tensor for name, tensor in tiny.initial().items()}


def test_a_single_value_needs_no_validation_set() -> None:
    held = server(validation=empty())
    kept = keep_best(held, [0.5], scaled, name="factor")
    assert kept.details == {"factor": 0.5}
    assert not held.used_validation
    with pytest.raises(InputError, match="validation images"):
        keep_best(held, [0.5, 1.0], scaled, name="factor")


def test_the_best_on_the_validation_set_is_kept_and_the_first_of_equals() -> None:
    held = server()
    score = held.scorer()
    # A network without biases that is scaled predicts the same; one that is turned around predicts something else.
    values = [1.0, 2.0, -1.0]
    scores = [score(scaled(value)) for value in values]
    assert scores[0] == scores[1] != scores[2]
    for tried in (values, values[::-1]):
        kept = keep_best(held, tried, scaled, name="factor")
        best = 1.0 if scores[0] > scores[2] else -1.0
        expected = best if tried is values else (2.0 if best == 1.0 else -1.0)
        assert kept.details == {"factor": expected, "validation_accuracy": max(scores)}
