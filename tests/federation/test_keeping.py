"""Rounds of which only the last keep their clients' results: the same rows, and what a rerun costs."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import Transients, perform
from fedfisher_core.engine.plan import agenda_of, graph_of
from fedfisher_core.engine.store import open_store
from fedfisher_core.experiments.benchmark.plan import make_plan, make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation import aggregating, statistics, training
from fedfisher_core.federation import uploads as sending
from fedfisher_core.federation.federation import ClientJob
from tests import tiny
from tests.walked import Walked, walk_tiny

METHODS: dict[str, Any] = {"fedavg": {}, "fedfisher_diag": {}}
SECONDS = (
    *("server_seconds", "client_train_seconds", "client_statistics_seconds", "client_encode_seconds"),
    *("server_processor_seconds", "client_processor_seconds"),
)
SECURE: dict[str, Any] = {"fedavg": {"wire": {"budget": "none", "server_view": "secure_sum"}}}
SCAFFOLD = {"momentum": 0.0, "objective": "scaffold"}

computed: list[str] = []
"""Names of the jobs that were computed, in their order."""


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Note what is computed."""
    for kind in (training.TrainClient, sending.SendUpload, aggregating.Aggregation):

        def noting(self: Any, inputs: Any, real: Any = kind.compute) -> Any:
            computed.append(self.name)
            return real(self, inputs)

        monkeypatch.setattr(kind, "compute", noting)
    together = statistics.ComputeStatistic.compute_together.__func__  # type: ignore[attr-defined]

    def noting_all(cls: Any, jobs: Any, inputs: Any) -> Any:
        computed.extend(job.name for job in jobs)
        return together(cls, jobs, inputs)

    monkeypatch.setattr(statistics.ComputeStatistic, "compute_together", classmethod(noting_all))
    yield
    computed.clear()


def walked(folder: Path, rounds: Any, methods: dict[str, Any] = METHODS, **changes: Any) -> Walked:
    computed.clear()
    return walk_tiny(folder, methods, rounds=rounds, **changes)


def rows(done: Walked) -> list[Row]:
    return make_rows(done.plan, done.outcome)


def measured(done: Walked) -> list[dict[str, Any]]:
    """Rows without what differs between two runs."""
    without = {*SECONDS, "peak_memory_bytes"}
    return [{name: value for name, value in asdict(row).items() if name not in without} for row in rows(done)]


def graph(done: Walked) -> dict[str, Job[Any]]:
    return graph_of(done.plan.jobs)


def client_jobs(done: Walked, *numbers: int) -> set[str]:
    """Names of all clients' jobs of some rounds."""
    return {name for name, job in graph(done).items() if isinstance(job, ClientJob) and is_of(job, numbers)}


def is_of(job: ClientJob[Any], numbers: tuple[int, ...]) -> bool:
    # Initial weights are of no round.
    if job.name.startswith("draw"):
        return False
    later = [number for number in range(2, 20) if f", round {number} of" in job.name]
    return (later or [1])[0] in numbers


def there(done: Walked) -> set[str]:
    """Names of the jobs whose results are in the store."""
    return {name for name, job in graph(done).items() if done.store.has(job.kind, job.key)}


def aggregate(done: Walked, method: str, number: int) -> str:
    federations = done.plan.federations
    return federations.aggregation(done.federation, method, federations.rounds_of(method)[number - 1]).name


def remove(done: Walked, *names: str) -> None:
    for name in names:
        job = graph(done)[name]
        shutil.rmtree(done.store.root / job.kind / job.key)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("methods", "changes"), [(METHODS, {}), (SECURE, {}), ({"fedavg": {}}, {"train": SCAFFOLD})], ids=str
)
@pytest.mark.parametrize("keep", [1, 2])
def test_results_of_early_rounds_go_and_rows_are_the_same(
    workplace: Path, methods: dict[str, Any], changes: dict[str, Any], keep: int
) -> None:
    plain = walked(workplace / "plain", {"count": 4}, methods, **changes)
    done = walked(workplace / "keep", {"count": 4, "keep": keep}, methods, **changes)
    assert measured(done) == measured(plain)
    assert there(done) == there(plain) - client_jobs(done, *range(1, 5 - keep))
    assert client_jobs(done, 4) <= there(done)
    assert {name: job.key for name, job in graph(done).items()} == {name: job.key for name, job in graph(plain).items()}
    first = rows(done)
    again = walked(workplace / "keep", {"count": 4, "keep": keep}, methods, **changes)
    assert computed == []
    assert rows(again) == first


def test_rows_stay_when_keep_comes_later(workplace: Path) -> None:
    first = rows(walked(workplace, {"count": 3}))
    for keep in (3, 2, 1, None):
        assert rows(walked(workplace, {"count": 3, "keep": keep})) == first
        assert computed == []


def test_the_last_aggregate_costs_itself(workplace: Path) -> None:
    done = walked(workplace, {"count": 3, "keep": 1})
    first = measured(done)
    remove(done, aggregate(done, "fedavg", 3))
    assert measured(walked(workplace, {"count": 3, "keep": 1})) == first
    assert computed == [aggregate(done, "fedavg", 3)]


def test_an_early_aggregate_costs_what_its_method_reads(workplace: Path) -> None:
    done = walked(workplace, {"count": 3, "keep": 1})
    first, before = measured(done), there(done)
    remove(done, aggregate(done, "fedavg", 1), aggregate(done, "fedavg", 2))
    again = walked(workplace, {"count": 3, "keep": 1})
    assert measured(again) == first
    # Payloads of weights alone; no Fisher is computed again, nor what the other method did.
    clients = {name for name in client_jobs(done, 1, 2) if "fisher" not in name}
    assert set(computed) == {aggregate(done, "fedavg", 1), aggregate(done, "fedavg", 2)} | clients
    assert len(computed) == 2 + 2 * 3 * 2
    assert there(again) == before


def test_one_more_round_is_one_more_round(workplace: Path) -> None:
    walked(workplace, {"count": 3, "keep": 1})
    more = walked(workplace, {"count": 4, "keep": 1})
    aggregates = {aggregate(more, method, 4) for method in METHODS}
    assert set(computed) == client_jobs(more, 4) | aggregates
    assert measured(more) == measured(walked(workplace / "at once", {"count": 4}))


def test_another_method_trains_the_first_round_again_and_no_other(workplace: Path) -> None:
    before = walked(workplace, {"count": 3, "keep": 1}, {"fedavg": {}, "fedfisher_diag": {}})
    both = walked(workplace, {"count": 3, "keep": 1}, {**METHODS, "regmean": {}})
    assert not any(name.startswith("diagonal_fisher") for name in computed)
    own = {name for name in client_jobs(both, 1, 2, 3) - client_jobs(before, 1, 2, 3)}
    trained = {name for name in client_jobs(both, 1) if name.startswith("train")}
    encoded = {name for name in computed if name.startswith("encode weights as ") and ", round" not in name}
    again = own | trained | {aggregate(both, "regmean", number) for number in (1, 2, 3)}
    assert again <= set(computed) <= again | encoded
    plain = walked(workplace / "plain", {"count": 3}, {**METHODS, "regmean": {}})
    assert measured(both) == measured(plain)


def test_a_run_that_is_killed_goes_on(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"count": 4, "cohort": 2, "keep": 1}
    whole = walked(workplace / "whole", {"count": 4, "cohort": 2}, train=SCAFFOLD)
    real = training.TrainClient.compute

    def killed(self: training.TrainClient, inputs: Any) -> Any:
        if self.round_number == 3:
            raise KeyboardInterrupt
        return real(self, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(training.TrainClient, "compute", killed)
        with pytest.raises(KeyboardInterrupt):
            walked(workplace / "killed", settings, train=SCAFFOLD)
    before = set(computed)
    assert before
    done = walked(workplace / "killed", settings, train=SCAFFOLD)
    assert not set(computed) & before
    assert measured(done) == measured(whole)
    walked(workplace / "killed", settings, train=SCAFFOLD)
    assert computed == []


@pytest.mark.parametrize("train", [SCAFFOLD, {"objective": "moon"}], ids=str)
def test_what_a_client_keeps_for_itself_is_made_again_where_it_is_gone(workplace: Path, train: dict[str, Any]) -> None:
    done = walked(workplace, {"count": 3}, {"fedavg": {}}, train=train)
    expected, own = measured(done), client_jobs(done, 2)
    # The third round starts from what clients kept of the second.
    remove(done, *own, *(name for name in graph(done) if ", round 3 of" in name))
    again = walked(workplace, {"count": 3}, {"fedavg": {}}, train=train)
    assert measured(again) == expected
    trained = {name for name in own if name.startswith("train")}
    assert trained <= set(computed)
    assert not client_jobs(done, 1) & set(computed)


def test_two_runs_at_once_take_nothing_from_each_other(workplace: Path) -> None:
    """The runs take turns with their jobs, in one store, and have more in common than the first round."""
    plain = [walked(workplace / "plain", {"count": count}) for count in (3, 4)]
    plans = [
        make_plan(tiny.tiny_settings(workplace, methods=METHODS, rounds={"count": count, "keep": 1}))
        for count in (3, 4)
    ]
    store = open_store(plans[0].settings.run.store)
    store.prepare()
    with store.used_by_run("one") as one, store.used_by_run("other") as other:
        agendas = [agenda_of(plan.jobs, store) for plan in plans]
        transients = [Transients(agenda, store, run) for agenda, run in zip(agendas, (one, other), strict=True)]
        for jobs in zip_longest(*(agenda.missing for agenda in agendas)):
            for job, own in zip(jobs, transients, strict=True):
                if job is not None:
                    assert perform([job], store) == {}
                    own.done([job])
                    own.delete()
        assert [own.deleted for own in transients] == [0, 0]
    done = [Walked(plan, agenda.outcome(store, {}), store) for plan, agenda in zip(plans, agendas, strict=True)]
    assert [measured(run) for run in done] == [measured(run) for run in plain]
    assert client_jobs(done[1], 1, 2, 3) <= there(done[1])
    # A later run deletes what is left.
    later = walked(workplace, {"count": 4, "keep": 1})
    assert computed == []
    assert not client_jobs(later, 1, 2, 3) & there(later)


@pytest.mark.parametrize("keep", [0, -1, 1.5, "all"])
def test_what_is_no_number_of_rounds_is_refused_by_name(workplace: Path, keep: object) -> None:
    with pytest.raises(InputError, match=r"rounds\.keep="):
        tiny.tiny_settings(workplace, rounds={"keep": keep})


def test_rounds_that_are_all_kept_lose_nothing(workplace: Path) -> None:
    for rounds in ({"count": 1, "keep": 1}, {"count": 2, "keep": 5}):
        done = walked(workplace, rounds, {"fedavg": {}})
        assert client_jobs(done, 1, 2) <= there(done)
        assert not any(job.transient for job in graph(done).values())
