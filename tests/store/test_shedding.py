"""Artifacts that are shed: what stays of them, what is believed of it, and how they become whole again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.errors import CorruptArtifactError, InputError
from fedfisher_core.locks import LockedError
from fedfisher_core.store import Artifact, Content, Step, Store, read_document, read_tensors, read_timings
from fedfisher_core.store import store as implementation
from tests.store import test_hostile as hostile

STEP, CONTENT = hostile.STEP, hostile.CONTENT
TWO = Content(
    tensors={"tensors.safetensors": {"a": torch.ones(5)}, "kept.safetensors": {"b": torch.zeros(3)}},
    documents={"info.json": {"losses": [0.5]}},
    files={"payload.bin": b"payload"},
    timings={"seconds": 0.5},
)
SHEDS = """
import sys
from pathlib import Path
import tests.store.test_shedding as test
store = test.Store(Path(sys.argv[1]))
print("begins", flush=True)
while True:
    list(store.shed([test.Artifact("clients", test.STEP.key, "", store.root / "clients" / test.STEP.key)]))
    store.write(test.STEP, test.TWO)
"""
RUN = """
import sys, time
from pathlib import Path
from fedfisher_core.store import Store
with Store(Path(sys.argv[1])).rested_on("fedfisher run"):
    print("runs", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "artifacts")
    store.prepare()
    return store


def shed(store: Store, artifact: Artifact) -> tuple[Artifact, int]:
    ((gone, freed),) = store.shed([artifact])
    return gone, freed


def names(artifact: Artifact) -> set[str]:
    return {path.name for path in artifact.path.iterdir()}


def test_digest_documents_and_timings_stay(store: Store) -> None:
    written = store.write(STEP, TWO)
    sizes = sum((written.path / name).stat().st_size for name in names(written) if not name.endswith(".json"))
    assert store.can_shed(written)
    gone, freed = shed(store, written)
    assert freed == sizes
    assert gone.shed
    assert (gone.key, gone.digest, gone.path) == (written.key, written.digest, written.path)
    assert store.find(STEP) == gone
    assert names(gone) == {"manifest.json", "info.json", "shed.json"}
    assert read_document(gone, "info.json") == {"losses": [0.5]}
    assert read_timings(gone) == {"seconds": 0.5}
    with pytest.raises(CorruptArtifactError, match=r"tensors\.safetensors can't be read"):
        read_tensors(gone, "tensors.safetensors")
    assert not store.can_shed(gone)
    assert shed(store, gone) == (gone, 0)
    assert store.folders() == [gone.path]
    assert list((store.root / ".writing").iterdir()) == []


def test_writing_makes_it_whole_and_keeps_what_was_measured(store: Store) -> None:
    written = store.write(STEP, TWO)
    before = {path.name: path.read_bytes() for path in written.path.iterdir()}
    shed(store, written)
    slower = Content(tensors=TWO.tensors, documents=TWO.documents, files=TWO.files, timings={"seconds": 9.0})
    assert store.write(STEP, slower) == written == store.find(STEP)
    assert {path.name: path.read_bytes() for path in written.path.iterdir()} == before
    assert list((store.root / ".writing").iterdir()) == []


def test_what_came_out_otherwise_takes_its_place(store: Store) -> None:
    written = store.write(STEP, TWO)
    shed(store, written)
    other = store.write(STEP, CONTENT)
    assert other.digest != written.digest
    assert not other.shed
    assert store.find(STEP) == other
    assert names(other) == {"manifest.json", "info.json", "tensors.safetensors"}


def test_what_has_only_documents_is_never_shed(store: Store) -> None:
    written = store.write(STEP, Content(documents={"info.json": 1}))
    assert not store.can_shed(written)
    shed(store, written)
    assert store.find(STEP) == written
    assert names(written) == {"manifest.json", "info.json"}


def test_it_is_shed_from_the_marker_on_and_until_the_marker_goes(store: Store) -> None:
    written = store.write(STEP, TWO)
    whole = {path.name: path.read_bytes() for path in written.path.iterdir()}
    gone, _ = shed(store, written)
    for left in ("tensors.safetensors", "kept.safetensors", "payload.bin"):
        (written.path / left).write_bytes(whole[left])
        assert store.find(STEP) == gone
        assert store.can_shed(gone)
    assert shed(store, gone)[1] == sum(len(data) for name, data in whole.items() if not name.endswith(".json"))
    assert names(gone) == {"manifest.json", "info.json", "shed.json"}


def test_files_with_another_name_elsewhere_free_nothing(store: Store, tmp_path: Path) -> None:
    written = store.write(STEP, CONTENT)
    os.link(written.path / "tensors.safetensors", tmp_path / "linked")
    assert shed(store, written)[1] == 0
    assert (tmp_path / "linked").exists()


def test_a_whole_copy_elsewhere_is_as_good_and_is_left_alone(store: Store, tmp_path: Path) -> None:
    elsewhere = Store(tmp_path / "stage").write(STEP, CONTENT)
    gone, _ = shed(store, store.write(STEP, CONTENT))
    reader = Store(store.root, others=[tmp_path / "stage"])
    assert reader.find(STEP) == elsewhere
    assert not reader.can_shed(elsewhere)
    shed(Store(tmp_path / "stage"), elsewhere)
    assert reader.find(STEP) == gone
    store.remove([gone.path])
    found = reader.find(STEP)
    assert found is not None
    assert (found.path, found.shed) == (elsewhere.path, True)


def test_another_result_elsewhere_does_not_stand_for_it(store: Store, tmp_path: Path) -> None:
    Store(tmp_path / "stage").write(STEP, TWO)
    gone, _ = shed(store, store.write(STEP, CONTENT))
    assert Store(store.root, others=[tmp_path / "stage"]).find(STEP) == gone


def test_what_rests_on_it_is_reachable(store: Store) -> None:
    gone, _ = shed(store, store.write(STEP, CONTENT))
    user = store.write(Step("aggregates", "a", {}, {"client_0": gone.digest}), TWO)
    assert store.reachable([user.key]) == {user.path, gone.path}
    store.remove([gone.path])
    assert store.find(STEP) is None


def ends_at(number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """Do what a function does but for one call, as a kill would."""
    calls: list[str] = []

    def ends(path: Path, *given: Any, **named: Any) -> Any:
        if not path.name.endswith(".lock"):
            calls.append(path.name)
            if len(calls) == number + 1:
                raise KeyboardInterrupt
        return real(path, *given, **named)

    return ends


@pytest.mark.parametrize("call", ["replace", "unlink"])
@pytest.mark.parametrize("number", range(5))
def test_what_ends_at_any_step_leaves_it_whole_or_shed(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    written = store.write(STEP, TWO)
    for work in (lambda: shed(store, written), lambda: store.write(STEP, TWO)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, call, ends_at(number, getattr(Path, call)))
            with suppress(KeyboardInterrupt):
                work()
        found = store.find(STEP)
        assert found is not None
        assert found.digest == written.digest
        if found.shed:
            assert (written.path / "shed.json").exists()
        else:
            assert found == written
            assert names(written) == {"manifest.json", "info.json", *TWO.tensors, *TWO.files}
    assert store.write(STEP, TWO) == written


@pytest.mark.parametrize("number", range(2))
def test_a_kill_leaves_it_whole_or_shed(store: Store, number: int) -> None:
    whole = store.write(STEP, TWO)
    process = subprocess.Popen([sys.executable, "-c", SHEDS, str(store.root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        process.wait(timeout=0.05 + 0.137 * number)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    found = store.find(STEP)
    assert found is not None
    assert found.digest == whole.digest
    assert store.write(STEP, TWO) == whole
    assert read_tensors(whole, "kept.safetensors")["b"].tolist() == [0, 0, 0]


def marked(change: Callable[[dict[str, Any]], Any]) -> hostile.Damage:
    """Change what the marker says."""

    def damage(path: Path) -> None:
        said = json.loads((path / "shed.json").read_text())
        (path / "shed.json").write_text(json.dumps(change(said), separators=(",", ":"), sort_keys=True) + "\n")

    return damage


def marker_of_another(path: Path) -> None:
    other = Store(path.parents[1]).write(Step("data", "a", {}), TWO)
    shed(Store(path.parents[1]), other)
    shutil.copy(other.path / "shed.json", path / "shed.json")


def with_document_gone(path: Path) -> None:
    (path / "info.json").unlink()


def with_marker_gone(path: Path) -> None:
    (path / "shed.json").unlink()


HOSTILE: dict[str, hostile.Damage] = {
    "no marker": with_marker_gone,
    "empty marker": lambda path: (path / "shed.json").write_bytes(b""),
    "no JSON": lambda path: (path / "shed.json").write_bytes(b"\xff{"),
    "null": marked(lambda said: None),
    "deep": lambda path: (path / "shed.json").write_text("[" * 100_000),
    "another digest": marked(lambda said: said | {"artifact": "0" * 24}),
    "marker of another": marker_of_another,
    "one field more": marked(lambda said: said | {"more": 1}),
    "no files": marked(lambda said: said | {"removed": []}),
    "unknown file": marked(lambda said: said | {"removed": [*said["removed"], "more.bin"]}),
    "file outside": marked(lambda said: said | {"removed": ["../../../outside"]}),
    "absolute file": marked(lambda said: said | {"removed": ["/dev/zero"]}),
    "the manifest": marked(lambda said: said | {"removed": ["manifest.json"]}),
    "a document": marked(lambda said: said | {"removed": ["info.json", *said["removed"]]}),
    "file twice": marked(lambda said: said | {"removed": said["removed"] * 2}),
    "number for files": marked(lambda said: said | {"removed": 3}),
    "document gone": with_document_gone,
    "document changed": lambda path: (path / "info.json").write_text("[]"),
    "marker among the files": hostile.with_file("shed.json"),
    "another file in the manifest": hostile.with_file("more.bin"),
    **{
        f"{kind} for the marker": hostile.in_place_of("shed.json", make)
        for kind, make in {
            "pipe": os.mkfifo,
            "socket": hostile.a_socket,
            "device": hostile.a_device,
            "folder": hostile.a_deep_folder,
            "terabyte": hostile.a_terabyte,
            "dangling link": hostile.a_dangling_link,
            "link to itself": hostile.a_link_to_itself,
            "link to zeros": hostile.a_link_to_zeros,
        }.items()
    },
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_intact_is_made_again_with_one_warning(
    store: Store, caplog: pytest.LogCaptureFixture, damage: hostile.Damage
) -> None:
    written = store.write(STEP, CONTENT)
    shed(store, written)
    damage(written.path)
    assert store.find(STEP) is None
    (record,) = caplog.records
    assert f"artifact {written.path}" in record.getMessage()
    assert "computed again" in record.getMessage()
    assert store.write(STEP, CONTENT) == written == store.find(STEP)
    assert torch.equal(read_tensors(written, "tensors.safetensors")["a"], torch.ones(2, 3))


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_where_it_is_only_read_what_is_not_intact_is_passed_over(
    store: Store, tmp_path: Path, damage: hostile.Damage
) -> None:
    written = store.write(STEP, CONTENT)
    shed(store, written)
    damage(written.path)
    assert Store(tmp_path / "own", others=[store.root]).find(STEP) is None


def test_a_marker_beside_nothing_that_could_go_is_not_intact(store: Store) -> None:
    written = store.write(STEP, Content(documents={"info.json": 1}))
    (written.path / "shed.json").write_text(f'{{"artifact":"{written.digest}","removed":[]}}\n')
    assert store.find(STEP) is None


def test_a_full_or_locked_store_is_one_clear_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    written = store.write(STEP, CONTENT)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"run\.store=.* can't be written: No space left on device"):
        shed(store, written)
    assert store.find(STEP) == written


def test_only_who_is_the_only_run_is_told_so(store: Store) -> None:
    with store.rested_on("a") as lease:
        with lease.only() as only:
            assert only
        process = subprocess.Popen([sys.executable, "-c", RUN, str(store.root)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(2):
                with lease.only() as only:
                    assert not only
        finally:
            process.kill()
            process.communicate()
        with lease.only() as only:
            assert only


def test_no_run_begins_while_one_sheds_and_two_never_do_so_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "_LEASE_SECONDS", 0.2)
    with store.rested_on("a") as first:
        with store.rested_on("b") as second, first.only() as one, second.only() as two:
            assert not one
            assert not two
        with first.only() as only:
            assert only
            with pytest.raises(LockedError), store.rested_on("b"):
                pass
        with store.rested_on("b") as second, second.only() as two:
            assert not two


def test_what_only_looks_does_not_keep_a_run_from_shedding_but_a_prune(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "_ALONE_SECONDS", 0.2)
    with store.in_use("a look"), store.rested_on("a run") as lease, lease.only() as only:
        assert only
        with pytest.raises(LockedError), store.alone("prune"):
            pass


def test_what_another_run_has_made_in_the_place_of_a_shed_one_meanwhile_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shed(store, store.write(STEP, TWO))
    held = implementation.held
    theirs: list[Artifact] = []

    @contextmanager
    def late(*arguments: Any, **chosen: Any) -> Iterator[None]:
        monkeypatch.undo()
        theirs.append(store.write(STEP, Content(files={"theirs.bin": b"theirs"})))
        with held(*arguments, **chosen):
            yield

    monkeypatch.setattr(implementation, "held", late)
    ours = store.write(STEP, Content(files={"ours.bin": b"ours"}))
    assert [ours] == theirs == [store.find(STEP)]


def test_a_file_that_is_none_of_its_own_is_nothing_to_shed(store: Store) -> None:
    written = store.write(STEP, Content(documents={"info.json": {"losses": [0.5]}}))
    (written.path / "stray.bin").write_bytes(b"1")
    assert not store.can_shed(written)
