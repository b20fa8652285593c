"""Digests of files: the standard's, and those of stores that earlier versions have written."""

import hashlib
import json
from io import FileIO
from pathlib import Path

import pytest

from fedfisher_core.errors import CorruptArtifactError
from fedfisher_core.store import Artifact, Store, read_bytes, read_document
from fedfisher_core.store.digests import digest_of, file_has_digest, has_digest
from tests.store.test_hostile import sealed
from tests.store.test_shedding import STEP, TWO

EMPTY = "blake3-af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""The digest of nothing, among the standard's own test vectors."""
LARGE = bytes(range(256)) * 5000


def test_the_digest_is_that_of_the_standard() -> None:
    assert digest_of(b"") == EMPTY


@pytest.mark.parametrize("digest", [digest_of(LARGE), hashlib.sha256(LARGE).hexdigest()])
def test_a_changed_file_is_told_by_either_digest(tmp_path: Path, digest: str) -> None:
    for content, intact in ((LARGE, True), (LARGE[:-1], False), (LARGE + b"\0", False), (b"\1" + LARGE[1:], False)):
        (tmp_path / "file").write_bytes(content)
        with FileIO(tmp_path / "file") as file:
            assert file_has_digest(file, digest) == has_digest(content, digest) == intact


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "artifacts")
    store.prepare()
    return store


@pytest.fixture
def earlier(store: Store) -> Artifact:
    """An artifact of an earlier version, as a run finds it."""
    path = store.write(STEP, TWO).path
    names = json.loads((path / "manifest.json").read_text())["files"]
    sealed(path, files={name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names})
    found = store.find(STEP)
    assert found is not None
    return found


def test_a_store_of_an_earlier_version_is_read(earlier: Artifact) -> None:
    assert read_document(earlier, "info.json") == {"losses": [0.5]}
    assert read_bytes(earlier, "payload.bin") == b"payload"
    (earlier.path / "payload.bin").write_bytes(b"other")
    with pytest.raises(CorruptArtifactError, match=r"payload\.bin was changed"):
        read_bytes(earlier, "payload.bin")


def test_what_was_shed_of_it_becomes_whole_again(store: Store, earlier: Artifact) -> None:
    list(store.shed([earlier]))
    assert store.write(STEP, TWO) == earlier == store.find(STEP)
