"""The settings of a deployment's run: those that its parameters hold, or those of a file that they name."""

from pathlib import Path
from typing import Any, TypeVar

from prefect.runtime import flow_run

from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.experiments.loading import load
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.settings.reading import nearest

S = TypeVar("S", bound=ExperimentSettings)

CONFIGS = Path("configs")


def chosen(settings: S, config: str | None, *, default: S) -> S:
    """Return the settings, or those of the file that is named.

    Args:
        settings: of the parameters.
        config: a file's name in `configs`, without its ending.
        default: what settings are where none are given.

    Raises:
        InputError: there is no such file, it is of another experiment, or both settings and a file are given.
    """
    if config is None:
        return settings
    files = {path.stem: path for path in sorted(CONFIGS.glob("*.yaml")) if path.stem != "dvc"}
    if config not in files:
        raise InputError(f"config={shown(config)}: no file in {CONFIGS}/ has this name; {nearest(config, list(files))}")
    if settings != default:
        raise InputError(f"config={shown(config)} with settings; allowed: one of them")
    found = load(files[config])
    if not isinstance(found, type(settings)):
        kind, own = found.experiment, settings.experiment
        raise InputError(f"config={shown(config)} is of the experiment {kind!r}; allowed: files of {own!r}")
    return found


def run_name() -> str:
    """Name a run after its settings, or after the file that it takes them from."""
    given: dict[str, Any] = flow_run.parameters
    return given.get("config") or given["settings"].name
