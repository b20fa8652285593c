"""The task that runs any job."""

import traceback
from collections.abc import Callable

from fedfisher_core.errors import DivergedClientError, InputError, JobError
from fedfisher_core.failures import described
from fedfisher_core.jobs import Numerics
from fedfisher_core.store import Artifact
from tasks.memory import give_back
from tasks.options import computing, step


@step(run_name="{title}")
def run_job(title: str, work: Callable[[], list[Artifact]], numerics: Numerics) -> list[Artifact]:
    """Compute and store what a batch of jobs makes.

    Args:
        title: what the UI calls it.
        work: the computation; a callable, which Prefect does not look into as it would into data classes.
        numerics: where it computes.

    Returns:
        One artifact a job.

    Raises:
        JobError: the computation failed in a way that no setting and no data explains.
    """
    with computing(numerics):
        try:
            return work()
        except (InputError, DivergedClientError):
            raise
        except Exception as error:
            raise JobError(described(error), traceback.format_exc()) from error
        finally:
            give_back()
