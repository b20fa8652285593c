"""One folder with all that an experiment rests on, which DVC versions and shares."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from fedfisher_core.engine.errors import OutputError
from fedfisher_core.engine.store import STAGES, Artifact, folder_of
from fedfisher_core.engine.store.writing import new_folder, sweep

_WRITING = STAGES / ".writing"


def link_stage(name: str, artifacts: Iterable[Artifact]) -> Path:
    """Make the output folder of a DVC stage, `stages/<name>`: exactly the given artifacts, linked from where they are.

    It replaces an earlier folder when it is complete.

    Raises:
        OutputError: the folder can't be written.
    """
    folder = STAGES / name
    try:
        _WRITING.mkdir(parents=True, exist_ok=True)
        sweep(_WRITING)
        with new_folder(_WRITING) as temporary:
            fresh = temporary / "fresh"
            fresh.mkdir()
            for artifact in artifacts:
                shutil.copytree(folder_of(artifact), fresh / artifact.kind / artifact.key, copy_function=_link)
            if folder.exists():
                folder.rename(temporary / "old")
            fresh.rename(folder)
    except OSError as error:
        raise OutputError(f"stage {str(folder)!r} can't be written: {error}") from error
    return folder


def _link(source: str, target: str) -> None:
    # DVC may have replaced the file by a link to its cache.
    file = os.path.realpath(source)
    try:
        os.link(file, target)
    except OSError:
        shutil.copy2(file, target)
