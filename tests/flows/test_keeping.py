"""Work of which only the last rounds' tensors are kept: what others wait for, and what DVC is handed."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.batches import compute
from fedfisher_core.store import open_store
from flows.experiment import _finish
from flows.pruning import find_unused
from flows.sharing import export, is_shared
from flows.work import Begun, Work, begin, prepare
from tests.flows.test_sharing import export_and_lock
from tests.tiny import tiny_settings

LARGE = {"tensors.safetensors", "payload.bin"}


def changes(**more: Any) -> dict[str, Any]:
    return {"rounds": {"count": 3, "keep": 1}, **more}


def do(work: Begun) -> Begun:
    while (batch := work.walk.take()) is not None:
        work.walk.keep(batch, compute(batch, work.store))
        work.walk.shed(work.lease)
    return work


def large(folder: Path) -> set[str]:
    """Where below a folder of artifacts trainings and payloads have more than documents."""
    return {path.parent.name for path in folder.rglob("*") if path.name in LARGE}


@pytest.fixture
def done(workplace: Path) -> Begun:
    return do(begin(tiny_settings(workplace, **changes())))


def kept(work: Work) -> set[str]:
    """Keys of the client's results of the last round."""
    wanted = {"clients", "payloads"}
    found = work.walk.outcome.artifacts.values()
    return {artifact.key for artifact in found if artifact.kind in wanted and not artifact.shed}


def test_stages_hold_what_is_left_and_a_run_without_its_own_store_computes_nothing(done: Begun) -> None:
    assert len(kept(done)) == 2 * 3
    export_and_lock(done)
    assert large(Path("stages")) == kept(done)
    assert is_shared(done)
    assert is_shared(prepare(done.settings))
    elsewhere = begin(tiny_settings(Path.cwd(), **changes(run={"store": str(Path.cwd() / "elsewhere")})))
    do(elsewhere)
    # Decoded data is not shared.
    assert {path.parent.name for path in elsewhere.store.folders()} == {"data"}
    assert elsewhere.walk.outcome.artifacts.keys() == done.walk.outcome.artifacts.keys()
    assert not elsewhere.walk.may_shed


def test_what_waits_for_another_run_to_end_is_not_exported(workplace: Path) -> None:
    settings = tiny_settings(workplace, **changes())
    with open_store(settings.run.store).rested_on("another run"):
        work = do(begin(settings))
        assert len(kept(work)) == 3 * 2 * 3
        for stage in work.plan.stages:
            export("tiny", stage, work.artifacts(stage))
    assert len(large(Path("stages"))) == 2 * 3
    assert prepare(settings).walk.may_shed


def test_what_is_left_goes_with_the_next_run_which_says_so(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tiny_settings(workplace, **changes())
    with open_store(settings.run.store).rested_on("another run"):
        do(begin(settings))
        _finish(begin(settings))
        assert capsys.readouterr().err == "tiny: left those of 12: another run uses the store\n"
    _finish(begin(settings))
    said = capsys.readouterr().err
    assert said.startswith("tiny: pruned the tensors of 12 artifacts of rounds 1 to 2, ")
    assert said.count("\n") == 1
    _finish(begin(settings))
    assert capsys.readouterr().err == ""


def test_what_is_only_prepared_keeps_nothing_from_going(workplace: Path) -> None:
    settings = tiny_settings(workplace, **changes())
    look = prepare(settings)
    work = do(begin(settings))
    assert len(kept(work)) == 2 * 3
    assert not look.walk.finished


def test_a_store_is_pruned_of_what_was_shed_as_of_anything_else(done: Begun) -> None:
    report = done.folder
    report.mkdir(parents=True)
    key = done.walk.outcome.artifacts[next(name for name in done.plan.stages["aggregates"] if "round 3" in name)].key
    (report / "results.json").write_text(f'[{{"artifact": "{key}"}}]')
    assert find_unused(done.settings).sizes == {}
    first = next(name for name in done.plan.stages["aggregates"] if "round" not in name)
    (report / "results.json").write_text(f'[{{"artifact": "{done.walk.outcome.artifacts[first].key}"}}]')
    unused = find_unused(done.settings)
    assert {path.parent.name for path in unused.sizes} == {"clients", "payloads", "aggregates", "measures"}
    assert len(unused.kept) == len(done.store.folders()) - 2 * (2 * 3 + 2)
