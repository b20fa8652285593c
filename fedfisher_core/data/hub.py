"""Data sets of the Hugging Face hub."""

from typing import Any

from fedfisher_core.data.specs import DATA_DIR_VARIABLE, EMBEDDED, DatasetSpec
from fedfisher_core.errors import InputError


def load_from_hub(spec: DatasetSpec) -> Any:
    """Load a data set from the hub, or from what the hub's library keeps of it.

    Args:
        spec: of the data set, with its name on the hub.

    Returns:
        The tables of the hub's library by the name that the hub has for their split.

    Raises:
        InputError: it can't be had.
    """
    import datasets as hub
    from huggingface_hub.utils import logging

    # It tells of every address that it tries again; the error says what came of it.
    logging.set_verbosity_error()
    try:
        return hub.load_dataset(spec.hub, spec.hub_config)
    except (OSError, ValueError, hub.exceptions.DatasetNotFoundError) as error:
        raise InputError(
            f"data set {spec.name!r} can't be fetched from the hub ({type(error).__name__}: {error}). Set "
            f"{DATA_DIR_VARIABLE} to a folder with {spec.name}/train.parquet and {spec.name}/test.parquet, or use "
            f"data.dataset={EMBEDDED}, which needs no network"
        ) from error
