"""Artifacts that are read, damaged ones among them, and which of them others were made from."""

import logging
import os
from pathlib import Path

import pytest
import torch

from fedfisher_core.engine.errors import CorruptArtifactError
from fedfisher_core.engine.store import (
    Artifact,
    Content,
    Recipe,
    Store,
    map_tensors,
    read_document,
    read_tensors,
)
from tests.engine.store.artifacts import RECIPE, chain, content, flip


def _own_bytes() -> int:
    """Memory that this process shares with no other."""
    (line,) = (one for one in Path("/proc/self/smaps_rollup").read_text().splitlines() if one.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def test_mapped_tensors_are_read_without_memory_of_ones_own_and_outlive_their_file(store: Store) -> None:
    # Numbers whose sum needs no copy of another type.
    written = store.write(RECIPE, Content(tensors={"tensors.safetensors": {"a": torch.ones(2**24)}}))
    before = _own_bytes()
    mapped = map_tensors(written, "tensors.safetensors")["a"]
    (written.path / "tensors.safetensors").unlink()
    assert mapped.sum() == 2**24
    assert _own_bytes() - before < 2**24


def _flip_tensors(path: Path) -> None:
    flip(path / "tensors.safetensors", -1)


def _flip_document(path: Path) -> None:
    flip(path / "info.json", 10)


def _flip_manifest(path: Path) -> None:
    flip(path / "manifest.json", 100)


def _change_timings(path: Path) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seconds": 0.5', '"seconds": 0.1'))


def _truncate_tensors(path: Path) -> None:
    os.truncate(path / "tensors.safetensors", 40)


def _truncate_manifest(path: Path) -> None:
    os.truncate(path / "manifest.json", 40)


def _lose_document(path: Path) -> None:
    (path / "info.json").unlink()


def _lose_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def _empty_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("{}")


def _other_json(path: Path) -> None:
    (path / "manifest.json").write_text("[1, 2]")


DAMAGES = [
    _flip_tensors,
    _flip_document,
    _flip_manifest,
    _change_timings,
    _truncate_tensors,
    _truncate_manifest,
    _lose_document,
    _lose_manifest,
    _empty_manifest,
    _other_json,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def test_a_damaged_artifact_is_removed_with_a_warning_and_made_again(
    store: Store, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    written = store.write(RECIPE, content())
    damage(written.path)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING, logger="fedfisher"):
        assert store.find(RECIPE) is None
    assert RECIPE.key in caplog.text
    assert "computed again" in caplog.text
    assert not written.path.exists()
    assert store.write(RECIPE, content()) == written
    assert store.find(RECIPE) == written


def test_no_flipped_byte_of_a_manifest_is_believed(store: Store, tmp_path: Path) -> None:
    written = store.write(RECIPE, content())
    manifest = written.path / "manifest.json"
    original = manifest.read_bytes()
    reader = Store(tmp_path / "empty", others=[store.root])
    for position in range(0, len(original), 4):
        flip(manifest, position)
        assert reader.find(RECIPE) is None, position
        manifest.write_bytes(original)
    assert reader.find(RECIPE) == written


def test_damage_after_the_search_is_noticed_when_reading(store: Store) -> None:
    written = store.write(RECIPE, content())
    _flip_tensors(written.path)
    with pytest.raises(CorruptArtifactError, match=r"tensors\.safetensors was changed"):
        read_tensors(written, "tensors.safetensors")
    with pytest.raises(CorruptArtifactError, match=r"tensors\.safetensors was changed"):
        map_tensors(written, "tensors.safetensors")
    assert read_document(written, "info.json")["losses"] == [0.5, 0.25]
    _lose_document(written.path)
    with pytest.raises(CorruptArtifactError, match=r"info\.json can't be read"):
        read_document(written, "info.json")


def test_an_artifact_under_another_key_is_not_believed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    written = store.write(RECIPE, content())
    other = Recipe(kind="clients", version=2, settings={})
    written.path.rename(written.path.parent / other.key)
    assert store.find(other) is None
    assert "says it is" in caplog.text


def test_other_roots_are_read_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = Store(tmp_path / "stages").write(RECIPE, content())
    store = Store(tmp_path / "artifacts", others=[tmp_path / "absent", tmp_path / "stages"])
    assert store.find(RECIPE) == elsewhere
    assert store.folders() == []
    _flip_tensors(elsewhere.path)
    assert store.find(RECIPE) is None
    assert "was changed" in caplog.text
    assert elsewhere.path.is_dir()
    own = store.write(RECIPE, content())
    assert store.find(RECIPE) == own
    assert own.path.is_relative_to(tmp_path / "artifacts")


def test_everything_that_an_artifact_was_made_from_is_reachable(store: Store) -> None:
    made = chain(store)
    assert store.reachable([made["total"].key]) == {made[name].path for name in ("total", "one", "data")}
    assert store.reachable([made["two"].key]) == {made["two"].path, made["data"].path}
    assert store.reachable(["absent"]) == set()


def test_of_artifacts_of_the_same_content_only_the_input_is_reachable(store: Store) -> None:
    first = store.write(Recipe("partitions", 1, {"seed": 0}), content(1))
    second = store.write(Recipe("partitions", 1, {"seed": 1}), content(1))
    assert first.digest == second.digest
    user = store.write(Recipe("clients", 1, {}, {"partition": first.key}), content(2))
    assert store.reachable([user.key]) == {first.path, user.path}


def test_an_artifact_without_a_readable_manifest_is_not_reachable(store: Store) -> None:
    made = chain(store)
    _flip_manifest(made["two"].path)
    assert store.reachable([made["total"].key]) == {made[name].path for name in ("total", "one", "data")}
    assert store.reachable([made["two"].key]) == set()


def test_what_was_measured_of_something_reachable_is_reachable(store: Store) -> None:
    def write(kind: str, number: int, **inputs: str) -> Artifact:
        return store.write(Recipe(kind, 1, {}, inputs), Content(documents={"number.json": number}))

    aggregate = write("aggregates", 1)
    measured = write("tests", 2, aggregate=aggregate.key)
    write("others", 3, trained=aggregate.key)
    assert store.reachable([aggregate.key]) == {aggregate.path, measured.path}
