"""Work of which only the last rounds' tensors are kept: what others wait for, and what DVC is handed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.store import Artifact, open_store
from flows.experiment import compute_missing
from flows.pruning import find_unused
from flows.sharing import link
from flows.work import Work, prepare
from tests.flows.test_work import do
from tests.tiny import tiny_settings

LARGE = {"tensors.safetensors", "payload.bin"}


def changes(**more: Any) -> dict[str, Any]:
    return {"rounds": {"count": 3, "keep": 1}, **more}


def large(folder: Path) -> set[str]:
    """Where below a folder of artifacts trainings and payloads have more than documents."""
    return {path.parent.name for path in folder.rglob("*") if path.name in LARGE}


@pytest.fixture
def done(workplace: Path) -> Work:
    return do(prepare(tiny_settings(workplace, **changes())))


def kept(work: Work) -> set[str]:
    """Keys of the client's results of the last round."""
    wanted = {"clients", "payloads"}
    found = work.store.folders()
    return {path.name for path in found if path.parent.name in wanted}


def aggregate(work: Work, words: str) -> Artifact:
    """What the first method has made in the round whose name has these words."""
    name = next(name for name in work.outcome.artifacts if re.match(rf"aggregate \w+{words} of ", name))
    return work.outcome.artifacts[name]


def test_a_stage_holds_what_is_left_and_a_run_without_its_own_store_computes_nothing(done: Work) -> None:
    assert len(kept(done)) == 2 * 3
    assert large(link("tiny", done.artifacts())) == kept(done)
    elsewhere = prepare(tiny_settings(Path.cwd(), **changes(run={"store": str(Path.cwd() / "elsewhere")})))
    do(elsewhere)
    # Decoded data is not shared.
    assert {path.parent.name for path in elsewhere.store.folders()} == {"data"}
    assert elsewhere.rows == done.rows
    assert not elsewhere.transients.there


def test_what_waits_for_another_run_to_end_is_not_exported(workplace: Path) -> None:
    settings = tiny_settings(workplace, **changes())
    with open_store(settings.run.store).used_by_run("another run"):
        work = do(prepare(settings))
        assert len(kept(work)) == 3 * 2 * 3
        folder = link("tiny", work.artifacts())
    assert len(large(folder)) == 2 * 3
    assert prepare(settings).transients.there


def test_what_is_left_goes_with_the_next_run_which_says_so(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tiny_settings(workplace, **changes())
    with open_store(settings.run.store).used_by_run("another run"):
        do(prepare(settings))
        compute_missing(prepare(settings))
        assert capsys.readouterr().err == "tiny: left 12: another run uses the store\n"
    compute_missing(prepare(settings))
    said = capsys.readouterr().err
    assert said.startswith("tiny: deleted 12 results of rounds 1 to 2, ")
    assert said.count("\n") == 1
    compute_missing(prepare(settings))
    assert capsys.readouterr().err == ""


def test_what_led_over_deleted_results_stays(done: Work) -> None:
    report = done.folder
    report.mkdir(parents=True)
    (report / "results.json").write_text(json.dumps([{"artifact": aggregate(done, ", round 3").key}]))
    assert find_unused(done.settings).sizes == {}
    (report / "results.json").write_text(json.dumps([{"artifact": aggregate(done, "").key}]))
    unused = find_unused(done.settings)
    assert {path.parent.name for path in unused.sizes} == {"clients", "payloads", "aggregates", "measures"}
    assert len(unused.kept) == len(done.store.folders()) - (2 * 3 + 2 * 2)
