import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from fedfisher_core.errors import CorruptArtifactError, InputError
from fedfisher_core.store import (
    STAGES,
    Artifact,
    Content,
    Step,
    Store,
    map_tensors,
    open_store,
    read_document,
    read_tensors,
    read_timings,
)

STEP = Step(kind="clients", code="a", settings={"epochs": 3, "model": {"name": "mlp"}}, inputs={"data": "abc"})


def content(value: float = 1.0, *, seconds: float = 0.5) -> Content:
    return Content(
        tensors={"tensors.safetensors": {"a.weight": torch.full((2, 3), value), "b": torch.arange(4)}},
        documents={"info.json": {"losses": [0.5, 0.25], "name": "größe"}},
        timings={"seconds": seconds},
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "artifacts")
    store.prepare()
    return store


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_what_was_written_is_found_and_read(store: Store) -> None:
    assert store.find(STEP) is None
    written = store.write(STEP, content())
    assert written.path == store.root / "clients" / STEP.key
    assert store.find(STEP) == written
    tensors = read_tensors(written, "tensors.safetensors")
    assert torch.equal(tensors["a.weight"], torch.ones(2, 3))
    assert torch.equal(tensors["b"], torch.arange(4))
    assert read_document(written, "info.json") == {"losses": [0.5, 0.25], "name": "größe"}
    assert read_timings(written) == {"seconds": 0.5}


def _own_bytes() -> int:
    """Memory that this process shares with nobody."""
    (line,) = (one for one in Path("/proc/self/smaps_rollup").read_text().splitlines() if one.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def test_mapped_tensors_are_read_without_memory_of_ones_own_and_outlive_their_file(store: Store) -> None:
    # Numbers whose sum needs no copy of another type.
    written = store.write(STEP, Content(tensors={"tensors.safetensors": {"a": torch.ones(2**24)}}))
    before = _own_bytes()
    mapped = map_tensors(written, "tensors.safetensors")["a"]
    (written.path / "tensors.safetensors").unlink()
    assert mapped.sum() == 2**24
    assert _own_bytes() - before < 2**24


def test_nothing_half_written_remains(store: Store) -> None:
    written = store.write(STEP, content())
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
        Step(kind="statistics", code=STEP.code, settings=STEP.settings, inputs=STEP.inputs),
        Step(kind=STEP.kind, code="b", settings=STEP.settings, inputs=STEP.inputs),
        Step(kind=STEP.kind, code="a", settings={"epochs": 4, "model": {"name": "mlp"}}, inputs=STEP.inputs),
        Step(kind=STEP.kind, code="a", settings={"epochs": 3, "model": {"name": "cnn"}}, inputs=STEP.inputs),
        Step(kind=STEP.kind, code="a", settings=STEP.settings, inputs={"data": "abd"}),
        Step(kind=STEP.kind, code="a", settings=STEP.settings, inputs={"date": "abc"}),
        Step(kind=STEP.kind, code="a", settings=STEP.settings),
    ],
    ids=["kind", "code", "setting", "nested setting", "input", "role", "no inputs"],
)
def test_every_ingredient_changes_the_key(store: Store, other: Step) -> None:
    assert other.key != STEP.key
    store.write(STEP, content())
    assert store.find(other) is None


def test_the_order_of_settings_does_not_change_the_key() -> None:
    turned = Step(kind="clients", code="a", settings=dict(reversed(STEP.settings.items())), inputs=STEP.inputs)
    assert turned.key == STEP.key


def test_the_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    def digest(name: str, made: Content) -> str:
        return Store(tmp_path / name).write(STEP, made).digest

    first = digest("a", content(seconds=0.5))
    assert digest("b", content(seconds=9.0)) == first
    assert digest("c", content(value=2.0)) != first
    assert digest("d", Content(tensors=content().tensors)) != first


def test_files_of_other_formats_are_kept_as_they_are(store: Store) -> None:
    written = store.write(STEP, Content(files={"payload.bin": b"\x00\xff"}))
    assert (written.path / "payload.bin").read_bytes() == b"\x00\xff"
    assert store.find(STEP) == written
    flip(written.path / "payload.bin", 0)
    assert store.find(STEP) is None
    assert store.write(STEP, Content(files={"payload.bin": b"\x01\xff"})).digest != written.digest


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
    written = store.write(STEP, content())
    damage(written.path)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING, logger="fedfisher"):
        assert store.find(STEP) is None
    assert STEP.key in caplog.text
    assert "computed again" in caplog.text
    assert not written.path.exists()
    assert store.write(STEP, content()) == written
    assert store.find(STEP) == written


def test_no_flipped_byte_of_a_manifest_is_believed(store: Store, tmp_path: Path) -> None:
    written = store.write(STEP, content())
    manifest = written.path / "manifest.json"
    original = manifest.read_bytes()
    reader = Store(tmp_path / "empty", others=[store.root])
    for position in range(0, len(original), 4):
        flip(manifest, position)
        assert reader.find(STEP) is None, position
        manifest.write_bytes(original)
    assert reader.find(STEP) == written


def test_damage_after_the_search_is_noticed_when_reading(store: Store) -> None:
    written = store.write(STEP, content())
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
    written = store.write(STEP, content())
    other = Step(kind="clients", code="b", settings={})
    written.path.rename(written.path.parent / other.key)
    assert store.find(other) is None
    assert "says it is" in caplog.text


def test_writers_of_the_same_step_all_get_a_valid_artifact(store: Store) -> None:
    writers = 8
    barrier = Barrier(writers)

    def write(number: int) -> Artifact:
        barrier.wait()
        return store.write(STEP, content(seconds=float(number)))

    with ThreadPoolExecutor(writers) as pool:
        written = list(pool.map(write, range(writers)))
    assert set(written) == {store.find(STEP)}
    assert list((store.root / ".writing").iterdir()) == []


def test_whoever_comes_second_gets_what_the_first_has_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, rename = [], Path.rename

    def late(folder: Path, place: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        first.append(store.write(STEP, content(2.0)))
        return rename(folder, place)

    monkeypatch.setattr(Path, "rename", late)
    second = store.write(STEP, content(1.0))
    assert [second] == first
    assert torch.equal(read_tensors(second, "tensors.safetensors")["a.weight"], torch.full((2, 3), 2.0))


def test_a_failed_write_leaves_no_artifact(store: Store) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.write(STEP, Content(documents={"info.json": {"loss": float("nan")}}))
    assert store.find(STEP) is None
    assert store.folders() == []


def test_a_foreign_file_among_the_leftovers_stays(store: Store) -> None:
    foreign = store.root / ".writing" / ".DS_Store"
    foreign.write_bytes(b"")
    store.prepare()
    assert foreign.exists()


def test_a_half_written_folder_is_never_found(store: Store) -> None:
    written = store.write(STEP, content())
    half = store.root / ".writing" / f"{os.getpid()}-0123"
    written.path.rename(half)
    assert store.find(STEP) is None
    assert store.folders() == []


def test_a_root_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match=r"run\.store=.*file/artifacts' can't be written"):
        Store(file / "artifacts").prepare()


def test_other_roots_are_read_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = Store(tmp_path / "stages").write(STEP, content())
    store = Store(tmp_path / "artifacts", others=[tmp_path / "absent", tmp_path / "stages"])
    assert store.find(STEP) == elsewhere
    assert store.folders() == []
    _flip_tensors(elsewhere.path)
    assert store.find(STEP) is None
    assert "was changed" in caplog.text
    assert elsewhere.path.is_dir()
    own = store.write(STEP, content())
    assert store.find(STEP) == own
    assert own.path.is_relative_to(tmp_path / "artifacts")


def test_what_a_killed_export_left_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for half in (STAGES / "demo" / ".clients-abc", STAGES / ".demo" / "clients"):
        Store(half).write(STEP, content())
    assert open_store(Path("artifacts")).find(STEP) is None
    exported = Store(STAGES / "demo" / "clients").write(STEP, content())
    assert open_store(Path("artifacts")).find(STEP) == exported


def chain(store: Store) -> dict[str, Artifact]:
    """Data, two clients of it, and an aggregate of the first client."""
    data = store.write(Step("data", "a", {}), content(1))
    one = store.write(Step("clients", "a", {"client": 0}, {"data": data.digest}), content(2))
    two = store.write(Step("clients", "a", {"client": 1}, {"data": data.digest}), content(3))
    total = store.write(Step("aggregates", "a", {}, {"client_0": one.digest}), content(4))
    return {"data": data, "one": one, "two": two, "total": total}


def test_everything_that_an_artifact_was_made_from_is_reachable(store: Store) -> None:
    made = chain(store)
    assert store.reachable([made["total"].key]) == {made[name].path for name in ("total", "one", "data")}
    assert store.reachable([made["two"].key]) == {made["two"].path, made["data"].path}
    assert store.reachable(["absent"]) == set()


def test_all_artifacts_of_the_same_content_are_reachable(store: Store) -> None:
    first = store.write(Step("partitions", "a", {"seed": 0}), content(1))
    second = store.write(Step("partitions", "a", {"seed": 1}), content(1))
    assert first.digest == second.digest
    user = store.write(Step("clients", "a", {}, {"partition": first.digest}), content(2))
    assert store.reachable([user.key]) == {first.path, second.path, user.path}


def test_an_artifact_without_a_readable_manifest_is_not_reachable(store: Store) -> None:
    made = chain(store)
    _flip_manifest(made["two"].path)
    assert store.reachable([made["total"].key]) == {made[name].path for name in ("total", "one", "data")}
    assert store.reachable([made["two"].key]) == set()


def test_removed_artifacts_are_gone_and_others_stay(store: Store) -> None:
    made = chain(store)
    store.remove([made["two"].path, made["total"].path])
    assert store.folders() == sorted([made["data"].path, made["one"].path])
    assert store.find(Step("clients", "a", {"client": 1}, {"data": made["data"].digest})) is None
    assert store.find(Step("data", "a", {})) == made["data"]


def test_the_manifest_tells_what_made_an_artifact(store: Store) -> None:
    manifest = json.loads((store.write(STEP, content()).path / "manifest.json").read_text())
    assert manifest["settings"] == STEP.settings
    assert manifest["inputs"] == STEP.inputs
    assert manifest["libraries"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"python", "torch", "numpy", "nngeometry", "fedfisher"} <= manifest["libraries"].keys()


def test_what_was_measured_of_something_reachable_is_reachable(store: Store) -> None:
    def write(kind: str, number: int, **inputs: str) -> Artifact:
        return store.write(Step(kind, "code", {}, inputs), Content(documents={"number.json": number}))

    aggregate = write("aggregates", 1)
    measured = write("tests", 2, aggregate=aggregate.digest)
    write("others", 3, trained=aggregate.digest)
    assert store.reachable([aggregate.key]) == {aggregate.path, measured.path}
