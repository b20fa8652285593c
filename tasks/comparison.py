"""Where MLflow's page compares the methods of a benchmark."""

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fedfisher_core.reporting.runs import SUMMARY

if TYPE_CHECKING:
    from mlflow import MlflowClient

_METHODS = "tags.reference = 'false'"
_BEST_FIRST = {"orderByKey": "metrics.`accuracy`", "orderByAsc": "false"}


def place_of(client: "MlflowClient", name: str) -> str:
    """Find the page of an experiment's comparison: methods without references, the most accurate first.

    Args:
        client: of what MLflow keeps runs in.
        name: of the experiment; its means over repetitions are shown where there are any.

    Returns:
        What follows the server's address; nothing where no run of the experiment is recorded.
    """
    found = client.get_experiment_by_name(f"{name}{SUMMARY}") or client.get_experiment_by_name(name)
    if found is None:
        return ""
    # Runs of other experiments than benchmarks are of no methods, and the page shows them all.
    methods = client.search_runs([found.experiment_id], filter_string=_METHODS, max_results=1)
    chosen = {"searchFilter": _METHODS, **_BEST_FIRST} if methods else {}
    # Otherwise the page takes the experiment for one about language models.
    asked = urlencode({**chosen, "workflowType": "machine_learning"})
    return f"#/experiments/{found.experiment_id}/runs?{asked}"
