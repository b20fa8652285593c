"""What made a report."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime

from prefect.runtime import deployment

from fedfisher_core.failures import FailedJob
from fedfisher_core.jobs import Numerics
from fedfisher_core.registry import plugin_versions
from fedfisher_core.reporting.page import PageData
from fedfisher_core.settings import ExperimentSettings, RecipeSettings, WorkSettings
from fedfisher_core.store import libraries
from fedfisher_core.trunks.trunk import split_name, trunks
from flows.invocation import command_line


def command(flow: str) -> str:
    """Say how to make a report again.

    Args:
        flow: name of the flow that runs.

    Returns:
        The command line of this process, or the one that runs the flow's deployment.
    """
    if deployment.name:
        return f"prefect deployment run '{flow}/{deployment.name}'"
    return command_line()


def git_commit() -> str:
    """Look up the commit of the working directory, "unknown" where there is none."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def page_of(settings: ExperimentSettings, *, command: str, failed: Sequence[FailedJob]) -> PageData:
    """Gather what every report shows beside its results.

    Args:
        settings: the experiment.
        command: what was run.
        failed: the jobs that failed.

    Returns:
        The frame of the page.
    """
    return PageData(
        title=settings.report.title or settings.name,
        benchmark=settings.name,
        command=command,
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        versions=libraries() | plugin_versions() | _gpu(settings.run),
        weights=_weights(settings),
        settings=settings.shown(),
        settings_yaml=settings.to_yaml(),
        notes=settings.report.notes,
        failed=failed,
    )


def _weights(settings: ExperimentSettings) -> dict[str, str]:
    """Say which file the settings mean where they have a pre-trained network by its name, and its licence."""
    if not isinstance(settings, RecipeSettings):
        return {}
    used = [split_name(name)[0] for name in settings.model.name]
    if settings.model.pretrained is not None and settings.model.pretrained.weights is not None:
        used.append(trunks.get(settings.model.pretrained.weights))
    return {trunk.name: f"SHA-256 {trunk.sha256}; {trunk.licence}" for trunk in used if trunk is not None}


def _gpu(run: WorkSettings) -> dict[str, str]:
    """Name the GPU of this machine, where jobs computed on it."""
    if run.elsewhere or Numerics.of(run).device == "cpu":
        return {}
    # Whoever computed on a GPU has loaded it.
    import torch

    return {"GPU": torch.cuda.get_device_name()}
