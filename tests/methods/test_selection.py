from dataclasses import replace

import pytest
import torch

from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.shared.selection import best_on_validation, keep_best
from fedfisher_core.models.spec import Parameters
from tests import tiny
from tests.methods.clients import empty, server

WIDER = replace(tiny.LINEAR, name="mlp", widths=(3, 2, 2))


def always(label: int, **details: float) -> Aggregate:
    """A network that predicts one label."""
    weight = torch.zeros_like(tiny.initial(tiny.LINEAR)["head.weight"])
    weight[label] = 1
    return Aggregate.of({"head.weight": weight}, **details)


def images(labels: list[int]) -> Examples:
    examples = tiny.examples(len(labels), spec=tiny.LINEAR)
    return Examples(inputs=torch.ones_like(examples.inputs), labels=torch.tensor(labels))


def test_the_first_of_the_best_is_kept() -> None:
    held = server(tiny.LINEAR, validation=images([2, 1, 2, 1, 0]))
    candidates = [always(0), always(1, step=1.0), always(2, step=2.0)]
    kept = best_on_validation(held, candidates)
    assert kept.networks[0] is candidates[1].networks[0]
    assert kept.details == {"step": 1.0, "validation_accuracy": pytest.approx(0.4)}
    assert held.used_validation


def test_one_alone_is_kept_without_images() -> None:
    held = server(tiny.LINEAR, validation=empty())
    candidate = always(1)
    assert best_on_validation(held, iter([candidate])) is candidate
    assert not held.used_validation
    with pytest.raises(InputError, match="validation images, of which it has none"):
        best_on_validation(held, [candidate, candidate])


def test_networks_have_widths_of_their_own() -> None:
    # Of equal outputs the first counts: it predicts class 0.
    grown = Aggregate(
        networks=({name: torch.zeros_like(one) for name, one in tiny.initial(WIDER).items()},), spec=WIDER
    )
    for label, expected in ((0, WIDER), (1, None)):
        held = server(tiny.LINEAR, validation=images([label]))
        assert best_on_validation(held, [grown, always(1)]).spec == expected


def scaled(factor: float) -> Parameters:
    return {name: factor * tensor for name, tensor in tiny.initial().items()}


def test_a_single_value_of_a_setting_needs_no_image() -> None:
    held = server(validation=empty())
    kept = keep_best(held, [0.5], scaled, name="factor")
    assert kept.details == {"factor": 0.5}
    assert not held.used_validation
    with pytest.raises(InputError, match="validation images"):
        keep_best(held, [0.5, 1.0], scaled, name="factor")


def test_the_best_value_of_a_setting_is_kept_and_the_first_of_equals() -> None:
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
