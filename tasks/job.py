"""The task that runs any job."""

from collections.abc import Callable

from fedfisher_core.jobs import Numerics
from fedfisher_core.store import Artifact
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
    """
    with computing(numerics):
        return work()
