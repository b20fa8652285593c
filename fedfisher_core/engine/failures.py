"""Jobs that failed, the reasons, and the jobs that are left out with them."""

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedfisher_core.engine.errors import DivergedClientError, InputError, JobError, UnwritableError, printable
from fedfisher_core.engine.files import read_regular

_LONGEST = 300
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class Failure:
    """Why a job has no result.

    Args:
        job: name of the job that failed: this one, or one that it needs.
        by_user: whether other settings or other data would mend it.
        by_machine: whether another machine might do better, as where this one has a full disk.
    """

    job: str
    reason: str
    trace: str
    by_user: bool
    by_machine: bool = False

    @staticmethod
    def of(job: str, error: Exception) -> "Failure":
        """Write a job's error down as text, without the objects that its traceback keeps in memory."""
        by_machine = isinstance(error, UnwritableError)
        by_user = isinstance(error, InputError | DivergedClientError) and not by_machine
        text = str(error) if by_user or by_machine or isinstance(error, JobError) else described(error)
        line = printable(" ".join(text.split()))
        reason = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
        trace = error.trace if isinstance(error, JobError) else "".join(traceback.format_exception(error))
        return Failure(job, reason, trace, by_user, by_machine)


class JobsFailedError(RuntimeError):
    """Some jobs of a task failed; the results of the others are kept.

    Args:
        failures: by name of the job, as text, since not every error can be sent to another process.
    """

    def __init__(self, failures: Mapping[str, Failure]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        return "; ".join(f"{name}: {failure.reason}" for name, failure in self.failures.items())


@dataclass(frozen=True)
class FailedJob:
    """A job that failed, for people.

    Args:
        left_out: names of the jobs that need it.
    """

    job: str
    reason: str
    left_out: tuple[str, ...]


_FAILED_JOBS = TypeAdapter(list[FailedJob])


def described(error: Exception) -> str:
    """Put an error's type before its message."""
    return f"{type(error).__name__}: {error}"


def failed_jobs(failed: Mapping[str, Failure]) -> tuple[FailedJob, ...]:
    """List the jobs that failed, in order, from the failures by name of the job that has no result."""
    causes = {failure.job: failure for failure in failed.values()}
    return tuple(
        FailedJob(
            job, cause.reason, tuple(name for name, failure in failed.items() if failure.job == job and name != job)
        )
        for job, cause in causes.items()
    )


def traces_text(failed: Mapping[str, Failure]) -> str:
    """Write each traceback once, under the names of the jobs that raised it."""
    jobs: dict[str, dict[str, str]] = {}
    for failure in failed.values():
        jobs.setdefault(failure.trace, {})[failure.job] = failure.reason
    blocks = ("\n".join([*(f"{job}: {reason}" for job, reason in own.items()), trace]) for trace, own in jobs.items())
    return "\n".join(blocks)


def failed_json(failed: Sequence[FailedJob]) -> bytes:
    """Write failed jobs as a file that `read_failed` reads."""
    return (json.dumps([asdict(one) for one in failed], indent=2) + "\n").encode()


def read_failed(path: Path) -> list[FailedJob]:
    """Read failed jobs from a file by `failed_json`; a missing file means none, another content is an `InputError`."""
    try:
        return _FAILED_JOBS.validate_json(read_regular(path, limit=_MOST_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        raise InputError(f"{path} is no list of failed jobs") from error
