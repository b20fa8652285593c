"""A digest of what a report shows."""

import hashlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fedfisher_core.reporting
from fedfisher_core.engine.registry import plugin_versions
from fedfisher_core.experiments.contract import Experiment
from fedfisher_core.reporting.page import TEMPLATES
from fedfisher_core.reporting.runs import digest
from fedfisher_core.settings import ExperimentSettings


def content_of(experiment: Experiment[Any, Any, Any], settings: ExperimentSettings, rows: Sequence[Any]) -> str:
    """Digest everything that a report shows, except the time, the command and the libraries that made it.

    Returns:
        24 hexadecimal digits.
    """
    return digest(
        [
            [asdict(row) for row in rows],
            settings.model_dump(mode="json"),
            plugin_versions(),
            _drawn_by(experiment),
        ]
    )


def _drawn_by(experiment: Experiment[Any, Any, Any]) -> str:
    """Digest the code, the files and the templates that make the page."""
    own = Path(inspect.getfile(experiment.settings))
    packaged = sys.modules[experiment.settings.__module__].__package__
    found = list(own.parent.glob("*.py")) if packaged else [own]
    found += Path(inspect.getfile(fedfisher_core.reporting)).parent.glob("*.py")
    found += [path for path in experiment.drawn_from if path.is_file()]
    templates = [one for one in TEMPLATES.iterdir() if one.is_file()]
    held = [path.read_bytes() for path in sorted(found)] + [one.read_bytes() for one in sorted(templates, key=str)]
    return hashlib.sha256(b"".join(held)).hexdigest()
