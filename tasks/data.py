"""Tasks that prepare the data."""

from fedfisher_core.settings import Cell
from fedfisher_core.steps import data as data_steps
from fedfisher_core.steps import partitions
from fedfisher_core.steps.context import Context
from fedfisher_core.store import Artifact
from tasks.options import step


@step(run_name="decode {name}")
def decode_data(context: Context, name: str) -> Artifact:
    """Decode a data set."""
    return data_steps.decode_data(context, name)


@step(run_name="split {cell.label}")
def split_data(context: Context, cell: Cell, data: Artifact) -> Artifact:
    """Split the training images over the clients of a cell."""
    return partitions.split_data(context, cell, data)
