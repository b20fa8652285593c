"""Rounds of which only the last keep their clients' tensors: the same results, and what a rerun costs."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.batches import compute
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.results import make_rows
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation import aggregating, sending, statistics, training
from fedfisher_core.federation.place import ClientJob
from fedfisher_core.jobs import graph_of
from fedfisher_core.store import open_store
from fedfisher_core.walk import Walk
from tests import tiny
from tests.walked import Walked, walk_tiny

METHODS: dict[str, Any] = {"fedavg": {}, "fedfisher_diag": {}}
SECONDS = ("server_seconds", "client_train_seconds", "client_statistics_seconds", "client_encode_seconds")
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


def client_jobs(done: Walked, *numbers: int) -> set[str]:
    """Names of all client's jobs of some rounds."""
    return {job.name for job in done.plan.jobs if isinstance(job, ClientJob) and is_of(job, numbers)}


def is_of(job: ClientJob[Any], numbers: tuple[int, ...]) -> bool:
    # Initial weights and payloads are of no round of their own, but by name.
    if job.name.startswith("initial"):
        return False
    later = [number for number in range(2, 20) if f", round {number} of" in job.name]
    return (later or [1])[0] in numbers


def tensors(done: Walked) -> set[str]:
    """Names of the jobs that have files beside documents."""
    return {
        name
        for name, artifact in done.outcome.artifacts.items()
        if any(path.suffix != ".json" for path in artifact.path.iterdir())
    }


def aggregate(done: Walked, method: str, number: int) -> str:
    federations = done.plan.federations
    return federations.aggregation(done.place, method, federations.turns(method)[number - 1]).name


def remove(done: Walked, *jobs: str) -> None:
    for job in jobs:
        shutil.rmtree(done.outcome.artifacts[job].path)


@pytest.mark.parametrize(
    ("methods", "changes"), [(METHODS, {}), (SECURE, {}), ({"fedavg": {}}, {"train": SCAFFOLD})], ids=str
)
@pytest.mark.parametrize("keep", [1, 2])
def test_tensors_of_early_rounds_go_and_rows_are_the_same(
    workplace: Path, methods: dict[str, Any], changes: dict[str, Any], keep: int
) -> None:
    plain = walked(workplace / "plain", {"count": 4}, methods, **changes)
    done = walked(workplace / "keep", {"count": 4, "keep": keep}, methods, **changes)
    assert measured(done) == measured(plain)
    assert tensors(done) == tensors(plain) - client_jobs(done, *range(1, 5 - keep))
    assert client_jobs(done, 4) <= tensors(done)
    assert {name: (one.key, one.digest) for name, one in done.outcome.artifacts.items()} == {
        name: (one.key, one.digest) for name, one in plain.outcome.artifacts.items()
    }
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
    first, there = measured(done), tensors(done)
    remove(done, aggregate(done, "fedavg", 1), aggregate(done, "fedavg", 2))
    again = walked(workplace, {"count": 3, "keep": 1})
    assert measured(again) == first
    # Payloads of weights alone; no Fisher is computed again, nor what the other method did.
    clients = {name for name in client_jobs(done, 1, 2) if "fisher" not in name}
    assert set(computed) == {aggregate(done, "fedavg", 1), aggregate(done, "fedavg", 2)} | clients
    assert len(computed) == 2 + 2 * 3 * 2
    assert tensors(again) == there


def test_what_an_aggregate_reads_is_what_it_says(workplace: Path) -> None:
    """With SCAFFOLD the server reads trainings as well."""
    changes = {"train": SCAFFOLD}
    done = walked(workplace, {"count": 3, "keep": 1}, {"fedavg": {}}, **changes)
    first = measured(done)
    remove(done, aggregate(done, "fedavg", 2))
    assert measured(walked(workplace, {"count": 3, "keep": 1}, {"fedavg": {}}, **changes)) == first
    # A training of round 2 looks at the one of round 1, of which no payload is made again.
    trained = {name for name in client_jobs(done, 1) if name.startswith("train")}
    assert set(computed) == {aggregate(done, "fedavg", 2)} | client_jobs(done, 2) | trained


def test_one_more_round_is_one_more_round(workplace: Path) -> None:
    walked(workplace, {"count": 3, "keep": 1})
    more = walked(workplace, {"count": 4, "keep": 1})
    aggregates = {aggregate(more, method, 4) for method in METHODS}
    assert set(computed) == client_jobs(more, 4) | aggregates
    assert not tensors(more) & client_jobs(more, 1, 2, 3)
    assert measured(more) == measured(walked(workplace / "at once", {"count": 4}))


def test_another_method_trains_the_first_round_again_and_no_other(workplace: Path) -> None:
    before = walked(workplace, {"count": 3, "keep": 1}, {"fedavg": {}, "fedfisher_diag": {}})
    both = walked(workplace, {"count": 3, "keep": 1}, {**METHODS, "regmean": {}})
    assert not any(name.startswith("diagonal_fisher") for name in computed)
    own = {name for name in client_jobs(both, 1, 2, 3) - client_jobs(before, 1, 2, 3)}
    trained = {name for name in client_jobs(both, 1) if name.startswith("train")}
    assert set(computed) == own | trained | {aggregate(both, "regmean", number) for number in (1, 2, 3)}
    plain = walked(workplace / "plain", {"count": 3}, {**METHODS, "regmean": {}})
    assert measured(both) == measured(plain)


def test_a_run_that_is_killed_goes_on(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"count": 4, "cohort": 2, "keep": 1}
    whole = walked(workplace / "whole", {"count": 4, "cohort": 2}, train=SCAFFOLD)
    real = training.TrainClient.compute

    def killed(self: training.TrainClient, inputs: Any) -> Any:
        if self.turn == 3:
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
    remove(done, *own, *(name for name in done.outcome.artifacts if ", round 3 of" in name))
    again = walked(workplace, {"count": 3}, {"fedavg": {}}, train=train)
    assert measured(again) == expected
    assert own <= set(computed)
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
    with store.rested_on("one") as one, store.rested_on("other") as other:
        walks = [Walk(graph_of(plan.jobs), store) for plan in plans]
        while not all(walk.finished for walk in walks):
            for walk, lease in zip(walks, (one, other), strict=True):
                if (batch := walk.take()) is not None:
                    walk.keep(batch, compute(batch, store))
                walk.shed(lease)
    done = [Walked(plan, walk.outcome) for plan, walk in zip(plans, walks, strict=True)]
    assert [measured(run) for run in done] == [measured(run) for run in plain]
    assert str(walks[0].take_pruned()).endswith("another run uses the store")
    assert client_jobs(done[1], 1, 2, 3) <= tensors(done[1])
    # Whoever comes last prunes what is left.
    later = walked(workplace, {"count": 4, "keep": 1})
    assert computed == []
    assert not client_jobs(later, 1, 2, 3) & tensors(later)


def test_stages_do_not_list_what_passes(workplace: Path) -> None:
    done = walked(workplace, {"count": 3, "keep": 1})
    listed = {name for names in done.plan.stages.values() for name in names}
    assert listed == {job.name for job in done.plan.jobs} - client_jobs(done, 1, 2)


def test_a_damaged_marker_costs_its_artifact(workplace: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = walked(workplace, {"count": 2, "keep": 1}, {"fedavg": {}})
    first = measured(done)
    name = sorted(name for name in client_jobs(done, 1) if name.startswith("train"))[0]
    (done.outcome.artifacts[name].path / "shed.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert measured(walked(workplace, {"count": 2, "keep": 1}, {"fedavg": {}})) == first
    assert computed == [name]
    assert "shed.json was changed; it is computed again" in caplog.text


@pytest.mark.parametrize("keep", [0, -1, 1.5, "all"])
def test_what_is_no_number_of_rounds_is_refused_by_name(workplace: Path, keep: object) -> None:
    with pytest.raises(InputError, match=r"rounds\.keep="):
        tiny.tiny_settings(workplace, rounds={"keep": keep})


def test_rounds_that_are_all_kept_lose_nothing(workplace: Path) -> None:
    for rounds in ({"count": 1, "keep": 1}, {"count": 2, "keep": 5}):
        done = walked(workplace, rounds, {"fedavg": {}})
        assert client_jobs(done, 1, 2) <= tensors(done)
        assert not any(job.passing for job in done.plan.jobs)
