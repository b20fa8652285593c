"""Runs tiny experiments, and hands out what their jobs made; nothing else here knows how jobs are computed."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import fedfisher_core
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.store import Artifact, names_of, open_store, read_bytes, read_document, read_tensors
from fedfisher_core.experiments.contract import experiment_of, load
from tests.golden.numbers import Numbers, file_of, leaves, summaries


@dataclass(frozen=True)
class Made:
    """What a job made.

    Args:
        kind: name of the job's class.
        file: the module that defines it.
        numbers: of its result, seconds left out.
    """

    kind: str
    file: str
    numbers: Numbers


def kinds() -> dict[str, str]:
    """List all classes of jobs that can be computed, and the modules that define them."""
    for module in pkgutil.walk_packages(fedfisher_core.__path__, "fedfisher_core."):
        importlib.import_module(module.name)
    return {one.__name__: file_of(one) for one in _subclasses(Job)}


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("fedfisher_core.") and not inspect.isabstract(one):
            yield one
        yield from _subclasses(one)


def results(content: Mapping[str, Any], folder: Path) -> dict[str, Made]:
    """Compute all jobs of an experiment.

    Args:
        content: its settings, as a file has them.
        folder: gets the file and the store; made.

    Returns:
        By the job's label, which says all that tells it apart from the other jobs of the experiment.
    """
    folder.mkdir(parents=True)
    config = folder / "config.yaml"
    run = {"store": str(folder / "artifacts"), "reports": str(folder / "results")}
    config.write_text(yaml.safe_dump({**content, "run": run}))
    settings = load(config)
    jobs, store = experiment_of(settings).plan(settings).jobs, open_store(settings.run.store)
    graph = graph_of(jobs)
    execute(jobs, store)
    made: dict[str, Made] = {}
    for job in graph.values():
        artifact = store.find(job.recipe)
        assert artifact is not None, job.name
        label = _label(job)
        assert label not in made, f"two jobs of one experiment are called {label!r}"
        made[label] = Made(type(job).__name__, file_of(type(job)), _numbers(artifact))
    return made


def _label(job: Job[Any]) -> str:
    """Call a job by its kind and what it is about, but not by the words of its name."""
    cell, configured = getattr(getattr(job, "federation", None), "setting", None), getattr(job, "configured", None)
    family = [job, *job.needed]
    methods = [one.configured.method.name for one in family if hasattr(getattr(one, "configured", None), "method")]
    about = {
        "objective": getattr(cell, "objective", None),
        "client": getattr(job, "client", None),
        # What measures or sends is of the round of what it needs.
        "round": max(getattr(one, "round_number", 1) for one in family),
        "statistic": configured.statistic.name if hasattr(configured, "statistic") else None,
        "uploads": "+".join(one.statistic.name for one in getattr(job, "uploads", ())),
        "method": methods[0] if methods else None,
        "target": getattr(job, "target", None),
        "overlap": getattr(job, "overlap", None),
        "seed": getattr(job, "seed", None),
    }
    told = (f"{name}={value}" for name, value in about.items() if value not in (None, "", "plain"))
    return " ".join([type(job).__name__, *told])


def _numbers(artifact: Artifact) -> Numbers:
    numbers: Numbers = {}
    for name in names_of(artifact):
        if name.endswith(".safetensors"):
            numbers |= summaries(read_tensors(artifact, name), f"{name.removesuffix('.safetensors')}/")
        elif name.endswith(".json"):
            numbers |= dict(leaves(read_document(artifact, name), name.removesuffix(".json")))
        else:
            # The bytes of a payload are frozen in tests/wire, where no rounding moves them.
            numbers[f"{name}: bytes"] = len(read_bytes(artifact, name))
    return numbers
