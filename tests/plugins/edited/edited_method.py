"""A method of another package."""

from collections.abc import Sequence

from edited_helper import scale

from fedfisher.extending import Aggregate, Server, Upload, Weights, method

FACTOR = 1.0


@method("scaled", uploads=(Weights,), reference="https://example.org/scaled")
def scaled(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Take the first client's weights times a factor."""
    return Aggregate.of({name: scale(tensor, FACTOR) for name, tensor in uploads[0][Weights].tensors.items()})
