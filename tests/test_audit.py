"""Published numbers next to the committed reports, and the rules by which one of our rows is chosen for each."""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.audit import OUTPUT, REASONS, REPORTS, STAND_INS, Reason, main, read_all, without_reason
from benchmarks.published_cells import Cell, Ours, StandIn, Standing, make_cells, tables_of
from fedfisher_core.experiments.benchmark.published import COLUMNS, Metric, PublishedResult
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import by_setting
from fedfisher_core.experiments.leaderboard.entries import BenchmarkReport
from tests.experiments.benchmark.samples import make_row

ROOT = Path(__file__).parents[1]
TABLE = ("a paper", "Table 1")


def published(
    method: str = "otfusion", mean: float = 0.5, deviation: float | None = 0.1, **changes: object
) -> PublishedResult:
    values: dict[str, object] = {"source": TABLE[0], "table": TABLE[1], "dataset": "mnist", "model": "mlp"}
    values |= {"partition": "dirichlet", "num_clients": 5, "alpha": 0.1}
    return PublishedResult(method=method, mean=mean, deviation=deviation, **(values | changes))  # type: ignore[arg-type]


def report(name: str, *rows: Row) -> BenchmarkReport:
    return BenchmarkReport(name, Path(name), by_setting(rows))


def seeds(method: str, count: int, **changes: object) -> list[Row]:
    return [make_row(method, seed=seed, **changes) for seed in range(count)]


def ours(
    cell: PublishedResult, reports: Sequence[BenchmarkReport], stand_ins: Sequence[StandIn] = ()
) -> tuple[str, str] | None:
    """The report and the label of the row that is next to a published number."""
    (found,) = make_cells([cell], reports, {one.name: [TABLE] for one in reports}, stand_ins)
    return (found.ours[0].report, found.ours[0].rows[0].method) if found.ours else None


def test_every_published_number_has_one_of_ours_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    audit = read_all()
    assert without_reason(audit.cells, audit.reasons) == []
    assert without_reason(audit.cells, []) != []
    assert (ROOT / REPORTS / OUTPUT).read_text() == audit.text(), "run python -m benchmarks.audit"


@pytest.mark.parametrize(
    "change",
    [{"alpha": 0.2}, {"num_clients": 6}, {"model": "cnn"}, {"dataset": "svhn"}, {"partition": "paper"}, {"table": "T"}],
)
def test_only_the_same_federation_of_a_named_table_is_compared(change: dict[str, object]) -> None:
    reports = [report("a", make_row("otfusion"))]
    assert ours(published(), reports) == ("a", "otfusion")
    assert ours(published(**change), reports) is None
    assert ours(published("dense"), reports) is None


def test_one_of_several_reports_is_chosen_by_the_stated_rule() -> None:
    few = report("b", *seeds("otfusion", 2))
    assert ours(published(), [few, report("c", *seeds("otfusion", 3))]) == ("c", "otfusion")
    as_published = report("d", *seeds("otfusion", 1, track="as_published"))
    assert ours(published(), [few, as_published]) == ("d", "otfusion")
    assert ours(published(), [few, report("a", *seeds("otfusion", 2))]) == ("a", "otfusion")
    other = published("dense")
    wide = report("z", *seeds("otfusion", 2), *seeds("dense", 2))
    cells = make_cells([published(), other], [few, wide], {"b": [TABLE], "z": [TABLE]}, [])
    assert [one.ours[0].report for one in cells] == ["z", "z"]


def test_a_row_stands_for_a_method_where_a_report_has_it() -> None:
    stand_ins = [StandIn("a paper", "otfusion", "otfusion, plain", "The paper says otherwise.")]
    both = report("a", make_row("otfusion"), make_row("otfusion, plain"))
    assert ours(published(), [both], stand_ins) == ("a", "otfusion, plain")
    assert ours(published(), [report("a", make_row("otfusion"))], stand_ins) == ("a", "otfusion")
    assert ours(published(source="another paper"), [both], stand_ins) is None


@pytest.mark.parametrize(
    ("accuracies", "mean", "deviation", "standing"),
    [
        ([0.5, 0.6], 0.56, 0.01, Standing.WITHIN_ONE),
        ([0.5, 0.6], 0.565, 0.01, Standing.WITHIN_TWO),
        ([0.5, 0.6], 0.575, 0.01, Standing.BEYOND),
        ([0.5, 0.6], 0.6, None, Standing.WITHIN_ONE),
        ([0.5, 0.5], 0.6, None, Standing.BEYOND),
        ([0.5], 0.5, 0.01, Standing.ONE_SEED),
        ([], 0.5, 0.01, Standing.NOT_RUN),
    ],
)
def test_where_a_number_stands_follows_from_the_papers_deviation_or_else_from_ours(
    accuracies: list[float], mean: float, deviation: float | None, standing: Standing
) -> None:
    rows = [make_row(seed=seed, accuracy=accuracy) for seed, accuracy in enumerate(accuracies)]
    cell = Cell(published(mean=mean, deviation=deviation), [Ours("a", rows)] if rows else [])
    assert cell.standing is standing


def test_seconds_are_those_of_the_rows_that_are_next_to_accuracies() -> None:
    rows = [make_row("otfusion", alpha=alpha, server_seconds=seconds) for alpha, seconds in ((0.1, 1.0), (0.5, 2.0))]
    seconds = published(mean=0.5, deviation=None, alpha=None, metric=Metric.SERVER_SECONDS)
    cells = make_cells(
        [published(), published(alpha=0.5), seconds], [report("a", *rows, make_row("dense"))], {"a": [TABLE]}, []
    )
    assert cells[2].measure is not None
    assert cells[2].measure.mean == 1.5
    assert cells[2].standing is Standing.SECONDS


def test_the_tables_of_a_report_are_those_that_its_settings_name(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("report: {published: 'P, Table 4 (one start, two)'}")
    (tmp_path / "two.yaml").write_text("report: {published: ['P, T 1', 'Q, T 2']}")
    (tmp_path / "none.yaml").write_text("name: none")
    assert tables_of("one", tmp_path) == [("P", "Table 4 (one start, two)")]
    assert tables_of("two", tmp_path) == [("P", "T 1"), ("Q", "T 2")]
    assert tables_of("none", tmp_path) == tables_of("absent", tmp_path) == []


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reports of a project with one published number, and one report without it."""
    monkeypatch.chdir(tmp_path)
    reports = tmp_path / REPORTS
    (reports / "a").mkdir(parents=True)
    (reports / "a/results.json").write_text(json.dumps([asdict(make_row())]))
    (reports / "published_results.csv").write_text(
        ",".join(COLUMNS) + "\nP,Table 1,SVHN,mlp,paper,5,0.10,dense,accuracy,50,,,\n"
    )
    for name, columns in ((REASONS, list(Reason.__annotations__)), (STAND_INS, list(StandIn.__annotations__))):
        (reports / name).write_text(",".join(columns) + "\n")
    return reports


def test_a_number_without_a_reason_ends_with_exit_code_1(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 1
    assert "1  WITHOUT A REASON" in capsys.readouterr().out
    with (small / REASONS).open("a") as file:
        csv.writer(file).writerow(["P", "Table [12]", "svhn", *"*" * 2, "0.1", *"*" * 2, "No files.", "the files"])
    assert main() == 0
    assert "1  (1) No files." in capsys.readouterr().out
    assert "not run, reason 1" in (small / OUTPUT).read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source,table\n", r"not_run\.csv has the columns \['source', 'table'\]; expected"),
        (",".join(Reason.__annotations__) + "\nP,*,*,*,*,*,*,*,,the files\n", "line 2: reason is empty"),
        (None, "no file reports/not_run.csv"),
    ],
)
def test_a_broken_file_is_named_and_nothing_written(
    small: Path, capsys: pytest.CaptureFixture[str], text: str | None, message: str
) -> None:
    (small / REASONS).unlink()
    if text is not None:
        (small / REASONS).write_text(text)
    assert main() == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (small / OUTPUT).exists()


def test_documents_have_the_counts_of_the_audit() -> None:
    first = (ROOT / "reports/audit.txt").read_text().partition("FedFisher workshop")[0]
    counts = [int(line.split()[0]) for line in first.splitlines()[2:] if line.strip()]
    one, two, beyond, *_, left = counts
    limits, coverage = (" ".join((ROOT / "docs" / name).read_text().split()) for name in ("limits.md", "coverage.md"))
    said = (
        f"{one + two + beyond} can be compared with ours: {one} are within one deviation, {two} within two and {beyond}"
    )
    assert said in limits
    assert f"{one} are within one deviation, {two} within two and {beyond} beyond two." in coverage
    assert f"and {left} were not run." in coverage
