"""A store in a bucket of a real object store, as several machines see it: each has a cache of its own."""

import os
import pickle
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfisher_core.engine.errors import CorruptArtifactError, InputError, UnwritableError
from fedfisher_core.engine.store import (
    STAGES,
    Artifact,
    Content,
    Mark,
    Recipe,
    Store,
    bucket_store,
    caching,
    map_tensors,
    names_of,
    open_store,
    path_of,
    read_document,
    read_tensors,
    read_timings,
)
from fedfisher_core.engine.store import bucket as buckets
from fedfisher_core.engine.store.bucket import Bucket
from fedfisher_core.engine.store.caching import manifest_name, trim
from fedfisher_core.settings import CacheSettings
from flows.sharing import link_stage

RECIPE = Recipe(kind="clients", version=1, settings={"epochs": 3}, inputs={"data": "abc"})
HOUR = 3600
SIZE = 10**6


def machine(url: str, name: str) -> Store:
    store = open_store(url, CacheSettings(folder=Path(name)))
    store.prepare()
    return store


def travelled(value: object) -> object:
    """What another process gets of it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - it was pickled here.


def seen_from(store: Store, artifact: Artifact) -> Artifact:
    """An artifact that another machine has told of."""
    return replace(artifact, path=store.root / artifact.kind / artifact.key)


def content(value: float = 1.0) -> Content:
    return Content(
        tensors={"tensors.safetensors": {"weight": torch.full((2, 3), value)}},
        documents={"info.json": {"name": "größe"}},
        files={"payload": b"\0\1"},
        timings={"seconds": 0.5},
    )


def test_a_service_that_has_and_has_not_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_store, "_PAUSE_SECONDS", 0)
    store = machine(url, "one")
    monkeypatch.setattr(Bucket, "write_new", lambda *_: False)
    with pytest.raises(
        InputError, match=rf"^{re.escape(url)}/clients/.*/manifest\.json can neither be written nor read"
    ):
        store.write(RECIPE, content())


def test_what_one_machine_writes_another_finds_and_reads(url: str) -> None:
    one, other = machine(url, "one"), machine(url, "other")
    assert other.find(RECIPE) is None
    written = one.write(RECIPE, content())
    found = other.find(RECIPE)
    assert found is not None
    assert (found.key, found.digest, found.path) == (written.key, written.digest, Path("other/clients") / RECIPE.key)
    for read in (read_tensors, map_tensors):
        assert torch.equal(read(found, "tensors.safetensors")["weight"], torch.ones(2, 3))
    assert read_document(found, "info.json") == {"name": "größe"}
    assert path_of(found, "payload").read_bytes() == b"\0\1"
    assert read_timings(found) == {"seconds": 0.5}
    assert sorted(names_of(found)) == ["info.json", "payload", "tensors.safetensors"]


def test_a_cache_that_is_full_costs_no_artifact_that_is_in_the_bucket(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise UnwritableError(f"{path} can't be written (run.cache.folder): No space left on device")

    one, other = machine(url, "one"), machine(url, "other")
    with monkeypatch.context() as patched:
        patched.setattr(bucket_store, "put", full)
        written = one.write(RECIPE, content())
    found = other.find(RECIPE)
    assert found is not None
    assert found.digest == written.digest
    assert torch.equal(read_tensors(found, "tensors.safetensors")["weight"], torch.ones(2, 3))


def test_only_what_is_read_travels(url: str) -> None:
    machine(url, "one").write(RECIPE, content())
    found = machine(url, "other").find(RECIPE)
    assert found is not None
    read_document(found, "info.json")
    assert {path.name for path in found.path.iterdir()} == {"manifest.json", "info.json"}


def test_it_is_the_artifact_that_a_folder_would_hold(url: str) -> None:
    local = Store(Path("local"))
    local.prepare()
    assert machine(url, "one").write(RECIPE, content()).digest == local.write(RECIPE, content()).digest


def test_of_two_that_make_the_same_one_has_made_it(url: str) -> None:
    first = machine(url, "one").write(RECIPE, content(1.0))
    late = machine(url, "other")
    second = late.write(RECIPE, content(2.0))
    assert second.digest == first.digest
    assert read_tensors(second, "tensors.safetensors")["weight"][0, 0] == 1
    assert late.find(RECIPE) == second


def test_results_of_writers_at_the_same_moment_are_never_mixed(url: str) -> None:
    """The service here lets several of them win."""
    made = {}
    together = threading.Barrier(6)

    def write(number: int) -> None:
        store = machine(url, f"machine-{number}")
        together.wait()
        made[number] = store.write(RECIPE, content(float(number)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    local = [Store(Path(f"local-{number}")).write(RECIPE, content(float(number))).digest for number in range(6)]
    reader = machine(url, "reader")
    for artifact in made.values():
        try:
            value = read_tensors(seen_from(reader, artifact), "tensors.safetensors")["weight"][0, 0]
        except CorruptArtifactError:
            continue
        assert local[int(value)] == artifact.digest
    stayed = reader.find(RECIPE)
    assert stayed is not None
    assert local[int(read_tensors(stayed, "tensors.safetensors")["weight"][0, 0])] == stayed.digest


def test_a_result_that_did_not_stay_is_named(url: str) -> None:
    lost = machine(url, "one").write(RECIPE, content(1.0))
    machine(f"{url}/b", "other").write(RECIPE, content(2.0))
    name = manifest_name(RECIPE.kind, RECIPE.key)
    stayed = Bucket(f"{url}/b").read(name, most_bytes=2**20)
    assert stayed is not None
    Bucket(url).write({name: stayed})
    with pytest.raises(CorruptArtifactError, match="was written by two machines at once, with different results"):
        read_document(seen_from(machine(url, "reader"), lost), "info.json")


def test_what_was_cut_off_before_its_manifest_is_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    store = machine(url, "one")
    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "write_new", killed)
        with pytest.raises(KeyboardInterrupt):
            store.write(RECIPE, content(1.0))
    assert store.find(RECIPE) is None
    again = store.write(RECIPE, content(2.0))
    assert read_tensors(again, "tensors.safetensors")["weight"][0, 0] == 2


def test_what_travels_is_read_through_the_cache_of_each_working_directory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = travelled(machine(url, "cache").write(RECIPE, content()))
    assert isinstance(written, Artifact)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_document(written, "info.json") == {"name": "größe"}
    assert (tmp_path / "elsewhere/cache/clients" / RECIPE.key / "info.json").is_file()


def test_a_stage_of_dvc_gets_all_files(url: str) -> None:
    machine(url, "one").write(RECIPE, content())
    found = machine(url, "other").find(RECIPE)
    assert found is not None
    folder = link_stage("benchmark", [found])
    whole = {"manifest.json", "info.json", "payload", "tensors.safetensors"}
    assert {path.name for path in (folder / "clients" / RECIPE.key).iterdir()} == whole


def test_a_damaged_copy_is_brought_again(url: str) -> None:
    written = machine(url, "one").write(RECIPE, content())
    for name in ("tensors.safetensors", "manifest.json", "payload"):
        (written.path / name).write_bytes(b"damaged")
    assert path_of(written, "payload").read_bytes() == b"\0\1"
    assert torch.equal(read_tensors(written, "tensors.safetensors")["weight"], torch.ones(2, 3))


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_object_is_named_and_made_again(url: str, damage: str) -> None:
    machine(url, "one").write(RECIPE, content())
    other, bucket = machine(url, "other"), Bucket(url)
    found = other.find(RECIPE)
    assert found is not None
    (name,) = [one for one in objects(url) if "/payload." in one]
    bucket.remove(name)
    if damage == "changed":
        bucket.write({name: b"other"})
    with pytest.raises(CorruptArtifactError, match=rf"{re.escape(url)}/clients/.*/payload\..* was {damage}"):
        path_of(found, "payload")
    assert other.find(RECIPE) is None
    assert path_of(other.write(RECIPE, content()), "payload").read_bytes() == b"\0\1"


def test_what_another_machine_has_made_again_meanwhile_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(url, "one").write(RECIPE, content())
    slow, third = machine(url, "slow"), machine(url, "third")
    found = slow.find(RECIPE)
    assert found is not None
    (name,) = [one for one in objects(url) if "/payload." in one]
    Bucket(url).write({name: b"other"})
    read = Bucket.read

    def read_slowly(bucket: Bucket, name: str, *, most_bytes: int) -> bytes | None:
        """Read what is there; before it is looked at, another machine finds the damage and mends it."""
        before = read(bucket, name, most_bytes=most_bytes)
        if before == b"other":
            monkeypatch.setattr(Bucket, "read", read)
            theirs = third.find(RECIPE)
            assert theirs is not None
            with pytest.raises(CorruptArtifactError):
                path_of(theirs, "payload")
            third.write(RECIPE, replace(content(), timings={"seconds": 0.7}))
        return before

    monkeypatch.setattr(Bucket, "read", read_slowly)
    assert path_of(found, "payload").read_bytes() == b"\0\1"
    assert manifest_name(RECIPE.kind, RECIPE.key) in [one.removeprefix("/") for one in objects(url)]


def test_a_manifest_that_another_machine_has_made_again_meanwhile_stays(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(url, "one").write(RECIPE, content())
    slow, third = machine(url, "slow"), machine(url, "third")
    Bucket(url).write({manifest_name(RECIPE.kind, RECIPE.key): b"{}"})

    with monkeypatch.context() as patch:

        def warn_late(_: str) -> None:
            patch.undo()
            assert third.find(RECIPE) is None
            third.write(RECIPE, content())

        patch.setattr(bucket_store, "warn", warn_late)
        assert slow.find(RECIPE) is None
    assert slow.find(RECIPE) is not None


def test_an_object_beyond_all_bounds_is_not_read(url: str) -> None:
    bucket = Bucket(url)
    bucket.write({"large": bytes(1000)})
    assert bucket.read("large", most_bytes=1000) == bytes(1000)
    with pytest.raises(CorruptArtifactError, match=rf"^{re.escape(url)}/large has 1000 bytes; allowed: 999"):
        bucket.read("large", most_bytes=999)


def test_a_damaged_manifest_is_said_and_made_again(url: str, caplog: pytest.LogCaptureFixture) -> None:
    store = machine(url, "one")
    store.write(RECIPE, content())
    Bucket(url).write({manifest_name(RECIPE.kind, RECIPE.key): b"{}"})
    assert store.find(RECIPE) is None
    assert f"{url}/clients/{RECIPE.key}/manifest.json" in caplog.text
    assert store.write(RECIPE, content()).key == RECIPE.key


def test_pulled_results_are_shared(url: str) -> None:
    pulled = Store(STAGES / "benchmark")
    pulled.prepare()
    pulled.write(RECIPE, content())
    found = machine(url, "one").find(RECIPE)
    assert found is not None
    pulled.root.rename("elsewhere")
    again = machine(url, "other").find(RECIPE)
    assert again is not None
    assert read_document(again, "info.json") == {"name": "größe"}


def test_a_cache_beyond_its_bound_loses_what_was_used_least_recently(url: str) -> None:
    store = machine(url, "one")
    steps = [Recipe(kind="clients", version=1, settings={"client": number}) for number in range(4)]
    files = [path_of(store.write(step, Content(files={"payload": bytes(SIZE)})), "payload") for step in steps]
    for age, path in enumerate(reversed(files), start=2):
        os.utime(path, (time.time() - age * HOUR,) * 2)
    found = store.find(steps[0])
    assert found is not None
    path_of(found, "payload")
    trim(Path("one"), int(3.8 * SIZE))
    assert [path.exists() for path in files] == [True, False, True, True]
    again = store.find(steps[1])
    assert again is not None
    assert path_of(again, "payload").read_bytes() == bytes(SIZE)


def test_writing_keeps_a_cache_within_its_bound(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_PAUSE_SECONDS", 0)
    store = bucket_store.BucketStore(url, Path("one"), most_bytes=SIZE)
    store.prepare()
    old, new = (Recipe(kind="clients", version=1, settings={"client": number}) for number in range(2))
    path = path_of(store.write(old, Content(files={"payload": bytes(SIZE)})), "payload")
    os.utime(path, (time.time() - 2 * HOUR,) * 2)
    store.write(new, Content(files={"payload": bytes(SIZE)}))
    assert not path.exists()


def test_reading_keeps_a_cache_within_its_bound(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_PAUSE_SECONDS", 0)
    steps = [Recipe(kind="clients", version=1, settings={"client": number}) for number in range(2)]
    for step in steps:
        machine(url, "writer").write(step, Content(files={"payload": bytes(SIZE)}))
    reader = bucket_store.BucketStore(url, Path("reader"), most_bytes=SIZE)
    old, new = (reader.find(step) for step in steps)
    assert old is not None
    assert new is not None
    path = path_of(old, "payload")
    os.utime(path, (time.time() - 2 * HOUR,) * 2)
    assert path_of(new, "payload").exists()
    assert not path.exists()


def test_files_that_are_no_artifact_s_stay_in_a_cache_of_any_size(tmp_path: Path) -> None:
    own = [tmp_path / "thesis/chapter/draft.tex", tmp_path / "site/page/manifest.json", tmp_path / "site/page/photo"]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(SIZE))
        os.utime(path, (time.time() - 2 * HOUR,) * 2)
    trim(tmp_path, 0)
    assert all(path.exists() for path in own)


def test_what_is_in_use_stays_in_a_cache_of_any_size(url: str) -> None:
    path = path_of(machine(url, "one").write(RECIPE, content()), "payload")
    trim(Path("one"), 0)
    assert path.exists()


def test_marks_are_seen_by_those_who_share_the_bucket(url: str) -> None:
    one, other = machine(url, "one"), machine(url, "other")
    with one.marked() as mark:
        assert other.sees(mark)
        assert not machine(f"{url}/elsewhere", "third").sees(mark)
        assert not other.sees(Mark(mark.name, "another"))
    assert not other.sees(mark)
    assert objects(url) == []


def test_nothing_in_it_may_be_deleted(url: str) -> None:
    store = machine(url, "one")
    store.write(RECIPE, content())
    assert not store.has(RECIPE.kind, RECIPE.key)


def objects(url: str) -> list[str]:
    """Names of all objects in a place."""
    place = Bucket(url)._location("")
    found = buckets._client().list_objects_v2(Bucket=place["Bucket"], Prefix=place["Key"])
    return [one["Key"].removeprefix(place["Key"]) for one in found.get("Contents", [])]
