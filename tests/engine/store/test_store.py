import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from fedfisher_core.engine.errors import CorruptArtifactError, InputError
from fedfisher_core.engine.store import (
    STAGES,
    Artifact,
    Content,
    Recipe,
    Store,
    map_tensors,
    open_store,
    read_document,
    read_tensors,
    read_timings,
)

RECIPE = Recipe(kind="clients", version=1, settings={"epochs": 3, "model": {"name": "mlp"}}, inputs={"data": "abc"})


def content(value: float = 1.0, *, seconds: float = 0.5) -> Content:
    return Content(
        tensors={"tensors.safetensors": {"a.weight": torch.full((2, 3), value), "b": torch.arange(4)}},
        documents={"info.json": {"losses": [0.5, 0.25], "name": "größe"}},
        timings={"seconds": seconds},
    )


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_what_was_written_is_found_and_read(store: Store) -> None:
    assert store.find(RECIPE) is None
    written = store.write(RECIPE, content())
    assert written.path == store.root / "clients" / RECIPE.key
    assert store.find(RECIPE) == written
    tensors = read_tensors(written, "tensors.safetensors")
    assert torch.equal(tensors["a.weight"], torch.ones(2, 3))
    assert torch.equal(tensors["b"], torch.arange(4))
    assert read_document(written, "info.json") == {"losses": [0.5, 0.25], "name": "größe"}
    assert read_timings(written) == {"seconds": 0.5}


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


def test_nothing_half_written_remains(store: Store) -> None:
    written = store.write(RECIPE, content())
    assert sorted(path.name for path in written.path.iterdir()) == [
        "info.json",
        "manifest.json",
        "tensors.safetensors",
    ]
    assert list((store.root / ".writing").iterdir()) == []
    assert store.folders() == [written.path]


@pytest.mark.parametrize(
    "other",
    [
        Recipe(kind="statistics", version=1, settings=RECIPE.settings, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=2, settings=RECIPE.settings, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=1, settings={"epochs": 4, "model": {"name": "mlp"}}, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=1, settings={"epochs": 3, "model": {"name": "cnn"}}, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=1, settings=RECIPE.settings, inputs={"data": "abd"}),
        Recipe(kind=RECIPE.kind, version=1, settings=RECIPE.settings, inputs={"date": "abc"}),
        Recipe(kind=RECIPE.kind, version=1, settings=RECIPE.settings),
    ],
    ids=["kind", "version", "setting", "nested setting", "input", "role", "no inputs"],
)
def test_every_ingredient_changes_the_key(store: Store, other: Recipe) -> None:
    assert other.key != RECIPE.key
    store.write(RECIPE, content())
    assert store.find(other) is None


def test_the_order_of_settings_does_not_change_the_key() -> None:
    turned = Recipe(kind="clients", version=1, settings=dict(reversed(RECIPE.settings.items())), inputs=RECIPE.inputs)
    assert turned.key == RECIPE.key


def test_the_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    def digest(name: str, made: Content) -> str:
        return Store(tmp_path / name).write(RECIPE, made).digest

    first = digest("a", content(seconds=0.5))
    assert digest("b", content(seconds=9.0)) == first
    assert digest("c", content(value=2.0)) != first
    assert digest("d", Content(tensors=content().tensors)) != first


def test_files_of_other_formats_are_kept_as_they_are(store: Store) -> None:
    written = store.write(RECIPE, Content(files={"payload.bin": b"\x00\xff"}))
    assert (written.path / "payload.bin").read_bytes() == b"\x00\xff"
    assert store.find(RECIPE) == written
    flip(written.path / "payload.bin", 0)
    assert store.find(RECIPE) is None
    assert store.write(RECIPE, Content(files={"payload.bin": b"\x01\xff"})).digest != written.digest


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


def test_writers_of_the_same_result_all_get_a_valid_artifact(store: Store) -> None:
    writers = 8
    barrier = Barrier(writers)

    def write(number: int) -> Artifact:
        barrier.wait()
        return store.write(RECIPE, content(seconds=float(number)))

    with ThreadPoolExecutor(writers) as pool:
        written = list(pool.map(write, range(writers)))
    assert set(written) == {store.find(RECIPE)}
    assert list((store.root / ".writing").iterdir()) == []


def test_whoever_comes_second_gets_what_the_first_has_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, rename = [], Path.rename

    def late(folder: Path, place: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        first.append(store.write(RECIPE, content(2.0)))
        return rename(folder, place)

    monkeypatch.setattr(Path, "rename", late)
    second = store.write(RECIPE, content(1.0))
    assert [second] == first
    assert torch.equal(read_tensors(second, "tensors.safetensors")["a.weight"], torch.full((2, 3), 2.0))


def test_a_failed_write_leaves_no_artifact(store: Store) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.write(RECIPE, Content(documents={"info.json": {"loss": float("nan")}}))
    assert store.find(RECIPE) is None
    assert store.folders() == []


def test_a_foreign_file_among_the_leftovers_stays(store: Store) -> None:
    foreign = store.root / ".writing" / ".DS_Store"
    foreign.write_bytes(b"")
    store.prepare()
    assert foreign.exists()


def test_a_half_written_folder_is_never_found(store: Store) -> None:
    written = store.write(RECIPE, content())
    half = store.root / ".writing" / f"{os.getpid()}-0123"
    written.path.rename(half)
    assert store.find(RECIPE) is None
    assert store.folders() == []


def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match=r"run\.store=.*file/artifacts' can't be written"):
        Store(file / "artifacts").prepare()


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


def test_what_a_killed_export_left_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Store(STAGES / ".writing").write(RECIPE, content())
    assert open_store(Path("artifacts")).find(RECIPE) is None
    exported = Store(STAGES / "demo").write(RECIPE, content())
    assert open_store(Path("artifacts")).find(RECIPE) == exported


def chain(store: Store) -> dict[str, Artifact]:
    """Data, two clients of it, and an aggregate of the first client."""
    data = store.write(Recipe("data", 1, {}), content(1))
    one = store.write(Recipe("clients", 1, {"client": 0}, {"data": data.key}), content(2))
    two = store.write(Recipe("clients", 1, {"client": 1}, {"data": data.key}), content(3))
    total = store.write(Recipe("aggregates", 1, {}, {"client_0": one.key}), content(4))
    return {"data": data, "one": one, "two": two, "total": total}


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


def test_removed_artifacts_are_gone_and_others_stay(store: Store) -> None:
    made = chain(store)
    store.remove([made["two"].path, made["total"].path])
    assert store.folders() == sorted([made["data"].path, made["one"].path])
    assert store.find(Recipe("clients", 1, {"client": 1}, {"data": made["data"].key})) is None
    assert store.find(Recipe("data", 1, {})) == made["data"]


def test_the_manifest_tells_what_made_an_artifact(store: Store) -> None:
    manifest = json.loads((store.write(RECIPE, content()).path / "manifest.json").read_text())
    assert manifest["version"] == RECIPE.version
    assert manifest["settings"] == RECIPE.settings
    assert manifest["inputs"] == RECIPE.inputs
    assert manifest["libraries"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"python", "torch", "numpy", "nngeometry", "fedfisher"} <= manifest["libraries"].keys()


def test_what_was_measured_of_something_reachable_is_reachable(store: Store) -> None:
    def write(kind: str, number: int, **inputs: str) -> Artifact:
        return store.write(Recipe(kind, 1, {}, inputs), Content(documents={"number.json": number}))

    aggregate = write("aggregates", 1)
    measured = write("tests", 2, aggregate=aggregate.key)
    write("others", 3, trained=aggregate.key)
    assert store.reachable([aggregate.key]) == {aggregate.path, measured.path}


def test_a_deleted_artifact_is_gone_and_its_bytes_are_counted(store: Store) -> None:
    made = chain(store)
    sizes = sum(path.stat().st_size for path in made["one"].path.iterdir())
    assert store.has("clients", made["one"].key)
    assert store.delete("clients", made["one"].key) == sizes
    assert not store.has("clients", made["one"].key)
    assert store.refer("clients", made["one"].key) is None
    assert store.refer("clients", made["two"].key) == made["two"]
    assert list((store.root / ".writing").iterdir()) == []


def test_files_with_another_name_elsewhere_free_nothing_when_deleted(store: Store, tmp_path: Path) -> None:
    written = store.write(RECIPE, content())
    for path in written.path.iterdir():
        os.link(path, tmp_path / path.name)
    assert store.delete("clients", written.key) == 0
    assert (tmp_path / "info.json").exists()


def test_what_is_only_read_is_not_deleted(tmp_path: Path) -> None:
    elsewhere = Store(tmp_path / "stages").write(RECIPE, content())
    store = Store(tmp_path / "artifacts", others=[tmp_path / "stages"])
    assert store.refer("clients", elsewhere.key) == elsewhere
    assert not store.has("clients", elsewhere.key)


def test_a_store_of_the_earlier_layout_is_refused_and_can_be_pruned(store: Store) -> None:
    written = store.write(RECIPE, content())
    manifest = json.loads((written.path / "manifest.json").read_text())
    del manifest["version"], manifest["seal"]
    old = manifest | {"code": "a"}
    seal = hashlib.sha256(json.dumps(old, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    (written.path / "manifest.json").write_text(json.dumps(old | {"seal": seal}))
    with pytest.raises(InputError, match=r"earlier layout, which are not read; allowed: .*`fedfisher store prune`"):
        store.prepare()
    assert store.folders() == [written.path]
    store.remove(store.folders())
    store.prepare()


def test_code_that_is_older_than_what_made_results_is_refused(store: Store) -> None:
    store.require_versions({"TrainClient": 2, "SplitData": 1})
    store.require_versions({"TrainClient": 3})
    store.require_versions({"SplitData": 1, "DecodeData": 1})
    with pytest.raises(InputError) as refused:
        Store(store.root).require_versions({"TrainClient": 2})
    assert str(refused.value) == (
        f"{store.location} has results of TrainClient by version 3 of its code, which is version 2 here; allowed: the "
        "newer code, or another run.store"
    )


@pytest.mark.parametrize("text", ["[]", '{"TrainClient": "3"}', "{", "7" * 400])
def test_a_damaged_note_of_versions_is_named(store: Store, text: str) -> None:
    (store.root / ".versions.json").write_text(text)
    with pytest.raises(InputError, match=r"damaged note '\.versions\.json'; allowed: to delete it"):
        store.require_versions({"TrainClient": 1})
