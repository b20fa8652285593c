"""The tasks, one for each step of the pipeline and one for the report, and which of them computes which jobs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import Task

from fedfisher_core.engine.errors import OutputError, UnwritableError
from fedfisher_core.engine.job import Job
from fedfisher_core.reporting.rows import write_folder
from tasks.options import step


@step(run_name="{title}")
def compute_job(title: str, work: Callable[[], None]) -> None:
    """Compute jobs of an experiment that has no separate tasks, such as a measured theory."""
    work()


_STAGES = {
    "decode": ("decode_data", "Decode the examples of a data set."),
    "split": ("split_data", "Split the training examples over clients and server."),
    "extract": ("extract_features", "Compute the features of all examples by a frozen trunk."),
    "start": ("make_start", "Draw or read the weights that clients start from."),
    "train": ("train_client", "Train one client or several."),
    "statistics": (
        "compute_statistics",
        "Compute the statistics of a client: Fishers, moments and others that methods declare.",
    ),
    "encode": ("encode_uploads", "Encode what a client uploads, one payload for each format."),
    "personalise": ("personalise", "Let an unseen client train a global network on its own examples."),
    "aggregate": ("aggregate", "Aggregate the uploads of a federation by one method."),
    "evaluate": ("evaluate", "Measure a global network on the test examples."),
    "compare": ("compare", "Compare a global network with those of the clients."),
    "judge": ("train_evaluator", "Train the network that judges reconstructed images."),
    "prior": ("train_prior", "Train the attacker's GAN."),
    "attack": ("attack", "Reconstruct images of a client from what a method lets the server see."),
    "bound": ("measure_bounds", "Measure the floors and the ceiling of an attack."),
    "audit": ("audit", "Train a client with canaries, and guess which of them were included."),
}
"""What Prefect calls a task, and says of it, by the action of its jobs."""

_TASKS: Mapping[str, Task[..., None]] = {
    action: compute_job.with_options(name=name, description=description)
    for action, (name, description) in _STAGES.items()
}


def task_for(job: Job[Any]) -> Task[..., None]:
    """Choose the task that computes a job, by the job's action."""
    return _TASKS.get(job.action, compute_job)


@step(run_name="report")
def report(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write the folder of a report and the script that draws its charts; see `write_folder`."""
    # What draws takes a second to load.
    from fedfisher_core.reporting.chart_script import write_script

    try:
        write_script(folder.parent)
        return write_folder(folder, rows, files, content)
    except (OSError, UnwritableError) as error:
        raise OutputError(f"the report can't be written to {folder}: {error}; all results are kept") from error
