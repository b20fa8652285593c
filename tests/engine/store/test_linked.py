"""Artifacts whose files are links, as DVC makes them to a cache that several folders share."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedfisher_core.engine.store import (
    Artifact,
    Content,
    Recipe,
    Store,
    map_tensors,
    open_store,
    read_document,
    read_tensors,
)

RECIPE = Recipe(kind="clients", version=1, settings={"epochs": 3})
CONTENT = Content(tensors={"tensors.safetensors": {"a": torch.ones(2, 3)}}, documents={"info.json": {"n": 1}})


def absolute(kept: Path, link: Path) -> None:
    link.symlink_to(kept.absolute())


def relative(kept: Path, link: Path) -> None:
    link.symlink_to(os.path.relpath(kept, link.parent))


def twice(kept: Path, link: Path) -> None:
    absolute(kept, kept.with_name(f"{kept.name}.link"))
    link.symlink_to(kept.with_name(f"{kept.name}.link"))


def hard(kept: Path, link: Path) -> None:
    os.link(kept, link)


def linked(folder: Path, make: Callable[[Path, Path], None]) -> Path:
    """Move the files of an artifact into a cache, as DVC does, and link them from where they were; the cache."""
    cache = folder.parents[2] / "cache"
    cache.mkdir()
    for file in list(folder.iterdir()):
        kept = file.rename(cache / file.name)
        kept.chmod(0o444)
        make(kept, file)
    return cache


def require_intact(artifact: Artifact | None) -> None:
    assert artifact is not None
    assert read_document(artifact, "info.json") == {"n": 1}
    for read in (read_tensors, map_tensors):
        assert torch.equal(read(artifact, "tensors.safetensors")["a"], torch.ones(2, 3))


@pytest.mark.parametrize("make", [absolute, relative, twice, hard])
@pytest.mark.parametrize("is_own", [False, True])
def test_what_links_lead_to_is_found_and_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path, Path], None], is_own: bool
) -> None:
    first = Store(tmp_path / "first")
    linked(first.write(RECIPE, CONTENT).path, make)
    store = first if is_own else Store(tmp_path / "own", others=[tmp_path / "first"])
    require_intact(store.find(RECIPE))
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["manifest.json", "info.json", "tensors.safetensors"])
def test_what_was_changed_behind_a_link_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    first = Store(tmp_path / "first")
    kept = linked(first.write(RECIPE, CONTENT).path, absolute) / name
    content = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(content.replace(b"1", b"2") + b" ")
    assert Store(tmp_path / "own", others=[tmp_path / "first"]).find(RECIPE) is None
    assert len(caplog.messages) == 1


def test_to_delete_what_is_linked_leaves_the_cache_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "first")
    written = store.write(RECIPE, CONTENT)
    cache = linked(written.path, absolute)
    store.delete(written.kind, written.key)
    assert not written.path.exists()
    assert (cache / "tensors.safetensors").is_file()
    require_intact(store.write(RECIPE, CONTENT))


@pytest.mark.drawn(1)
@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", ["symlink", "hardlink", "copy"])
def test_what_dvc_has_linked_is_found_and_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written = Store(Path("artifacts")).write(RECIPE, CONTENT)
    shutil.copytree(written.path, f"stages/demo/clients/{RECIPE.key}")
    shutil.rmtree("artifacts")

    def dvc(*arguments: str) -> None:
        subprocess.run([str(Path(sys.executable).with_name("dvc")), *arguments], check=True, capture_output=True)

    dvc("init", "--no-scm")
    dvc("cache", "dir", str(tmp_path.with_name(f"{tmp_path.name}-cache")))
    dvc("config", "cache.type", kind)
    dvc("add", "stages/demo")
    shutil.rmtree("stages/demo")
    dvc("checkout")
    files = list(Path("stages/demo/clients", RECIPE.key).iterdir())
    assert len(files) == 3
    assert all(file.is_symlink() == (kind == "symlink") for file in files)
    require_intact(open_store(Path("artifacts")).find(RECIPE))
    assert caplog.messages == []
