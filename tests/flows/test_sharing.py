import os
from pathlib import Path
from typing import Any

import pytest
from fedfisher_core.steps.context import Context

from fedfisher_core.configuration import parse_settings
from fedfisher_core.settings import Settings
from fedfisher_core.store import Artifact, Content, Step, Store
from flows.sharing import export, is_default, own_name


def stored(store: Store, client: int) -> Artifact:
    step = Step(kind="clients", version=1, settings={"client": client})
    return store.write(step, Content(documents={"info.json": {"client": client}}))


@pytest.fixture
def project(workplace: Path) -> Path:
    """A working directory whose params.yaml names a benchmark."""
    (workplace / "params.yaml").write_text("name: small\nseeds: [0]\nmethods: [fedavg]\n")
    return workplace


def settings(**changes: Any) -> Settings:
    return parse_settings({"name": "small", "seeds": [0], "methods": ["fedavg"], **changes})


def test_only_the_settings_of_the_parameter_file_are_the_default(project: Path) -> None:
    assert is_default(settings())
    assert not is_default(settings(seeds=[1]))
    assert not is_default(settings(name="other"))
    (project / "params.yaml").unlink()
    assert not is_default(settings())


def test_other_settings_under_the_name_of_the_default_get_a_name_of_their_own(project: Path) -> None:
    assert own_name(settings()) == settings()
    changed = settings(seeds=[1])
    assert own_name(changed).name == f"small-{changed.digest()}"
    assert own_name(changed).model_copy(update={"name": "small"}) == changed
    assert own_name(settings(name="other", seeds=[1])).name == "other"
    (project / "params.yaml").unlink()
    assert own_name(changed) == changed


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
    step = Step(kind="clients", version=1, settings={"client": 0})
    store = Store(project / "artifacts")
    artifact = stored(store, 0)
    export("small", "clients", [artifact])
    store.remove([artifact.path])
    fresh = Context(settings(run={"store": "elsewhere"})).store
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
    found = Context(settings()).store.find(Step(kind="clients", version=1, settings={"client": 0}))
    assert found is not None
    export("small", "clients", [found])
    assert content(Path("stages")) == before


def test_a_stage_without_artifacts_is_an_empty_folder(project: Path) -> None:
    assert list(export("small", "clients", []).iterdir()) == []
