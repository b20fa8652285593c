"""What made a report: command, commit, versions and settings."""

import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from prefect.runtime import deployment, flow_run

from fedfisher_core.engine.failures import FailedJob
from fedfisher_core.engine.job import Numerics
from fedfisher_core.engine.registry import plugin_versions
from fedfisher_core.engine.store import libraries
from fedfisher_core.models.trunks.trunk import split_name, trunks
from fedfisher_core.reporting.page import PageData
from fedfisher_core.settings import ExperimentSettings, RecipeSettings, WorkSettings
from flows.terminal import command_line


def command(flow: str) -> str:
    """Return the command that makes a report again: this process's, or the one that runs the flow's deployment."""
    if deployment.name:
        given = flow_run.parameters
        chosen = given.get("config") and f"config={given['config']}"
        if not chosen and (own := given["settings"].model_dump_json(exclude_unset=True)) != "{}":
            chosen = f"settings={own}"
        run = f"prefect deployment run '{flow}/{deployment.name}'"
        return f"{run} --param {shlex.quote(chosen)}" if chosen else run
    return command_line()


def git_commit() -> str:
    """Return the commit of the working directory, "unknown" where there is none."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def made_with(found: Iterable[Mapping[str, str]], *, anew: bool) -> dict[str, str]:
    """Return the versions of the libraries that computed results, as far as a run has seen.

    Args:
        found: those of the artifacts that the run has found. It does not ask for what these were made of.
        anew: whether it has computed others.
    """
    known = [*found, *([libraries()] if anew else [])]
    names = dict.fromkeys(name for one in known for name in one)
    return {name: " and ".join(sorted({one[name] for one in known if name in one})) for name in names}


def page_of(
    settings: ExperimentSettings,
    *,
    command: str,
    libraries: Mapping[str, str],
    failed: Sequence[FailedJob],
    shown: Mapping[str, Any],
) -> PageData:
    """Gather what a report shows in addition to its results.

    Args:
        libraries: the versions of those that computed the results.
    """
    return PageData(
        title=settings.report.title or settings.name,
        benchmark=settings.name,
        command=command,
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        versions=dict(libraries) | plugin_versions() | _gpu(settings.run),
        weights=_weights(settings),
        settings=settings.shown(),
        settings_yaml=settings.to_yaml(),
        notes=settings.report.notes,
        failed=failed,
        shown=shown,
    )


def _weights(settings: ExperimentSettings) -> dict[str, str]:
    """Return digest and licence of each pre-trained network that the settings name."""
    if not isinstance(settings, RecipeSettings):
        return {}
    used = [split_name(name)[0] for name in settings.model.name]
    if settings.model.pretrained is not None and settings.model.pretrained.weights is not None:
        used.append(trunks.get(settings.model.pretrained.weights))
    return {trunk.name: f"SHA-256 {trunk.sha256}; {trunk.licence}" for trunk in used if trunk is not None}


def _gpu(run: WorkSettings) -> dict[str, str]:
    """Name the GPU of this machine, if jobs computed on it."""
    if run.elsewhere or Numerics.of(run).device == "cpu":
        return {}
    # A run that computed on a GPU has loaded torch already.
    import torch

    return {"GPU": torch.cuda.get_device_name()}
