"""Jobs that failed: why, and what is left out with them."""

import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedfisher_core.errors import DivergedClientError, InputError, JobError
from fedfisher_core.files import read_regular

_LONGEST = 300
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class Failure:
    """Why a job has no result.

    Args:
        job: name of the job that failed: this one, or one that it needs.
        reason: its error, in one line.
        trace: where it was raised.
        by_user: whether other settings or other data would mend it.
    """

    job: str
    reason: str
    trace: str
    by_user: bool

    @staticmethod
    def of(job: str, error: Exception) -> "Failure":
        """Write an error down, without what its traceback keeps in memory.

        Args:
            job: name of the job that failed.
            error: what it raised.

        Returns:
            The failure.
        """
        by_user = isinstance(error, InputError | DivergedClientError)
        text = str(error) if by_user or isinstance(error, JobError) else described(error)
        line = " ".join(text.split())
        reason = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
        trace = error.trace if isinstance(error, JobError) else "".join(traceback.format_exception(error))
        return Failure(job, reason, trace, by_user)


@dataclass(frozen=True)
class FailedJob:
    """A job that failed, for people.

    Args:
        job: its name.
        reason: its error, in one line.
        left_out: names of the jobs that need it.
    """

    job: str
    reason: str
    left_out: tuple[str, ...]


_FAILED_JOBS = TypeAdapter(list[FailedJob])


def described(error: Exception) -> str:
    """Name an error's type before its message."""
    return f"{type(error).__name__}: {error}"


def failed_jobs(failed: Mapping[str, Failure]) -> tuple[FailedJob, ...]:
    """List what went wrong, once for each cause.

    Args:
        failed: by name of the job that has no result.

    Returns:
        The causes, in the order in which they failed.
    """
    causes = {failure.job: failure for failure in failed.values()}
    return tuple(
        FailedJob(
            job, cause.reason, tuple(name for name, failure in failed.items() if failure.job == job and name != job)
        )
        for job, cause in causes.items()
    )


def traces_text(failed: Mapping[str, Failure]) -> str:
    """Write down where jobs failed, each place once.

    Args:
        failed: by name of the job that has no result.

    Returns:
        A block a traceback, with the jobs that it is of.
    """
    jobs: dict[str, dict[str, str]] = {}
    for failure in failed.values():
        jobs.setdefault(failure.trace, {})[failure.job] = failure.reason
    blocks = ("\n".join([*(f"{job}: {reason}" for job, reason in own.items()), trace]) for trace, own in jobs.items())
    return "\n".join(blocks)


def failed_json(failed: Sequence[FailedJob]) -> bytes:
    """Write failed jobs as a file that `read_failed` reads."""
    return (json.dumps([asdict(one) for one in failed], indent=2) + "\n").encode()


def read_failed(path: Path) -> list[FailedJob]:
    """Read which jobs failed.

    Args:
        path: of a file by `failed_json`; it is missing where none did.

    Returns:
        The failed jobs.

    Raises:
        InputError: the file is of another type.
    """
    try:
        return _FAILED_JOBS.validate_json(read_regular(path, limit=_MOST_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        raise InputError(f"{path} is no list of failed jobs") from error
