"""Digests of files: the standard's."""

from io import FileIO
from pathlib import Path

from fedfisher_core.engine.store.manifest import digest_of, file_has_digest, has_digest

EMPTY = "blake3-af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""The digest of nothing, among the standard's own test vectors."""
LARGE = bytes(range(256)) * 5000


def test_the_digest_is_that_of_the_standard() -> None:
    assert digest_of(b"") == EMPTY


def test_a_changed_file_has_another_digest(tmp_path: Path) -> None:
    digest = digest_of(LARGE)
    for content, intact in ((LARGE, True), (LARGE[:-1], False), (LARGE + b"\0", False), (b"\1" + LARGE[1:], False)):
        (tmp_path / "file").write_bytes(content)
        with FileIO(tmp_path / "file") as file:
            assert file_has_digest(file, digest) == has_digest(content, digest) == intact
