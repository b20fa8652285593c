"""Weights of pre-trained networks that a package of this environment may have."""

from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.trunks.trunk import require_weights, trunks


def weights_of(name: str) -> Path:
    """The file of a trunk's weights; skips the test where the package is not installed."""
    try:
        return require_weights(trunks.get(name))
    except InputError as error:
        pytest.skip(str(error))
