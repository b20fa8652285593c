import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfisher_core.errors import OutputError
from fedfisher_core.locks import LockedError
from fedfisher_core.store import Artifact, Content, Step, Store, open_store
from flows import sharing
from flows.sharing import export, is_shared, share
from flows.work import Work, prepare
from tests.flows.test_work import do
from tests.tiny import tiny_settings


def stored(store: Store, client: int) -> Artifact:
    step = Step(kind="clients", code="a", settings={"client": client})
    return store.write(step, Content(documents={"info.json": {"client": client}}))


@pytest.fixture
def project(workplace: Path) -> Path:
    """A working directory whose params.yaml names a benchmark."""
    (workplace / "params.yaml").write_text(tiny_settings(workplace).to_yaml())
    return workplace


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_stage_holds_exactly_its_artifacts(project: Path) -> None:
    store = Store(project / "artifacts")
    one, two, three = (stored(store, client) for client in range(3))
    folder = export("small", "clients", [one, two])
    assert folder == Path("stages/small/clients")
    assert sorted(path.name for path in (folder / "clients").iterdir()) == sorted([one.key, two.key])
    assert content(folder / "clients" / one.key) == content(one.path)
    again = export("small", "clients", [three, two])
    assert again == folder
    assert sorted(path.name for path in (folder / "clients").iterdir()) == sorted([two.key, three.key])
    assert [path.name for path in folder.parent.iterdir()] == ["clients"]


def test_what_a_killed_export_left_is_no_store_and_is_removed_by_the_next(project: Path) -> None:
    artifact = stored(Store(project / "artifacts"), 0)
    left = project / "stages/.writing-left"
    shutil.copytree(artifact.path, left / artifact.kind / artifact.key)
    step = Step(kind="clients", code="a", settings={"client": 0})
    assert open_store(project / "elsewhere").find(step) is None
    export("small", "clients", [])
    assert not left.exists()


def test_a_stage_that_can_not_be_written_is_one_error(project: Path) -> None:
    (project / "stages").mkdir()
    (project / "stages/small").write_text("")
    with pytest.raises(OutputError, match="stage 'stages/small/clients' can't be written"):
        export("small", "clients", [])


def test_two_exports_at_once_wait_for_each_other(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_PATIENCE_SECONDS", 0)
    with sharing._alone(), pytest.raises(LockedError, match="hands results to DVC"):
        export("small", "clients", [])


def test_a_stage_takes_no_space_of_its_own(project: Path) -> None:
    artifact = stored(Store(project / "artifacts"), 0)
    folder = export("small", "clients", [artifact])
    exported = folder / "clients" / artifact.key / "info.json"
    assert os.path.samefile(exported, artifact.path / "info.json")


def test_the_folder_of_a_stage_does_not_depend_on_its_history(project: Path) -> None:
    store = Store(project / "artifacts")
    one, two = (stored(store, client) for client in range(2))
    export("a", "clients", [two])
    first = content(export("a", "clients", [one, two]))
    assert content(export("b", "clients", [two, one])) == first
    assert len(first) == 4


def test_exported_artifacts_are_found_by_a_run_without_its_own(project: Path) -> None:
    step = Step(kind="clients", code="a", settings={"client": 0})
    store = Store(project / "artifacts")
    artifact = stored(store, 0)
    export("small", "clients", [artifact])
    store.remove([artifact.path])
    fresh = open_store(project / "elsewhere")
    found = fresh.find(step)
    assert found is not None
    assert found.digest == artifact.digest
    assert found.path.is_relative_to("stages")


def test_a_stage_can_be_made_of_what_was_found_in_it(project: Path) -> None:
    store = Store(project / "artifacts")
    artifact = stored(store, 0)
    export("small", "clients", [artifact])
    before = content(Path("stages"))
    store.remove([artifact.path])
    found = open_store(store.root).find(Step(kind="clients", code="a", settings={"client": 0}))
    assert found is not None
    export("small", "clients", [found])
    assert content(Path("stages")) == before


def test_a_stage_without_artifacts_is_an_empty_folder(project: Path) -> None:
    assert list(export("small", "clients", []).iterdir()) == []


@pytest.fixture
def finished(project: Path) -> Work:
    return do(prepare(tiny_settings(project)))


def export_and_lock(work: Work) -> None:
    """Leave behind what DVC does: every stage's folder, a report, and a lock file that speaks of them."""
    stages = {}
    for stage in work.plan.stages:
        folder = export(work.settings.name, stage, work.artifacts(stage))
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        stages[stage] = {"outs": [{"path": str(folder), "size": sum(sizes), "nfiles": len(sizes)}]}
    page = Path("results/page")
    page.parent.mkdir(exist_ok=True)
    page.write_text("a page")
    stages["report"] = {"outs": [{"path": str(page), "md5": hashlib.md5(page.read_bytes()).hexdigest()}]}
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": stages}))


def test_without_a_lock_of_dvc_nothing_is_shared(finished: Work) -> None:
    share(finished)
    assert not Path("stages").exists()
    assert is_shared(finished)


def test_settings_of_their_own_are_not_shared(project: Path) -> None:
    (project / "dvc.lock").write_text("")
    share(do(prepare(tiny_settings(project, seeds=[1]))))
    assert not Path("stages").exists()


def test_stages_are_shared_when_they_hold_what_the_plan_says(project: Path, finished: Work) -> None:
    (project / "dvc.lock").write_text("")
    assert not is_shared(finished)
    export_and_lock(finished)
    assert is_shared(finished)
    export("tiny", "aggregates", [])
    assert not is_shared(finished)
    export("tiny", "aggregates", [*finished.artifacts("aggregates"), *finished.artifacts("clients")])
    assert not is_shared(finished)


def test_sharing_that_was_broken_off_is_not_done(project: Path, finished: Work) -> None:
    export_and_lock(finished)
    assert is_shared(finished)
    (project / "stages/.unfinished").touch()
    assert not is_shared(finished)


def test_a_stage_of_shared_artifacts_finishes_a_run_without_its_own(project: Path, finished: Work) -> None:
    for stage in finished.plan.stages:
        export("tiny", stage, finished.artifacts(stage))
    fresh = tiny_settings(project, run={"store": str(project / "elsewhere")})
    work = prepare(fresh)
    assert not work.walk.finished
    do(work)
    # Decoded data is not shared; all that was made of it is found.
    assert {path.parent.name for path in work.store.folders()} == {"data"}


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])


def lead_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def take_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def add(path: Path) -> None:
    path.with_name("more").write_bytes(b"")


def forget_a_stage(lock: dict[str, Any]) -> None:
    del lock["stages"]["aggregates"]


def remember_fewer_files(lock: dict[str, Any]) -> None:
    lock["stages"]["clients"]["outs"][0]["nfiles"] -= 1


def remember_smaller_files(lock: dict[str, Any]) -> None:
    lock["stages"]["clients"]["outs"][0]["size"] -= 1


def remember_another_page(lock: dict[str, Any]) -> None:
    lock["stages"]["report"]["outs"][0]["md5"] = "0" * 32


def name_what_is_not_there(lock: dict[str, Any]) -> None:
    lock["stages"]["report"]["outs"][0]["path"] = "results/none"


@pytest.mark.parametrize(
    "harm",
    [forget_a_stage, remember_fewer_files, remember_smaller_files, remember_another_page, name_what_is_not_there],
)
def test_a_lock_file_that_is_older_than_the_stages_is_written_again(
    finished: Work, harm: Callable[[dict[str, Any]], None]
) -> None:
    export_and_lock(finished)
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    harm(lock)
    Path("dvc.lock").write_text(yaml.safe_dump(lock))
    assert not is_shared(finished)


@pytest.mark.parametrize("text", ["", "[", "stages: [1]", "schema: '2.0'"])
def test_a_lock_file_that_says_nothing_is_written_again(finished: Work, text: str) -> None:
    export_and_lock(finished)
    Path("dvc.lock").write_text(text)
    assert not is_shared(finished)


@pytest.mark.parametrize("harm", [Path.unlink, cut, lead_nowhere, take_a_pipe, add])
def test_harmed_stages_are_exported_again(project: Path, finished: Work, harm: Callable[[Path], None]) -> None:
    export_and_lock(finished)
    assert is_shared(finished)
    harm(min(Path("stages/tiny/clients/clients").glob("*/*.safetensors")))
    assert not is_shared(finished)


def test_stages_that_dvc_has_copied_are_shared(project: Path, finished: Work) -> None:
    export_and_lock(finished)
    for path in Path("stages").rglob("*.safetensors"):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    assert is_shared(finished)
