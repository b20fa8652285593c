"""The toy regression through its jobs, without orchestration."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import open_store
from fedfisher_core.experiments.fedfish_toy.plan import (
    FedFishToyPlan,
    make_plan,
    make_rows,
    measure_overlap,
    read_measured,
)
from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings
from fedfisher_core.settings.reading import validate

TINY: dict[str, Any] = {
    "overlaps": [1.0, 0.0],
    "epochs": [1, 2],
    "samples": 6,
    "widths": [3, 3, 3],
    "batch_size": 3,
    "points": 5,
    "seeds": [0, 1],
}


def plan(folder: Path, run: dict[str, Any] | None = None, **changes: Any) -> FedFishToyPlan:
    content = {"name": "tiny", "toy": TINY | changes, "run": {"store": str(folder / "artifacts"), **(run or {})}}
    return make_plan(validate(FedFishToySettings, content))


def walk(made: FedFishToyPlan) -> Outcome:
    return execute(made.jobs, open_store(made.settings.run.store))


def key(made: FedFishToyPlan, overlap: float, seed: int) -> str:
    (job,) = (one for one in made.federations if (one.overlap, one.seed) == (overlap, seed))
    return job.key


def written(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in (folder / "artifacts").glob("*/*/manifest.json")}


def test_what_is_stored_is_what_was_measured_and_is_not_measured_again(tmp_path: Path) -> None:
    made = plan(tmp_path)
    outcome = walk(made)
    before = written(tmp_path)
    assert len(before) == 4
    for job in made.federations:
        measured = measure_overlap(made.settings.toy, job.overlap, job.seed)
        assert read_measured(outcome.artifacts[job.name]) == measured
    assert walk(plan(tmp_path)).artifacts == outcome.artifacts
    assert written(tmp_path) == before


def test_a_seed_and_an_overlap_more_cost_those_alone(tmp_path: Path) -> None:
    walk(plan(tmp_path))
    before = written(tmp_path)
    walk(plan(tmp_path, seeds=[0, 1, 2], overlaps=[1.0, 0.5, 0.0]))
    after = written(tmp_path)
    assert len(after) == 9
    assert {name: after[name] for name in before} == before


def test_rows_are_of_all_that_was_measured(tmp_path: Path) -> None:
    made = plan(tmp_path)
    outcome = walk(made)
    rows = make_rows(made, outcome)
    assert len(rows) == 2 * 2 * 2 * 2
    for job in made.federations:
        artifact = outcome.artifacts[job.name]
        own = [row for row in rows if (row.overlap, row.seed) == (job.overlap, job.seed)]
        assert {row.artifact for row in own} == {artifact.key}
        stages = read_measured(artifact).stages
        for row in own:
            stage = stages[row.local_epochs - 1]
            model = stage.fedfish if row.method == "fedfish" else stage.fedavg
            assert (row.global_error, row.client_errors) == (model.global_error, model.client_errors)
            assert row.local_errors == stage.local_errors
            assert row.barrier == pytest.approx(sum(model.client_errors) / 2 - sum(stage.local_errors) / 2)


def test_a_federation_that_failed_has_no_rows(tmp_path: Path) -> None:
    made = plan(tmp_path)
    outcome = walk(made)
    lost = made.federations[0].name
    left = Outcome({name: one for name, one in outcome.artifacts.items() if name != lost}, {})
    assert len(make_rows(made, left)) == 12


@pytest.mark.parametrize("changes", [{"seeds": [1, 7]}, {"overlaps": [1.0]}, {"run": {"workers": 3, "retries": 2}}])
def test_settings_that_can_not_change_a_federation_share_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert key(plan(tmp_path, **changes), 1.0, 1) == key(plan(tmp_path), 1.0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 3},
        {"epochs": [1]},
        {"function": "chirp"},
        {"samples": 7},
        {"noise": 0.1},
        {"widths": [3, 3, 4]},
        {"learning_rate": 0.2},
        {"batch_size": 2},
        {"global_step": 0.5},
        {"points": 6},
        {"run": {"torch_threads": 2}},
    ],
)
def test_a_setting_that_can_change_a_federation_measures_it_anew(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert key(plan(tmp_path, **changes), 1.0, 0) != key(plan(tmp_path), 1.0, 0)


def test_overlaps_and_seeds_have_keys_of_their_own(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert len({job.key for job in made.federations}) == 4


def test_nothing_is_stored_of_a_federation_that_diverged(tmp_path: Path) -> None:
    with pytest.raises(DivergedClientError, match=r"overlap=1 with seed=0: .*toy\.learning_rate=1e\+20"):
        walk(plan(tmp_path, learning_rate=1e20))
    assert not written(tmp_path)
