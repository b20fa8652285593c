"""Hand the default benchmark's artifacts to DVC, which versions and shares them."""

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from fedfisher_core.configuration import PARAMS, load_settings
from fedfisher_core.settings import Settings
from fedfisher_core.steps.context import STAGES
from fedfisher_core.store import Artifact
from flows.work import Work

DVC_STAGES = ("clients", "aggregates", "report")


def is_default(settings: Settings) -> bool:
    """Say whether these are the settings that the DVC pipeline reproduces.

    Args:
        settings: a benchmark.

    Returns:
        Whether they equal params.yaml.
    """
    return PARAMS.is_file() and settings == load_settings(PARAMS)


def own_name(settings: Settings) -> Settings:
    """Keep other settings from writing over the results of params.yaml.

    Args:
        settings: a benchmark.

    Returns:
        The same settings; where they differ from params.yaml but bear its name, with a digest added to it.
    """
    if not PARAMS.is_file() or is_default(settings) or settings.name != load_settings(PARAMS).name:
        return settings
    return settings.model_copy(update={"name": f"{settings.name}-{settings.digest()}"})


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
    """Commit the artifacts and the report of the default benchmark to DVC, if the project is a DVC repository.

    Args:
        work: finished, with the settings of params.yaml.
    """
    if not Path(".dvc").is_dir():
        return
    name = work.plan.context.settings.name
    export(name, "clients", work.client_artifacts())
    export(name, "aggregates", work.aggregate_artifacts())
    # Importing DVC takes seconds, which no other run should spend.
    os.environ.setdefault("DVC_NO_ANALYTICS", "true")
    from dvc.repo import Repo

    with Repo(".") as repository:
        for stage in DVC_STAGES:
            repository.commit(target=stage, force=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
