"""Hand the default experiment's artifacts to DVC, which versions and shares them."""

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fedfisher_core.experiments.loading import is_default
from fedfisher_core.store import STAGES, Artifact
from flows.work import Work

_LOCK = Path("dvc.lock")

REPORT = "report"
"""The last of DVC's stages, after those of the plan."""


def export(benchmark: str, stage: str, artifacts: Iterable[Artifact]) -> Path:
    """Make a stage's output folder: exactly these artifacts, linked from where they are.

    Args:
        benchmark: its name.
        stage: its name.
        artifacts: what the stage's parameters name.

    Returns:
        The folder, `stages/<benchmark>/<stage>`.
    """
    folder = STAGES / benchmark / stage
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{stage}-"))
    for artifact in artifacts:
        target = fresh / artifact.kind / artifact.key
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(artifact.path, target, copy_function=_link, dirs_exist_ok=True)
    fresh.chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)
    return folder


def share(work: Work) -> None:
    """Commit the artifacts and the report of the default experiment to DVC, where DVC already keeps them.

    Args:
        work: finished.
    """
    if not _LOCK.is_file() or not is_default(work.settings):
        return
    for stage in work.plan.stages:
        export(work.settings.name, stage, work.artifacts(stage))
    # Importing DVC takes seconds, which no other run should spend.
    os.environ.setdefault("DVC_NO_ANALYTICS", "true")
    from dvc.repo import Repo

    with Repo(".") as repository:
        for stage in (*work.plan.stages, REPORT):
            repository.commit(target=stage, force=True)


def is_shared(work: Work) -> bool:
    """Say whether the stages' folders hold what they should, if DVC keeps them at all.

    Args:
        work: finished, with the settings of params.yaml.

    Returns:
        Whether nothing is left to be exported.
    """
    if not _LOCK.is_file():
        return True
    for stage in work.plan.stages:
        held = {path.relative_to(STAGES / work.settings.name / stage).parts for path in _exported(work, stage)}
        if held != {(artifact.kind, artifact.key) for artifact in work.artifacts(stage)}:
            return False
    return True


def _exported(work: Work, stage: str) -> Iterable[Path]:
    return (STAGES / work.settings.name / stage).glob("*/*")


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
