"""Which task computes which jobs."""

from collections.abc import Callable, Mapping
from typing import Any

from prefect import Task

from fedfisher_core.engine.job import Job
from tasks import attack, audit, clients, data, servers
from tasks.options import step


@step(run_name="{title}")
def compute_job(title: str, work: Callable[[], None]) -> None:
    """Compute jobs of an experiment that has no separate tasks, such as a measured theory."""
    work()


_TASKS: Mapping[str, Task[..., None]] = {
    "decode": data.decode_data,
    "split": data.split_data,
    "extract": data.extract_features,
    "start": data.make_start,
    "train": clients.train_client,
    "statistics": clients.compute_statistics,
    "encode": clients.encode_uploads,
    "personalise": clients.personalise,
    "aggregate": servers.aggregate,
    "evaluate": servers.evaluate,
    "compare": servers.compare,
    "judge": attack.train_evaluator,
    "prior": attack.train_prior,
    "attack": attack.attack,
    "bound": attack.measure_bounds,
    "audit": audit.audit,
}


def task_for(job: Job[Any]) -> Task[..., None]:
    """Choose the task that computes a job, by the job's action."""
    return _TASKS.get(job.action, compute_job)
