"""What a benchmark will do, checked before any work starts."""

import http.client
import os
import sqlite3
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.configuration import PARAMS, load_settings, validate
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.estimators import Loss
from fedfisher_core.fisher.single_pass import FisherPass
from fedfisher_core.methods.binding import BoundMethod, bind
from fedfisher_core.models.spec import ModelSpec, models
from fedfisher_core.settings import Cell, Experiment, FisherSettings, Scope, Settings, TrackingSettings
from fedfisher_core.steps.clients import POOLED, group_by_pass
from fedfisher_core.steps.context import Context, WorkContext
from fedfisher_core.steps.privacy import require_privacy
from fedfisher_core.steps.theory import TwoLayerContext
from fedfisher_core.theory.settings import TwoLayerBenchmark

_PATIENCE_SECONDS = 5


@dataclass(frozen=True)
class Plan:
    """The work of a benchmark.

    Args:
        context: its settings and what follows from them.
        cells: every combination of data set, model, scheme, alpha, number of clients and seed that a method runs in.
        methods: the methods by label.
        scopes: by label, where the method runs.
    """

    context: Context
    cells: tuple[Cell, ...]
    methods: Mapping[str, BoundMethod]
    scopes: Mapping[str, Scope]

    def methods_of(self, cell: Cell) -> dict[str, BoundMethod]:
        """List the methods that run in a cell."""
        return {label: bound for label, bound in self.methods.items() if self.scopes[label].admits(cell)}

    def clients(self, cell: Cell) -> tuple[int, ...]:
        """List the clients of a cell that must be trained, the pooled one included where a method wants it."""
        chosen = self.methods_of(cell).values()
        ordinary = any(not bound.method.pooled for bound in chosen)
        pooled = any(bound.method.pooled for bound in chosen)
        return ((POOLED,) if pooled else ()) + (tuple(range(cell.clients)) if ordinary else ())

    def kinds(self, cell: Cell, client: int) -> tuple[type[Statistic], ...]:
        """List the statistics that a client must compute: the union of what its methods declare."""
        chosen = self.methods_of(cell).values()
        wanted = [bound.method for bound in chosen if bound.method.pooled == (client == POOLED)]
        return tuple(dict.fromkeys(kind for method in wanted for kind in method.uploads))


def make_plan(settings: Settings) -> Plan:
    """Check everything that can be checked without work.

    Args:
        settings: the benchmark.

    Returns:
        Its plan.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    context = Context(settings)
    for dataset in settings.data.dataset:
        find_source(dataset)
        _require_label(settings, dataset)
    for model in settings.model.name:
        models.get(model)
    scopes = {label: _scope(label, chosen, settings) for label, chosen in settings.methods.items()}
    methods = {}
    for label, chosen in settings.methods.items():
        own = {key: value for key, value in chosen.items() if key != "only"}
        specs = [context.model(cell) for cell in settings.cells() if scopes[label].admits(cell)]
        methods[label] = bind(label, own, dict.fromkeys(specs), settings.wire)
        require_privacy(context, label, methods[label].method.uploads)
    cells = tuple(cell for cell in settings.cells() if any(scope.admits(cell) for scope in scopes.values()))
    plan = Plan(context=context, cells=cells, methods=methods, scopes=scopes)
    _require_fishers(plan)
    smallest = min(settings.partition.clients)
    if settings.run.min_clients is not None and settings.run.min_clients > smallest:
        raise InputError(f"run.min_clients={settings.run.min_clients} exceeds partition.clients={smallest}")
    if settings.report.published is not None:
        parse_published(settings.report.published)
    _ = context.device
    require_places(context, settings.tracking)
    return plan


def _require_label(settings: Settings, dataset: str) -> None:
    """Check that the data has the label that a whole client is made of."""
    label, classes = settings.partition.target_label, datasets.get(dataset).classes
    if label is not None and label >= classes:
        raise InputError(f"partition.target_label={label}: {dataset} has no such label; allowed: 0 to {classes - 1}")


def _scope(label: str, chosen: Mapping[str, Any], settings: Settings) -> Scope:
    """Read where a method runs, and check that this is somewhere."""
    given = chosen.get("only", {})
    if not isinstance(given, Mapping):
        raise InputError(f"methods.{label}.only={given!r}: must be a mapping, such as {{seed: [0]}}")
    scope = validate(Scope, given, under=f"methods.{label}.only")
    for key, points in settings.points().items():
        for value in getattr(scope, key) or ():
            if value not in points:
                raise InputError(
                    f"methods.{label}.only.{key}={value!r} is no point of the benchmark; "
                    f"allowed: {', '.join(map(str, points))}"
                )
    if not any(scope.admits(cell) for cell in settings.cells()):
        raise InputError(f"methods.{label}.only={dict(given)} leaves no point of the benchmark; allowed: at least one")
    return scope


def check_two_layer(settings: TwoLayerBenchmark) -> TwoLayerContext:
    """Check everything that can be checked without work.

    Args:
        settings: the experiment.

    Returns:
        The settings and what follows from them.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    require_own_name(settings)
    context = TwoLayerContext(settings)
    require_places(context, settings.tracking)
    return context


def require_own_name(settings: Experiment) -> None:
    """Check that an experiment does not bear the name of the default benchmark.

    Args:
        settings: the experiment.

    Raises:
        InputError: it does.
    """
    if PARAMS.is_file() and settings.name == load_settings(PARAMS).name:
        raise InputError(
            f"name={settings.name!r} is that of {PARAMS}, whose report this would replace; allowed: others"
        )


def require_places(context: WorkContext, tracking: TrackingSettings) -> None:
    """Check that what a run writes to is there.

    Args:
        context: the experiment.
        tracking: where runs are recorded.

    Raises:
        InputError: names the setting, its value and what is wrong.
    """
    context.store.prepare()
    _require_writable(context.run.reports, "run.reports")
    _require_mlflow(tracking.mlflow)
    _require_prefect(tracking.prefect_api or os.environ.get("PREFECT_API_URL"))


def _require_fishers(plan: Plan) -> None:
    """Check that the Fishers that methods need exist in the backend, and that one image fits their memory."""
    fisher = plan.context.settings.fisher
    if fisher.backend == "nngeometry":
        for label, bound in plan.methods.items():
            if any(kind.approximation is Approximation.DENSE for kind in bound.method.uploads):
                raise InputError(
                    f"fisher.backend='nngeometry' has no full Fisher, which method {label!r} needs; allowed: native"
                )
        return
    passes = {
        (plan.context.model(cell), group)
        for cell in plan.cells
        for client in plan.clients(cell)
        for group in group_by_pass(plan.context, tuple(k for k in plan.kinds(cell, client) if k.approximation))
    }
    for spec, group in passes:
        _require_memory(spec, group, fisher)


def _require_memory(spec: ModelSpec, group: Sequence[type[Statistic]], fisher: FisherSettings) -> None:
    """Check that one image fits the memory of a pass."""
    network = spec.load(spec.initialise(torch.Generator().manual_seed(0))).eval()
    try:
        FisherPass(
            network,
            torch.zeros(1, spec.channels, spec.size, spec.size),
            approximations={kind.approximation for kind in group if kind.approximation is not None},
            loss=Loss.CLASSIFICATION,
            estimator=estimator_of(fisher),
            memory_limit=fisher.memory_mib * 2**20,
        )
    except InputError as error:
        names = " and ".join(kind.name for kind in group)
        raise InputError(f"fisher.memory_mib={fisher.memory_mib}, {names} of model {spec.name!r}: {error}") from error


def parse_published(text: str) -> tuple[str, str]:
    """Split the setting report.published.

    Args:
        text: 'SOURCE, TABLE'.

    Returns:
        The source and the table.

    Raises:
        InputError: there is no comma.
    """
    source, comma, table = text.partition(",")
    if not comma:
        raise InputError(f"report.published={text!r} must have the form 'SOURCE, TABLE'")
    return source.strip(), table.strip()


def _require_writable(folder: Path, setting: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{setting}={str(folder)!r} can't be written: {error.strerror}") from error


def _require_mlflow(uri: str) -> None:
    if uri.startswith("http"):
        _require_server(f"{uri.rstrip('/')}/health", f"tracking.mlflow={uri!r}")
        return
    # As SQLAlchemy reads it: a query may follow, and nothing is percent-encoded.
    path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
    try:
        with closing(sqlite3.connect(path)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
    except sqlite3.Error as error:
        raise InputError(f"tracking.mlflow={uri!r} can't be opened: {error}") from error


def _require_prefect(api: str | None) -> None:
    if api is not None:
        _require_server(
            f"{api.rstrip('/')}/health", f"Prefect server {api!r} (tracking.prefect_api or PREFECT_API_URL)"
        )


def _require_server(address: str, name: str) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE_SECONDS):
            pass
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{name} can't be reached: {getattr(error, 'reason', error)}") from error
