"""What a run is expected to send and to take, compared with what it then measured."""

from pathlib import Path

from fedfisher_core.experiments.benchmark.plan import explain
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import recorded_seconds
from fedfisher_core.reporting.rows import write_rows
from tests.experiments.benchmark.samples import make_row
from tests.flows.test_work import do, prepared


def expected(folder: Path, *, earlier: Path | None = None, **changes: object) -> dict[str, str]:
    work = prepared(folder, **changes)
    _, table = explain(work.settings, work.agenda, work.store, earlier=earlier)
    return dict(table.lines)  # type: ignore[arg-type]


def test_uploads_are_known_before_they_are_sent(workplace: Path) -> None:
    before = expected(workplace)
    work = do(prepared(workplace))
    sent = sum(row.upload_bits for row in work.rows)
    clients = sum(row.num_clients for row in work.rows)
    assert before["clients' uploads"] == str(clients)
    most, largest = (float(before[f"megabits of {which}, at most"]) for which in ("all uploads", "the largest upload"))
    # Megabits are rounded to thousandths.
    assert 0.9 * most < sent / 1e6 <= most + 0.0005
    assert max(row.upload_bits / row.num_clients for row in work.rows) / 1e6 <= largest + 0.0005
    assert before["minutes that a run takes, about"].startswith("unknown: nothing is finished of ")


def test_minutes_are_known_once_some_jobs_are_finished(workplace: Path) -> None:
    do(prepared(workplace))
    assert expected(workplace)["minutes that a run takes, about"] == "0.0"
    more = expected(workplace, seeds=[0, 1])["minutes that a run takes, about"]
    assert float(more) >= 0


def test_without_a_finished_job_an_earlier_report_says_the_minutes(workplace: Path) -> None:
    write_rows([make_row(client_train_seconds=120.0, server_seconds=0.0)], workplace / "report")
    found = expected(workplace, earlier=Path("report"), run={"workers": 2})
    assert found["minutes that a run takes, about"] == "1.0 for all of it, by the report report"


def row(method: str, **changes: object) -> Row:
    return make_row(method, client_statistics_seconds={"kfac": 4.0}, **changes)


def test_what_methods_share_is_counted_once() -> None:
    assert recorded_seconds([row("one"), row("two")]) == 10.0 + 4.0 + 2 * 0.5
    # Of two rounds, only the first is shared.
    assert recorded_seconds([row("one", num_rounds=2), row("two", num_rounds=2)]) == 7.0 + 2 * 7.0 + 2 * 0.5
    assert recorded_seconds([row("one"), row("one", seed=1)]) == 2 * 14.5
