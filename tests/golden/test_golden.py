"""Results are what they were: who wants one to move raises a version, so that no old result passes for a new one."""

from collections.abc import Iterator

import pytest
import torch

from tests.golden.engine import kinds
from tests.golden.experiments import CASES, surroundings
from tests.golden.frozen import ANEW, SORTS, complaints, read
from tests.golden.numbers import moved, same, summary


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with surroundings(tmp_path_factory.mktemp("golden")):
        yield


@pytest.mark.parametrize(("sort", "name"), [(sort, name) for sort, things in SORTS.items() for name in things.names])
def test_results_are_what_they_were(sort: str, name: str) -> None:
    said = complaints(sort, name)
    assert not said, "\n".join(said)


@pytest.mark.parametrize("sort", SORTS)
def test_what_is_frozen_is_still_there(sort: str) -> None:
    # A job's label begins with its experiment's name.
    gone = [label for label in read(sort) if label.partition(": ")[0] not in SORTS[sort].names]
    assert not gone, f"{gone} of {sort} have golden numbers and are gone; {ANEW}"


def test_every_kind_of_job_has_golden_numbers() -> None:
    covered = {kind for case in CASES.values() for kind in case.kinds}
    for kind, file in kinds().items():
        assert kind in covered, (
            f"job {kind} in {file} has no golden numbers: name it in a case of tests/golden/experiments.py, and {ANEW}"
        )
    frozen = {label.partition(": ")[2].partition(" ")[0] for label in read("jobs")}
    assert covered == frozen


def test_rounding_moves_nothing_and_a_thousandth_does() -> None:
    tensor = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    rounded = tensor.double() * (1 + 1e-6 * torch.rand(40, 30, generator=torch.Generator().manual_seed(1)))
    assert same(summary(tensor), summary(rounded))
    assert not same(summary(tensor), summary(1.001 * tensor))
    assert not same(summary(tensor), summary(tensor.T))
    assert not same(summary(tensor), summary(-tensor))
    assert moved({"loss": 1.0, "name": "a"}, {"loss": 1.00001, "name": "a"}) == []
    assert moved({"loss": 1.0, "left": 1.0}, {"loss": 1.001, "more": 1.0}) == [
        "left is gone",
        "loss was 1.0, is 1.001",
        "more is new",
    ]
