"""Results that others submit: what is checked of them, and the entry that they become."""

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.engine.files import read_regular
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.registry import plugin_versions
from fedfisher_core.engine.store import Store, libraries
from fedfisher_core.experiments.benchmark.plan import BenchmarkPlan, make_plan, make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.benchmark.summary import Setting
from fedfisher_core.experiments.leaderboard.entries import ENTRIES, read_benchmark
from fedfisher_core.federation.federation import Federation
from fedfisher_core.reporting.formats import percent, plural
from fedfisher_core.reporting.rows import RESULTS, read_rows, write_file
from fedfisher_core.settings import ExperimentSettings

ACCURACY, BITS = 0.005, 0.01
"""How far accuracy and, as a fraction, upload bits may be off where a row is computed again: machines round sums in
different ways."""

_MOST_BYTES = 2**28

_Cell = tuple[Setting, int, str]


def submit(folder: Path, settings: ExperimentSettings, *, entries: Path = ENTRIES) -> Path:
    """Check results, compute one row again that their digest draws, and write them as an entry; return its folder.

    Raises:
        InputError: the results are no benchmark's, rest on other data, versions or code than those of here, lack rows
            or do not repeat, or there is such an entry. Nothing is written then.
    """
    read_benchmark(folder)
    if not isinstance(settings, BenchmarkSettings):
        raise InputError(f"settings {settings.name!r} have experiment={settings.experiment!r}; allowed: benchmark")
    entry = entries / settings.name
    if entry.exists():
        raise InputError(f"{entry} is there; allowed: settings of another name")
    rows, data = read_rows(folder / RESULTS, Row), read_regular(folder / RESULTS, limit=_MOST_BYTES)
    plan = make_plan(settings)
    cells = {_cell(row): row for row in rows}
    _require_same_work(cells, plan, folder / RESULTS)
    drawn = rows[int(hashlib.sha256(data).hexdigest(), 16) % len(rows)]
    again = _compute(plan, drawn)
    _require_repeated(drawn, again, folder / RESULTS)
    said = {
        "results_sha256": hashlib.sha256(data).hexdigest(),
        "computed_again": {
            "row": rows.index(drawn) + 1,
            "method": drawn.method,
            "setting": Setting.of(drawn).label,
            "seed": drawn.seed,
            "accuracy": [drawn.accuracy, again.accuracy],
            "upload_bits": [drawn.upload_bits, again.upload_bits],
        },
        "libraries": libraries(),
        "packages": plugin_versions(),
    }
    write_file(entry / "settings.yaml", settings.to_yaml().encode())
    write_file(entry / "entry.json", (json.dumps(said, indent=2) + "\n").encode())
    # A leaderboard reads the folder once its results are there.
    write_file(entry / RESULTS, data)
    return entry


def _cell(row: Row) -> _Cell:
    return Setting.of(row), row.seed, row.method


def _require_same_work(cells: dict[_Cell, Row], plan: BenchmarkPlan, path: Path) -> None:
    """Check that the rows are those of the plan, with the digests of the data, versions and code of here."""
    federations, names = plan.federations, plan.settings.name
    keys = {
        (Setting.of_seeded(one.setting, plan.settings), one.setting.seed, label): federations.aggregation(
            one, label
        ).key
        for one in federations.all
        for label in federations.methods_of(one)
    }
    for cell, row in cells.items():
        if cell not in keys:
            raise InputError(f"{path}: {_named(row)} is none of the settings {names!r}; allowed: their rows alone")
        if row.artifact != keys[cell]:
            raise InputError(
                f"{path}: {_named(row)} has artifact={row.artifact!r}, which rests on other settings, data, versions "
                f"or code than those of here, {keys[cell]!r}; allowed: results of a run by them"
            )
    if missing := keys.keys() - cells.keys():
        label = min(label for *_, label in missing)
        raise InputError(f"{path} lacks {plural(len(missing), 'row')}, such as one of {label!r}; allowed: all rows")


def _compute(plan: BenchmarkPlan, row: Row) -> Row:
    """Compute a row again, from the data on, in an empty store."""
    federations = plan.federations
    federation = next(one for one in federations.all if _is_of(one, row, plan))
    tests = [federations.testing(federation, row.method, round_) for round_ in federations.rounds_of(row.method)]
    torch.set_num_threads(plan.settings.run.torch_threads)
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "artifacts")
        store.prepare()
        (again,) = make_rows(plan, execute(tests, store))
    return again


def _is_of(federation: Federation, row: Row, plan: BenchmarkPlan) -> bool:
    setting = federation.setting
    return setting.seed == row.seed and Setting.of_seeded(setting, plan.settings) == Setting.of(row)


def _require_repeated(row: Row, again: Row, path: Path) -> None:
    pairs = (
        ("accuracy", abs(again.accuracy - row.accuracy) <= ACCURACY, f"{percent(ACCURACY)} points off"),
        ("upload_bits", abs(again.upload_bits - row.upload_bits) <= BITS * row.upload_bits, f"{percent(BITS)} % off"),
    )
    for field, repeats, allowed in pairs:
        if not repeats:
            raise InputError(
                f"{path}: {_named(row)} does not repeat: {field}={getattr(row, field)}, computed again "
                f"{getattr(again, field)}; allowed: up to {allowed}"
            )


def _named(row: Row) -> str:
    return f"the row of {shown(row.method)}, seed {row.seed}, in {Setting.of(row).label}"
