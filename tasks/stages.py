"""The tasks, one for each step of the pipeline and one for the report, and which of them computes which jobs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import Task

from fedfisher_core.engine.errors import OutputError
from fedfisher_core.engine.job import Job
from fedfisher_core.reporting.rows import write_folder
from tasks.options import step


@step(run_name="{title}")
def decode_data(title: str, work: Callable[[], None]) -> None:
    """Decode the examples of a data set."""
    work()


@step(run_name="{title}")
def split_data(title: str, work: Callable[[], None]) -> None:
    """Split the training examples over clients and server."""
    work()


@step(run_name="{title}")
def extract_features(title: str, work: Callable[[], None]) -> None:
    """Compute the features of all examples by a frozen trunk."""
    work()


@step(run_name="{title}")
def make_start(title: str, work: Callable[[], None]) -> None:
    """Draw or read the weights that clients start from."""
    work()


@step(run_name="{title}")
def train_client(title: str, work: Callable[[], None]) -> None:
    """Train one client or several."""
    work()


@step(run_name="{title}")
def compute_statistics(title: str, work: Callable[[], None]) -> None:
    """Compute the statistics of a client: Fishers, moments and others that methods declare."""
    work()


@step(run_name="{title}")
def encode_uploads(title: str, work: Callable[[], None]) -> None:
    """Encode what a client uploads, one payload for each format."""
    work()


@step(run_name="{title}")
def personalise(title: str, work: Callable[[], None]) -> None:
    """Let an unseen client train a global network on its own examples."""
    work()


@step(run_name="{title}")
def aggregate(title: str, work: Callable[[], None]) -> None:
    """Aggregate the uploads of a federation by one method."""
    work()


@step(run_name="{title}")
def evaluate(title: str, work: Callable[[], None]) -> None:
    """Measure a global network on the test examples."""
    work()


@step(run_name="{title}")
def compare(title: str, work: Callable[[], None]) -> None:
    """Compare a global network with those of the clients."""
    work()


@step(run_name="{title}")
def train_evaluator(title: str, work: Callable[[], None]) -> None:
    """Train the network that judges reconstructed images."""
    work()


@step(run_name="{title}")
def train_prior(title: str, work: Callable[[], None]) -> None:
    """Train the attacker's GAN."""
    work()


@step(run_name="{title}")
def attack(title: str, work: Callable[[], None]) -> None:
    """Reconstruct images of a client from what a method lets the server see."""
    work()


@step(run_name="{title}")
def measure_bounds(title: str, work: Callable[[], None]) -> None:
    """Measure the floors and the ceiling of an attack."""
    work()


@step(run_name="{title}")
def audit(title: str, work: Callable[[], None]) -> None:
    """Train a client with canaries, and guess which of them were included."""
    work()


@step(run_name="{title}")
def compute_job(title: str, work: Callable[[], None]) -> None:
    """Compute jobs of an experiment that has no separate tasks, such as a measured theory."""
    work()


_TASKS: Mapping[str, Task[..., None]] = {
    "decode": decode_data,
    "split": split_data,
    "extract": extract_features,
    "start": make_start,
    "train": train_client,
    "statistics": compute_statistics,
    "encode": encode_uploads,
    "personalise": personalise,
    "aggregate": aggregate,
    "evaluate": evaluate,
    "compare": compare,
    "judge": train_evaluator,
    "prior": train_prior,
    "attack": attack,
    "bound": measure_bounds,
    "audit": audit,
}


def task_for(job: Job[Any]) -> Task[..., None]:
    """Choose the task that computes a job, by the job's action."""
    return _TASKS.get(job.action, compute_job)


@step(run_name="report")
def report(folder: Path, rows: Sequence[Any], files: Mapping[str, bytes], content: str) -> Path:
    """Write the folder of a report and the script that draws its charts; see `write_folder`."""
    # What draws takes a second to load.
    from fedfisher_core.reporting.charts import write_script

    try:
        write_script(folder.parent)
        return write_folder(folder, rows, files, content)
    except OSError as error:
        raise OutputError(f"the report can't be written to {folder}: {error}; all results are kept") from error
