"""The folders that DVC versions: exactly what an experiment rests on, found where `dvc pull` brings them."""

import os
import shutil
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import OutputError
from fedfisher_core.engine.store import STAGES, Artifact, Content, Recipe, Store, open_store
from flows.sharing import link_stage
from flows.work import Work, prepare
from tests.flows.test_work import do
from tests.tiny import tiny_settings


def recipe(client: int) -> Recipe:
    return Recipe(kind="clients", version=1, settings={"client": client})


def stored(store: Store, client: int) -> Artifact:
    return store.write(recipe(client), Content(documents={"info.json": {"client": client}}))


@pytest.fixture
def store(workplace: Path) -> Store:
    return Store(workplace / "artifacts")


@pytest.fixture
def finished(workplace: Path) -> Work:
    return do(prepare(tiny_settings(workplace)))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_holds_exactly_its_artifacts_whatever_it_held(store: Store) -> None:
    one, two, three = (stored(store, client) for client in range(3))
    folder = link_stage("small", [one, two])
    assert folder == Path("stages/small")
    assert content(folder / "clients" / one.key) == content(one.path)
    first = content(folder)
    assert {Path(name).parts[1] for name in first} == {one.key, two.key}
    link_stage("small", [three, two])
    assert {Path(name).parts[1] for name in content(folder)} == {two.key, three.key}
    link_stage("small", [two, one])
    assert content(folder) == first
    assert list(link_stage("small", []).iterdir()) == []
    assert list((STAGES / ".writing").iterdir()) == []


def test_a_folder_takes_no_space_of_its_own(store: Store) -> None:
    artifact = stored(store, 0)
    linked = link_stage("small", [artifact]) / "clients" / artifact.key / "info.json"
    assert os.path.samefile(linked, artifact.path / "info.json")


def test_a_link_to_dvc_s_cache_is_followed(store: Store, workplace: Path) -> None:
    artifact = stored(store, 0)
    file, cached = artifact.path / "info.json", workplace / "cached"
    file.rename(cached)
    file.symlink_to(cached)
    linked = link_stage("small", [artifact]) / "clients" / artifact.key / "info.json"
    assert not linked.is_symlink()
    assert os.path.samefile(linked, cached)


def test_what_a_killed_command_left_is_no_store_and_goes_with_the_next(store: Store) -> None:
    artifact = stored(store, 0)
    left = STAGES / ".writing/left"
    shutil.copytree(artifact.path, left / "fresh" / artifact.kind / artifact.key)
    left.with_suffix(".lock").touch()
    assert open_store(Path("elsewhere")).find(recipe(0)) is None
    link_stage("small", [])
    assert not left.exists()


def test_a_folder_that_can_not_be_written_is_one_error_and_stays_as_it_was(store: Store) -> None:
    artifact = stored(store, 0)
    folder = link_stage("small", [artifact])
    before = content(folder)
    shutil.rmtree(artifact.path)
    with pytest.raises(OutputError, match="stage 'stages/small' can't be written"):
        link_stage("small", [artifact])
    assert content(folder) == before


def test_linked_artifacts_are_found_and_linked_again_by_a_run_without_its_own(store: Store) -> None:
    artifact = stored(store, 0)
    folder = link_stage("small", [artifact])
    before = content(folder)
    store.remove([artifact.path])
    found = open_store(Path("elsewhere")).find(recipe(0))
    assert found is not None
    assert found.digest == artifact.digest
    assert found.path.is_relative_to(folder)
    link_stage("small", [found])
    assert content(folder) == before


def test_a_run_without_its_own_store_decodes_data_and_computes_nothing_else(workplace: Path, finished: Work) -> None:
    link_stage("tiny", finished.artifacts())
    work = prepare(tiny_settings(workplace, run={"store": str(workplace / "elsewhere")}))
    do(work)
    assert work.rows == finished.rows
    assert {path.parent.name for path in work.store.folders()} == {"data"}


def test_unfinished_results_are_not_linked(workplace: Path) -> None:
    with pytest.raises(OutputError, match="tiny: 4 results are missing; run it again"):
        prepare(tiny_settings(workplace)).artifacts()
