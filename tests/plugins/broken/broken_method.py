"""A method of another package that fails until a file named `mended` is there."""

from collections.abc import Sequence
from pathlib import Path

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import mean_parameters


class PaperError(Exception):
    """Can't be sent to another process: it takes more than its message to make it."""

    def __init__(self, message: str, sheets: int) -> None:
        super().__init__(message)
        self.sheets = sheets


@method("broken", uploads=(Weights,), reference="https://example.org")
def broken(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Average the weights, once that can be done."""
    if not Path("mended").exists():
        raise PaperError("out of\npaper", sheets=0)
    return Aggregate.of(mean_parameters(uploads))
