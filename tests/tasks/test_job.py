"""Errors of jobs can be sent to other processes, whatever they were raised from."""

import copy
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedfisher_core.batches import Batch
from fedfisher_core.errors import InputError, JobError, SomeDivergedError
from fedfisher_core.jobs import Job, NoInputs, graph_of
from fedfisher_core.store import Content, Step, Store
from fedfisher_core.walk import Walk
from tasks.job import do_alone


class PaperError(Exception):
    pass


@dataclass(frozen=True)
class Print(Job[NoInputs]):
    """A job that fails."""

    by_user: bool = False
    apart: bool = False

    def size(self, inputs: NoInputs) -> float:
        return 0.0

    def step(self, inputs: NoInputs) -> Step:
        return Step(kind="prints", code="made up", settings={"name": self.name})

    def compute(self, inputs: NoInputs) -> Content:
        if self.apart:
            raise SomeDivergedError({"one": "client 1 diverged"})
        try:
            raise PaperError("0 sheets")
        except PaperError as error:
            if self.by_user:
                raise InputError("buy paper") from error
            raise


def failure_of(job: Print, folder: Path) -> Exception:
    batch = Walk(graph_of([job]), Store(folder)).take()
    assert isinstance(batch, Batch)
    with pytest.raises((InputError, JobError, SomeDivergedError)) as caught:
        do_alone(batch, Store(folder))
    # Where Dask is installed, errors are pickled with all that they were raised from.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def test_what_no_setting_explains_is_sent_as_text(tmp_path: Path) -> None:
    failure = failure_of(Print(name="print"), tmp_path)
    assert isinstance(failure, JobError)
    assert failure.reason == "PaperError: 0 sheets"
    assert 'raise PaperError("0 sheets")' in failure.trace


def test_what_the_user_can_mend_is_sent_without_its_cause(tmp_path: Path) -> None:
    failure = failure_of(Print(name="print", by_user=True), tmp_path)
    assert isinstance(failure, InputError)
    assert str(failure) == "buy paper"


def test_that_some_clients_diverged_is_sent_as_it_is(tmp_path: Path) -> None:
    failure = failure_of(Print(name="print", apart=True), tmp_path)
    assert isinstance(failure, SomeDivergedError)
    # It is made again from its arguments, as in another process.
    assert copy.copy(failure).diverged == {"one": "client 1 diverged"}
