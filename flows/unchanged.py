"""Whether a run would change anything, found out without Prefect and without MLflow."""

import hashlib
import inspect
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import fedfisher_core.reporting
from fedfisher_core.experiments.contract import Experiment
from fedfisher_core.experiments.loading import is_default
from fedfisher_core.registry import plugin_versions
from fedfisher_core.reporting.folder import is_current
from fedfisher_core.reporting.runs import SUMMARY, Runs, digest
from fedfisher_core.settings import ExperimentSettings, TrackingSettings
from fedfisher_core.store import libraries
from flows.sharing import is_shared
from flows.work import Work

_CONTENTS = """
    SELECT tags.value FROM tags JOIN runs USING (run_uuid) JOIN experiments USING (experiment_id)
    WHERE tags.key = 'content' AND experiments.name = ?
    AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
"""


def is_unchanged(work: Work) -> bool:
    """Say whether all of an experiment is there: results, report, records, and what DVC shares.

    Args:
        work: prepared, or finished.

    Returns:
        Whether a run would do nothing.
    """
    if not work.walk.finished or work.walk.outcome.failed:
        return False
    return (
        is_current(work.folder, content_of(work.experiment, work.settings, work.rows))
        and is_recorded(work.settings.tracking, work.settings.name, work.runs())
        and (not is_default(work.settings) or is_shared(work))
    )


def content_of(experiment: Experiment[Any, Any, Any], settings: ExperimentSettings, rows: Sequence[Any]) -> str:
    """Digest of everything that a report shows but the time and the command that made it.

    Args:
        experiment: which.
        settings: the experiment.
        rows: the results.

    Returns:
        24 hexadecimal digits.
    """
    return digest(
        [
            [asdict(row) for row in rows],
            settings.model_dump(mode="json"),
            libraries(),
            plugin_versions(),
            _drawn_by(experiment),
        ]
    )


def is_recorded(settings: TrackingSettings, experiment: str, runs: Runs) -> bool:
    """Say whether a local MLflow database holds runs as they are, without the seconds that importing MLflow takes.

    Args:
        settings: where MLflow keeps runs.
        experiment: the experiment's name.
        runs: what should be there.

    Returns:
        Whether all of it is; False for a server, and for a database that is laid out in another way.
    """
    if settings.database is None:
        return False
    wanted = {experiment: runs.single, f"{experiment}{SUMMARY}": runs.summary}
    try:
        with closing(sqlite3.connect(f"{settings.database.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return all(
                {one.content for one in records} <= {content for (content,) in database.execute(_CONTENTS, (name,))}
                for name, records in wanted.items()
            )
    except sqlite3.Error:
        return False


def _drawn_by(experiment: Experiment[Any, Any, Any]) -> str:
    """Digest of the code, the files and the templates that make the page."""
    own = Path(inspect.getfile(experiment.settings))
    packaged = sys.modules[experiment.settings.__module__].__package__
    found = list(own.parent.glob("*.py")) if packaged else [own]
    found += Path(inspect.getfile(fedfisher_core.reporting)).parent.glob("*.py")
    found += [path for path in experiment.drawn_from if path.is_file()]
    templates = [one for one in files("reports.templates").iterdir() if one.is_file()]
    held = [path.read_bytes() for path in sorted(found)] + [one.read_bytes() for one in sorted(templates, key=str)]
    return hashlib.sha256(b"".join(held)).hexdigest()
