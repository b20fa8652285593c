"""Weights of pre-trained networks that a package of this environment may have."""

from pathlib import Path

import pytest

from fedfisher_core.errors import InputError
from fedfisher_core.trunks.trunk import trunks
from fedfisher_core.trunks.weights import require_weights


def weights_of(name: str) -> Path:
    """The file of a trunk's weights; skips the test where the package is not installed."""
    try:
        return require_weights(trunks.get(name))
    except InputError as error:
        pytest.skip(str(error))
