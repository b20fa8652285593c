import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import (
    STAGES,
    Artifact,
    Content,
    Recipe,
    Store,
    open_store,
    read_document,
    read_tensors,
    read_timings,
)
from tests.engine.store.artifacts import RECIPE, chain, content, flip


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


def test_nothing_half_written_remains(store: Store) -> None:
    written = store.write(RECIPE, content())
    assert sorted(path.name for path in written.path.iterdir()) == [
        "info.json",
        "manifest.json",
        "tensors.safetensors",
    ]
    assert list((store.root / ".writing").iterdir()) == []
    assert store.folders() == [written.path]


def test_files_of_other_formats_are_kept_as_they_are(store: Store) -> None:
    written = store.write(RECIPE, Content(files={"payload.bin": b"\x00\xff"}))
    assert (written.path / "payload.bin").read_bytes() == b"\x00\xff"
    assert store.find(RECIPE) == written
    flip(written.path / "payload.bin", 0)
    assert store.find(RECIPE) is None
    assert store.write(RECIPE, Content(files={"payload.bin": b"\x01\xff"})).digest != written.digest


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


def test_what_a_killed_export_left_is_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Store(STAGES / ".writing").write(RECIPE, content())
    assert open_store(Path("artifacts")).find(RECIPE) is None
    exported = Store(STAGES / "demo").write(RECIPE, content())
    assert open_store(Path("artifacts")).find(RECIPE) == exported


def test_removed_artifacts_are_gone_and_others_stay(store: Store) -> None:
    made = chain(store)
    store.remove([made["two"].path, made["total"].path])
    assert store.folders() == sorted([made["data"].path, made["one"].path])
    assert store.find(Recipe("clients", 1, {"client": 1}, {"data": made["data"].key})) is None
    assert store.find(Recipe("data", 1, {})) == made["data"]


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
    store.note_versions({"TrainClient": 2, "SplitData": 1})
    store.note_versions({"TrainClient": 3})
    store.note_versions({"SplitData": 1, "DecodeData": 1})
    # A question notes nothing.
    store.require_versions({"TrainClient": 4})
    store.require_versions({"TrainClient": 3})
    with pytest.raises(InputError) as refused:
        Store(store.root).require_versions({"TrainClient": 2})
    assert str(refused.value) == (
        f"{store.location} has results of TrainClient by version 3 of its code, which is version 2 here; allowed: the "
        "newer code, or another run.store"
    )


def test_two_runs_that_note_versions_at_once_keep_both_notes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real, others = Store._noted_versions, list[Thread]()

    def read(self: Store) -> dict[str, int]:
        noted = real(self)
        if not others:
            # Another run begins between this one's reading and writing.
            others.append(Thread(target=lambda: Store(store.root).note_versions({"SplitData": 1})))
            others[0].start()
            others[0].join(timeout=0.5)
        return noted

    monkeypatch.setattr(Store, "_noted_versions", read)
    store.note_versions({"TrainClient": 1})
    others[0].join()
    for name in ("TrainClient", "SplitData"):
        with pytest.raises(InputError, match=name):
            store.require_versions({name: 0})


def test_others_can_read_the_note_of_versions(store: Store) -> None:
    before = os.umask(0o022)
    try:
        store.note_versions({"TrainClient": 1})
    finally:
        os.umask(before)
    assert (store.root / ".versions.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("text", ["[]", '{"TrainClient": "3"}', "{", "7" * 400])
def test_a_damaged_note_of_versions_is_named(store: Store, text: str) -> None:
    (store.root / ".versions.json").write_text(text)
    with pytest.raises(InputError, match=r"damaged note '\.versions\.json'; allowed: to delete it"):
        store.require_versions({"TrainClient": 1})
