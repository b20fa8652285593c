"""A store in a bucket: what exists there is what its manifest says, and machines keep copies of what they read."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedfisher_core.engine.errors import CorruptArtifactError, InputError, UnwritableError
from fedfisher_core.engine.files import parse_json
from fedfisher_core.engine.store.bucket import Bucket, BucketError
from fedfisher_core.engine.store.caching import keep_within, manifest_name, object_name, put
from fedfisher_core.engine.store.folder_store import NOTE_BYTES, Store
from fedfisher_core.engine.store.manifest import (
    MANIFEST,
    MOST_MANIFEST_BYTES,
    Artifact,
    Content,
    Recipe,
    content_digest,
    read_manifest,
    sealed,
)
from fedfisher_core.engine.store.reading import warn
from fedfisher_core.engine.store.writing import Mark

_SMALL = 2**10
_TRIES, _PAUSE_SECONDS = 20, 0.5


class BucketStore(Store):
    """Artifacts in a bucket, which any machine may read and write.

    Nothing in a bucket can be renamed, so the manifest is written last, and only if there is none: of two machines
    that make the same artifact one has made it, and the other takes what is there.

    Args:
        cache: folder of this machine's copies, relative to the working directory of each process.
    """

    _setting = "run.cache.folder"

    def __init__(self, url: str, cache: Path, *, most_bytes: int, others: Sequence[Path] = ()) -> None:
        super().__init__(cache, others)
        self._bucket = Bucket(url)
        self._most_bytes = most_bytes

    @property
    def location(self) -> str:
        """See `Store.location`."""
        return f"run.store={self._bucket.url!r}"

    def absolute(self) -> Store:
        """The same store: each process has its cache in a working directory of its own."""
        return self

    def prepare(self) -> None:
        """Make sure that bucket and cache can be written, and that the bucket tells whether an object is there.

        Raises:
            InputError: they can't, or it does not, or does not answer.
        """
        super().prepare()
        try:
            self._probe()
        except BucketError as error:
            # As long as nothing has been there, its address may be wrong.
            raise InputError(str(error)) from error
        except CorruptArtifactError as error:
            raise InputError(
                f"run.store={self._bucket.url!r} has an answer for what is not there: {error}; allowed: a service "
                "that speaks S3 in AWS_ENDPOINT_URL"
            ) from error

    def _probe(self) -> None:
        name, said = f".probe-{secrets.token_hex(8)}", secrets.token_bytes(8)
        there = self._bucket.read(name, most_bytes=_SMALL) is not None
        # Where the answer to the first try was lost, the second finds what the first has written.
        if there or not (self._bucket.write_new(name, said) or self._bucket.read(name, most_bytes=_SMALL) == said):
            raise InputError(f"run.store={self._bucket.url!r} holds objects that nobody wrote")
        overwritten = self._bucket.write_new(name, b"2")
        self._bucket.remove(name)
        if overwritten:
            raise InputError(
                f"run.store={self._bucket.url!r} writes over objects though it is asked not to (If-None-Match); "
                "allowed: a service that knows conditional writes"
            )

    def _read_note(self, name: str) -> bytes | None:
        return self._bucket.read(name, most_bytes=NOTE_BYTES)

    def _write_note(self, name: str, text: bytes) -> None:
        self._bucket.write({name: text})

    def find(self, recipe: Recipe) -> Artifact | None:
        """See `Store.find`; files are verified when they are read."""
        keep_within(self.root, self._most_bytes)
        found = self._there(recipe.kind, recipe.key)
        if found is None and (pulled := self.find_pulled(recipe)) is not None:
            names = [*read_manifest(pulled.path).files, MANIFEST]
            files = {name: (pulled.path / name).read_bytes() for name in names}
            found = self._write(recipe.kind, recipe.key, files)
        return found

    def refer(self, kind: str, key: str) -> Artifact | None:
        """See `Store.refer`."""
        return self._there(kind, key)

    def write(self, recipe: Recipe, content: Content) -> Artifact:
        """See `Store.write`."""
        return self._write(recipe.kind, recipe.key, sealed(recipe, content)[0])

    def has(self, kind: str, key: str) -> bool:
        """Nothing in a bucket may be deleted: who else reads from it is not known."""
        return False

    @contextmanager
    def marked(self) -> Iterator[Mark]:
        """See `Store.marked`."""
        mark = Mark.new()
        self._bucket.write({mark.name: mark.said.encode()})
        try:
            yield mark
        finally:
            self._bucket.remove(mark.name)

    def sees(self, mark: Mark) -> bool:
        """See `Store.sees`."""
        return self._bucket.read(mark.name, most_bytes=_SMALL) == mark.said.encode()

    def _write(self, kind: str, key: str, files: Mapping[str, bytes]) -> Artifact:
        """Write an artifact into the bucket, the manifest last, and keep a copy; or take what others have written."""
        digests = parse_json(files[MANIFEST])["files"]
        self._bucket.write({object_name(kind, key, name, digests[name]): files[name] for name in digests})
        for _ in range(_TRIES):
            if self._bucket.write_new(manifest_name(kind, key), files[MANIFEST]):
                break
            if (theirs := self._there(kind, key)) is not None:
                return theirs
            # Another machine is about to write it, or has just removed it.
            time.sleep(_PAUSE_SECONDS)
        else:
            raise InputError(f"{self._bucket.url}/{manifest_name(kind, key)} can neither be written nor read")
        try:
            for name, content in files.items():
                put(self.root / kind / key / name, content)
            keep_within(self.root, self._most_bytes)
        except UnwritableError as error:
            # The bucket has it; a later read here that can't keep a copy says so.
            warn(str(error))
        return self._artifact(kind, key, content_digest(digests))

    def _there(self, kind: str, key: str) -> Artifact | None:
        """Look into the bucket; a manifest that is not what was written is removed."""
        name, path, content = manifest_name(kind, key), self.root / kind / key, None
        try:
            content = self._bucket.read(name, most_bytes=MOST_MANIFEST_BYTES)
            if content is None:
                return None
            if not _is(path / MANIFEST, content):
                put(path / MANIFEST, content)
            return self._artifact(kind, key, content_digest(read_manifest(path).files))
        except CorruptArtifactError as error:
            warn(f"{self._bucket.url}/{name}: {error}; it is computed again")
            if content is None:
                # It is too large to be read.
                self._bucket.remove(name)
            else:
                self._bucket.remove_unchanged(name, content)
            return None

    def _artifact(self, kind: str, key: str, digest: str) -> Artifact:
        return Artifact(kind=kind, key=key, digest=digest, path=self.root / kind / key, bucket=self._bucket.url)


def _is(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False
