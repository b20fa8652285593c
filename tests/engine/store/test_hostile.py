"""What anyone may have put into a store: nothing of it crashes a run or hangs it, and all of it is made again."""

import hashlib
import json
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import Artifact, Content, Recipe, Store, read_document, read_tensors
from fedfisher_core.engine.store.manifest import digest_of

RECIPE = Recipe(kind="clients", version=1, settings={"epochs": 3, "model": {"name": "mlp"}}, inputs={"data": "abc"})
CONTENT = Content(
    tensors={"tensors.safetensors": {"a": torch.ones(2, 3)}},
    documents={"info.json": {"losses": [0.5]}},
    timings={"seconds": 0.5},
)
NOBODY = 65534

pytestmark = pytest.mark.timeout(120)
Damage = Callable[[Path], Any]


def digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(path: Path, **changes: Any) -> None:
    """Change a manifest and seal it again, as anyone can who knows the format."""
    manifest = json.loads((path / "manifest.json").read_text()) | changes
    del manifest["seal"]
    manifest = {name: value for name, value in manifest.items() if value is not ...}
    (path / "manifest.json").write_text(json.dumps(manifest | {"seal": digest(manifest)}))


def with_field(**changes: Any) -> Damage:
    return lambda path: sealed(path, **changes)


def with_file(name: str, content: bytes = b"x") -> Damage:
    """Name another file, with the right digest of what is there."""

    def damage(path: Path) -> None:
        files = json.loads((path / "manifest.json").read_text())["files"]
        sealed(path, files=files | {name: digest_of(content)})

    return damage


def with_content(name: str, content: bytes) -> Damage:
    """Change a file and seal the manifest again."""

    def damage(path: Path) -> None:
        (path / name).write_bytes(content)
        with_file(name, content)(path)

    return damage


def with_manifest(text: str) -> Damage:
    return lambda path: (path / "manifest.json").write_text(text)


def twice(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace("{", '{"kind": "other", ', 1))


def in_place_of(name: str, make: Damage) -> Damage:
    """Put something else in a file's place, or in the place of the artifact's folder where the name is a dot."""

    def damage(path: Path) -> None:
        place = (path / name).resolve()
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
        make(place)

    return damage


def at_the_kind(make: Damage) -> Damage:
    def damage(path: Path) -> None:
        shutil.rmtree(path.parent)
        make(path.parent)

    return damage


def a_file(path: Path) -> None:
    path.write_bytes(b"x")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def a_link_to_another_file(path: Path) -> None:
    path.symlink_to("tensors.safetensors")


def a_folder_behind_a_link(path: Path) -> None:
    elsewhere = path.parents[2] / "elsewhere" / "clients" / RECIPE.key
    Store(path.parents[2] / "elsewhere").write(RECIPE, CONTENT)
    path.symlink_to(elsewhere)


def a_kind_behind_a_link(path: Path) -> None:
    Store(path.parents[1] / "elsewhere").write(RECIPE, CONTENT)
    path.symlink_to(path.parents[1] / "elsewhere" / "clients")


def a_socket(path: Path) -> None:
    previous = Path.cwd()
    os.chdir(path.parent)
    try:
        # A socket's whole path would be too long.
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(previous)


def a_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


def a_terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def a_deep_folder(path: Path) -> None:
    path.mkdir()
    (path / "folder" / "in" / "folder").mkdir(parents=True)


HOSTILE: dict[str, Damage] = {
    "infinite number": with_field(timings={"seconds": float("inf")}),
    "number that overflows": lambda path: (path / "manifest.json").write_text(
        (path / "manifest.json").read_text().replace("0.5", "1e999")
    ),
    "no number": with_field(timings={"seconds": float("nan")}),
    "huge integer": with_field(timings={"seconds": 10**4000}),
    "5,000 digits": with_manifest('{"seal": ' + "9" * 5000 + "}"),
    "time as text": with_field(timings={"seconds": "0.5"}),
    "time as truth": with_field(timings={"seconds": True}),
    "deep list": with_manifest("[" * 100_000),
    "deep setting": with_manifest('{"seal": "", "settings": ' + '{"a":' * 100_000 + "1" + "}" * 100_001),
    "hidden depth": lambda path: (path / "manifest.json").write_text(
        (path / "manifest.json").read_text().replace('"epochs": 3', '"epochs": ' + "[" * 900 + "]" * 900)
    ),
    "no kind": with_field(kind=...),
    "no key": with_field(key=...),
    "no files": with_field(files=...),
    "no inputs": with_field(inputs=...),
    "no timings": with_field(timings=...),
    "one field more": with_field(more=1),
    "files as list": with_field(files=["info.json"]),
    "files as number": with_field(files=3),
    "digest as number": with_field(files={"info.json": 3}),
    "inputs as list": with_field(inputs=["abc"]),
    "input as number": with_field(inputs={"data": 5}),
    "kind as list": with_field(kind=["clients"]),
    "another version": with_field(version=2),
    "version as text": with_field(version="1"),
    "other settings": with_field(settings={"epochs": 4}),
    "other inputs": with_field(inputs={"data": "abd"}),
    "key twice": twice,
    "null": with_manifest("null"),
    "text": with_manifest('"seal"'),
    "no Unicode": lambda path: (path / "manifest.json").write_bytes(b"\xff\xfe\x00{"),
    "name that is absolute": with_file("/dev/zero"),
    "name that goes up": with_file("../../../outside"),
    "name with a folder": with_file("folder/info.json"),
    "name with a backslash": with_file("folder\\info.json"),
    "name with NUL": with_file("info\0.json"),
    "name with a line break": with_file("info\n.json"),
    "name that is half a character": with_file("\ud800"),
    "name that is a dot": with_file("."),
    "name that is empty": with_file(""),
    "name that is too long": with_file("n" * 300),
    "manifest named by itself": with_file("manifest.json"),
    "terabyte manifest": in_place_of("manifest.json", a_terabyte),
    "terabyte file": in_place_of("info.json", a_terabyte),
    "cut tensors": with_content("tensors.safetensors", b"\x08\0\0\0"),
    "huge header of tensors": with_content("tensors.safetensors", b"\xff" * 8 + b"{}"),
    "tensors of other bytes": with_content("tensors.safetensors", os.urandom(50)),
    "cut document": with_content("info.json", b'{"losses": [0.5'),
    "infinite document": with_content("info.json", b"[1e999]"),
    "deep document": with_content("info.json", b"[" * 100_000),
    **{
        f"{kind} for {name}": in_place_of(name, make)
        for name in ("manifest.json", "info.json")
        for kind, make in {
            "pipe": os.mkfifo,
            "socket": a_socket,
            "device": a_device,
            "folder": a_deep_folder,
            "dangling link": a_dangling_link,
            "link to itself": a_link_to_itself,
            "link to zeros": a_link_to_zeros,
            "link to a pipe": a_link_to_a_pipe,
            "link to another file": a_link_to_another_file,
        }.items()
    },
    **{
        f"{kind} for the folder": in_place_of(".", make)
        for kind, make in {
            "file": a_file,
            "pipe": os.mkfifo,
            "socket": a_socket,
            "device": a_device,
            "dangling link": a_dangling_link,
            "link to itself": a_link_to_itself,
            "link to a copy": a_folder_behind_a_link,
            "empty folder": Path.mkdir,
        }.items()
    },
    **{
        f"{kind} for the kind's folder": at_the_kind(make)
        for kind, make in {
            "file": a_file,
            "pipe": os.mkfifo,
            "dangling link": a_dangling_link,
            "link to itself": a_link_to_itself,
            "link to a copy": a_kind_behind_a_link,
        }.items()
    },
}


@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_it_is_not_intact_and_made_again_with_one_warning(
    store: Store, caplog: pytest.LogCaptureFixture, damage: Damage
) -> None:
    written = store.write(RECIPE, CONTENT)
    damage(written.path)
    with caplog.at_level(logging.WARNING, logger="fedfisher"):
        store.prepare()
        assert store.find(RECIPE) is None
        assert store.find(RECIPE) is None
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert f"artifact {written.path}" in message
    assert "computed again" in message
    assert message.isprintable()
    assert len(message) <= 500
    _is_made_again(store, written)


def _is_made_again(store: Store, written: Artifact) -> None:
    assert store.write(RECIPE, CONTENT) == written
    assert store.find(RECIPE) == written
    assert read_document(written, "info.json") == {"losses": [0.5]}
    assert torch.equal(read_tensors(written, "tensors.safetensors")["a"], torch.ones(2, 3))


@pytest.mark.drawn(20)
@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_stores_that_are_only_read_are_passed_over_with_one_warning(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Damage
) -> None:
    damage(store.write(RECIPE, CONTENT).path)
    reader = Store(tmp_path / "own", others=[store.root])
    with caplog.at_level(logging.WARNING, logger="fedfisher"):
        assert reader.find(RECIPE) is None
        assert reader.find(RECIPE) is None
    assert len(caplog.records) == 1
    _is_made_again(reader, reader.write(RECIPE, CONTENT))


@pytest.mark.drawn(20)
@pytest.mark.parametrize("damage", HOSTILE.values(), ids=HOSTILE)
def test_it_is_no_artifact_for_whoever_looks_at_all_of_them(store: Store, damage: Damage) -> None:
    written = store.write(RECIPE, CONTENT)
    other = store.write(Recipe("data", 1, {}), CONTENT)
    damage(written.path)
    assert store.reachable([RECIPE.key, other.key]) - {written.path} == {other.path}
    assert set(store.folders()) - {written.path} == {other.path}


@pytest.mark.parametrize("make", [a_file, os.mkfifo, a_dangling_link, a_link_to_itself])
@pytest.mark.parametrize("name", [".writing", ".locks"])
def test_a_folder_of_its_own_is_made_anew(store: Store, name: str, make: Damage) -> None:
    shutil.rmtree(store.root / name)
    make(store.root / name)
    store.prepare()
    assert store.find(RECIPE) is None
    assert store.write(RECIPE, CONTENT) == store.find(RECIPE)


@pytest.mark.parametrize("make", [a_file, os.mkfifo, a_dangling_link])
def test_a_store_that_is_no_folder_is_refused(tmp_path: Path, make: Damage) -> None:
    make(tmp_path / "artifacts")
    with pytest.raises(InputError, match=r"run\.store=.*artifacts' can't be written: File exists"):
        Store(tmp_path / "artifacts").prepare()


@pytest.fixture
def user_store(store: Store) -> Iterator[Store]:
    """A store of an ordinary user, whom permissions bind."""
    if os.geteuid() == 0:
        for folder in [*store.root.parents][:-2]:
            with suppress(PermissionError):
                folder.chmod(folder.stat().st_mode | 0o011)
        for path in [store.root, *store.root.rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
    yield store
    for path in [store.root, *store.root.rglob("*")]:
        path.chmod(0o755)


@contextmanager
def as_user() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["manifest.json", "info.json"])
def test_what_may_not_be_read_is_made_again(user_store: Store, name: str) -> None:
    with as_user():
        written = user_store.write(RECIPE, CONTENT)
        (written.path / name).chmod(0)
        assert user_store.find(RECIPE) is None
        _is_made_again(user_store, written)


@pytest.mark.parametrize("mode", [0, 0o500])
@pytest.mark.parametrize("level", ["artifact", "kind"])
def test_what_may_not_be_removed_is_one_clear_error(user_store: Store, level: str, mode: int) -> None:
    with as_user():
        written = user_store.write(RECIPE, CONTENT)
        (written.path / "info.json").write_text("[]")
        (written.path if level == "artifact" else written.path.parent).chmod(mode)
        with pytest.raises(InputError, match=rf"{RECIPE.key} can't be removed: Permission denied; remove it by hand"):
            user_store.find(RECIPE)


def test_folders_too_deep_for_a_recursion_crash_nothing(store: Store) -> None:
    written = store.write(RECIPE, CONTENT)
    (written.path / "info.json").write_text("[]")
    folder = os.open(written.path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    try:
        assert store.find(RECIPE) is None
    except InputError as error:
        assert f"{RECIPE.key} can't be removed: it is nested too deeply" in str(error)  # noqa: PT017
    finally:
        subprocess.run(["rm", "-rf", written.path], check=True)


def test_a_store_that_may_not_be_written_is_refused(user_store: Store) -> None:
    with as_user():
        (user_store.root / ".writing").chmod(0o500)
        with pytest.raises(InputError, match=r"run\.store=.*artifacts' can't be written: Permission denied"):
            user_store.prepare()
