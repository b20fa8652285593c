"""What is said of jobs that failed."""

import json
import pickle
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import DivergedClientError, InputError, JobError
from fedfisher_core.engine.plan import Failure, failed_jobs, failed_json, read_failed, traces_text


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "reason", "by_user"),
    [
        (ValueError("no\n  such\tshape"), "ValueError: no such shape", False),
        (KeyError("a"), "KeyError: 'a'", False),
        (InputError("alpha=0; allowed: above 0"), "alpha=0; allowed: above 0", True),
        (DivergedClientError("client 1 diverged"), "client 1 diverged", True),
        (JobError("OSError: disk", "Traceback of it"), "OSError: disk", False),
    ],
)
def test_a_reason_is_one_line(error: Exception, reason: str, by_user: bool) -> None:
    failure = Failure.of("a job", raised(error))
    assert (failure.reason, failure.by_user) == (reason, by_user)


def test_a_reason_is_bounded() -> None:
    reason = Failure.of("a job", ValueError("x" * 10_000)).reason
    assert len(reason) == 300
    assert reason.endswith("x…")


def test_a_traceback_is_kept_as_text_and_travels() -> None:
    assert "in raised" in Failure.of("a job", raised(ValueError("a"))).trace
    error = pickle.loads(pickle.dumps(JobError("ValueError: a", "Traceback")))  # noqa: S301
    assert (str(error), Failure.of("a job", error).trace) == ("ValueError: a", "Traceback")


FAILED = {
    "train": Failure("train", "ValueError: a", "first trace", False),
    "send": Failure("train", "ValueError: a", "first trace", False),
    "fedavg": Failure("train", "ValueError: a", "first trace", False),
    "other": Failure("other", "ValueError: b", "first trace", False),
    "diag": Failure("lost client", "too few", "second trace", True),
}


def test_each_cause_is_listed_once() -> None:
    found = [(one.job, one.reason, one.left_out) for one in failed_jobs(FAILED)]
    assert found == [
        ("train", "ValueError: a", ("send", "fedavg")),
        ("other", "ValueError: b", ()),
        ("lost client", "too few", ("diag",)),
    ]


def test_each_traceback_is_written_once() -> None:
    text = traces_text(FAILED)
    assert text.count("first trace") == text.count("second trace") == 1
    assert text.index("train: ValueError: a") < text.index("other: ValueError: b") < text.index("first trace")


def test_failed_jobs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "failed.json"
    assert read_failed(path) == []
    path.write_bytes(failed_json(failed_jobs(FAILED)))
    assert tuple(read_failed(path)) == failed_jobs(FAILED)
    path.write_text(json.dumps({"job": 1}))
    with pytest.raises(InputError, match=r"failed\.json is no list of failed jobs"):
        read_failed(path)
