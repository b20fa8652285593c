"""What a server sends to its clients, counted as it is encoded."""

from collections.abc import Mapping

from torch import Tensor

from fedfisher_core.federation.place import Place
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.wire.codec import TensorSpec
from fedfisher_core.wire.elementwise import Float32
from fedfisher_core.wire.payload import Schema, Section

SEED_BITS = 64
"""Where all clients start from the same weights, the server sends the seed that they are drawn with."""

SEED = "seed"
NOTHING = "nothing"


def download(place: Place, made: Aggregate, *, pooled: bool) -> tuple[int, str]:
    """Count what a server sends to all clients: the start, and the global model, encoded as it is.

    Args:
        place: the federation.
        made: what the method made of the uploads.
        pooled: whether the data of all clients lies where the server is.

    Returns:
        Bits, and what of them is sent before the training: SEED, or NOTHING where every client draws weights of its own
        or none trains.
    """
    start = NOTHING if pooled or place.settings.model.initialisation == "different" else SEED
    return place.cell.clients * ((SEED_BITS if start == SEED else 0) + _model_bits(made)), start


def _model_bits(made: Aggregate) -> int:
    if made.combine is Combine.MEAN_MEASURE:
        # Every client goes on with its own network.
        return 0
    sections = [_section(f"network_{i}", network) for i, network in enumerate(made.networks)]
    if made.weights is not None:
        sections.append(_section("weights", {"weights": made.weights}))
    return Schema(tuple(sections)).bits


def _section(name: str, tensors: Mapping[str, Tensor]) -> Section:
    return Section(name, tuple(TensorSpec(key, tuple(one.shape)) for key, one in tensors.items()), Float32())
