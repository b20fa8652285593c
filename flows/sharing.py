"""Hand the default experiment's artifacts to DVC, which versions and shares them."""

import filecmp
import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from fedfisher_core.errors import OutputError
from fedfisher_core.experiments.loading import is_default
from fedfisher_core.store import STAGES, Artifact, folder_of
from flows.work import Work
from tasks.waiting import patiently_held

log = logging.getLogger("fedfisher")

REPORT = "report"
"""The last of DVC's stages, after those of the plan."""

_LOCK = Path("dvc.lock")
_COPY = Path(".dvc/tmp/dvc.lock.before")
_NO_STAGES = b"schema: '2.0'\nstages: {}\n"
# There from before stages are exported until DVC has committed all of them.
_UNFINISHED = STAGES / ".unfinished"
_WRITING = ".writing-"
_PATIENCE_SECONDS = 600
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def export(benchmark: str, stage: str, artifacts: Iterable[Artifact]) -> Path:
    """Make a stage's output folder: exactly these artifacts, linked from where they are.

    Args:
        benchmark: its name.
        stage: its name.
        artifacts: what the stage's parameters name.

    Returns:
        The folder, `stages/<benchmark>/<stage>`.

    Raises:
        LockedError: another process exports for too long.
        OutputError: the folder can't be written.
    """
    with _alone():
        return _export(benchmark, stage, artifacts)


def share(work: Work) -> None:
    """Commit the artifacts and the report of the default experiment to DVC, where DVC already keeps them.

    The results are complete without it: what fails is said in one warning, and tried again by the next run.

    Args:
        work: finished.
    """
    if not _LOCK.is_file() or not is_default(work.settings):
        return
    try:
        with _alone():
            _commit(work)
    except Exception as error:  # noqa: BLE001 - DVC, and what it calls, fail in many ways; none undoes the results.
        reason = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
        log.warning("the results are complete, but DVC does not share them: %s", reason[:500])


def _commit(work: Work) -> None:
    _UNFINISHED.touch()
    for stage in work.plan.stages:
        _export(work.settings.name, stage, work.artifacts(stage))
    # Importing DVC takes seconds, which no other run should spend.
    os.environ.setdefault("DVC_NO_ANALYTICS", "true")
    from dvc.repo import Repo

    with Repo(".") as repository, _never_cut_off(_LOCK):
        for stage in (*work.plan.stages, REPORT):
            repository.commit(target=stage, force=True)
    _UNFINISHED.unlink()


def is_shared(work: Work) -> bool:
    """Say whether the stages' folders hold what they should and DVC knows of it, if DVC keeps them at all.

    Args:
        work: finished, with the settings of params.yaml.

    Returns:
        Whether nothing is left to be exported.
    """
    if not _LOCK.is_file():
        return True
    folders = {stage: STAGES / work.settings.name / stage for stage in work.plan.stages}
    if _UNFINISHED.exists() or not all(_holds(folders[stage], work.artifacts(stage)) for stage in folders):
        return False
    return _is_committed([*folders, REPORT])


def _holds(folder: Path, artifacts: Iterable[Artifact]) -> bool:
    """Say whether a stage's folder is what `export` would make of it."""
    wanted = {
        Path(artifact.kind, artifact.key, path.name): path
        for artifact in artifacts
        for path in folder_of(artifact).iterdir()
    }
    found = {path.relative_to(folder) for path in folder.glob("*/*/*")}
    try:
        return found == set(wanted) and all(_is_same(folder / name, path) for name, path in wanted.items())
    except OSError:
        # A link that leads nowhere, say.
        return False


def _is_same(exported: Path, original: Path) -> bool:
    # Files that are no links, as after `dvc pull`, are read where they differ in size or time.
    return exported.samefile(original) or filecmp.cmp(exported, original)


def _is_committed(stages: Iterable[str]) -> bool:
    """Say whether DVC's lock file speaks of what stages have now: of their files by digest, of their folders by size.

    It does not where a `dvc repro` was killed between a stage and the lock file, or where an older one was put back.
    """
    try:
        locked = yaml.safe_load(_LOCK.read_bytes())["stages"]
        return all(_is_as_locked(out) for stage in stages for out in locked[stage]["outs"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return False


def _is_as_locked(out: Mapping[str, Any]) -> bool:
    path = Path(out["path"])
    if path.is_dir():
        sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
        return (len(sizes), sum(sizes)) == (out["nfiles"], out["size"])
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest() == out["md5"]


def _alone() -> AbstractContextManager[None]:
    return patiently_held(STAGES / ".lock", purpose="hands results to DVC", timeout=_PATIENCE_SECONDS)


def _export(benchmark: str, stage: str, artifacts: Iterable[Artifact]) -> Path:
    folder = STAGES / benchmark / stage
    try:
        # Whoever is alone here finds only what killed processes left.
        for leftover in STAGES.glob(f"{_WRITING}*"):
            shutil.rmtree(leftover)
        folder.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=STAGES, prefix=_WRITING))
        for artifact in artifacts:
            target = fresh / artifact.kind / artifact.key
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(folder_of(artifact), target, copy_function=_link, dirs_exist_ok=True)
        fresh.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    except OSError as error:
        raise OutputError(f"stage {str(folder)!r} can't be written: {error}") from error
    return folder


@contextmanager
def _never_cut_off(path: Path) -> Iterator[None]:
    """Keep a copy of the lock file while DVC writes it in place; where that was cut off, the copy takes its place."""
    if not _is_whole(path):
        if _COPY.is_file():
            _COPY.replace(path)
        elif not path.read_bytes().strip():
            path.write_bytes(_NO_STAGES)
    _write_safely(_COPY, path.read_bytes())
    try:
        yield
    finally:
        if _is_whole(path):
            _write_safely(path, path.read_bytes())
            _COPY.unlink()
        else:
            _COPY.replace(path)


def _is_whole(path: Path) -> bool:
    try:
        return isinstance(yaml.safe_load(path.read_bytes()), dict)
    except yaml.YAMLError:
        return False


def _write_safely(path: Path, data: bytes) -> None:
    """Replace a file so that the old or the new content survives a crash of the machine."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
