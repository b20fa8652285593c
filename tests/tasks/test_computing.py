"""What a task says of the jobs that it computes, in a form that can be sent to other processes."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.failures import JobsFailedError
from fedfisher_core.engine.job import Job, NoInputs
from fedfisher_core.engine.store import Content, Store
from tasks.computing import compute


class PaperError(Exception):
    pass


@dataclass(frozen=True)
class Print(Job[NoInputs]):
    """A job that may fail."""

    kind: ClassVar[str] = "prints"
    version: ClassVar[int] = 1

    fails: bool = True
    by_user: bool = False

    def settings(self) -> dict[str, Any]:
        return {"name": self.name}

    def compute(self, inputs: NoInputs) -> Content:
        if not self.fails:
            return Content(documents={"page.json": 1})
        try:
            raise PaperError("0 sheets")
        except PaperError as error:
            if self.by_user:
                raise InputError("buy paper") from error
            raise


def failure_of(job: Print, folder: Path) -> JobsFailedError:
    with pytest.raises(JobsFailedError) as caught:
        compute([[job]], Store(folder), keys={job.name: job.key}, share_gpu=False, seconds=60)
    # Errors are pickled with all that they were raised from.
    assert caught.value.__cause__ is None
    return pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - what this test has pickled.


def test_what_no_setting_explains_is_sent_as_text(tmp_path: Path) -> None:
    failure = failure_of(Print(name="print"), tmp_path).failures["print"]
    assert failure.reason == "PaperError: 0 sheets"
    assert 'raise PaperError("0 sheets")' in failure.trace
    assert not failure.by_user


def test_what_the_user_can_mend_is_told_apart(tmp_path: Path) -> None:
    failed = failure_of(Print(name="print", by_user=True), tmp_path)
    assert failed.failures["print"].reason == "buy paper"
    assert failed.failures["print"].by_user
    assert str(failed) == "print: buy paper"


def test_one_job_that_fails_keeps_no_other_of_its_task_from_being_done(tmp_path: Path) -> None:
    good, store = Print(name="good", fails=False), Store(tmp_path)
    groups = [[Print(name="bad"), good], [Print(name="good too", fails=False)]]
    keys = {job.name: job.key for group in groups for job in group}
    with pytest.raises(JobsFailedError) as caught:
        compute(groups, store, keys=keys, share_gpu=False, seconds=60)
    assert list(caught.value.failures) == ["bad"]
    assert store.find(good.recipe) is not None
    assert len(store.folders()) == 2


def test_a_worker_with_other_code_of_a_job_makes_no_result(tmp_path: Path) -> None:
    job, same, store = Print(name="print", fails=False), Print(name="same", fails=False), Store(tmp_path)
    with pytest.raises(JobsFailedError) as caught:
        compute([[job, same]], store, keys={"print": "0" * 64, "same": same.key}, share_gpu=False, seconds=60)
    reason = caught.value.failures["print"].reason
    assert reason.startswith("its code, or a file that it reads, is another one here than in the command")
    assert store.find(job.recipe) is None
    assert store.find(same.recipe) is not None
