"""What a server sends to its clients, counted as it is encoded."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedfisher_core.federation.place import Place
from fedfisher_core.federation.pretrained import pretrained_of
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.wire.payload import Schema
from fedfisher_core.wire.uncompressed import bits_of, uncompressed

SEED_BITS = 64
"""Where all clients start from the same weights, the server sends the seed that they are drawn with."""

SEED = "seed"
NOTHING = "nothing"
MODEL = "model"


@dataclass(frozen=True)
class Download:
    """What a server sends for one round, in bits, all clients together.

    Args:
        start_bits: what those that train start from.
        model_bits: the global model, to all clients.
        start_sent: what is sent before the training: SEED, MODEL after the first round and where weights are
            pre-trained, or NOTHING where every client draws weights of its own or what it uploads needs none.
    """

    start_bits: int
    model_bits: int
    start_sent: str


def download(
    place: Place, made: Aggregate, start: Mapping[str, Tensor], *, bound: BoundMethod, turn: int, beside_bits: int
) -> Download:
    """Count what a server sends: the start to the clients of the round, and the global model, encoded as it is, to all.

    All are those that may take part; what an unseen client gets later is no part of the federation.

    Args:
        place: the federation.
        made: what the method made of the uploads.
        start: the weights that the round started from.
        bound: the method.
        turn: the round, from 1.
        beside_bits: what each client of the round is sent beside its start.

    Returns:
        The bits.
    """
    takers, model_bits = len(place.cohort(turn)), len(place.participants) * _model_bits(made)
    if bound.method.pooled or not bound.method.trains:
        return Download(0, model_bits, NOTHING)
    if turn > 1:
        return Download(takers * (bits_of(start) + beside_bits), model_bits, MODEL)
    if place.settings.model.initialisation == "different":
        return Download(0, model_bits, NOTHING)
    if pretrained_of(place) is not None:
        return Download(takers * bits_of(start), model_bits, MODEL)
    return Download(takers * SEED_BITS, model_bits, SEED)


def _model_bits(made: Aggregate) -> int:
    if made.combine is Combine.MEAN_MEASURE:
        # Every client goes on with its own network.
        return 0
    sections = [uncompressed(f"network_{i}", network) for i, network in enumerate(made.networks)]
    if made.weights is not None:
        sections.append(uncompressed("weights", {"weights": made.weights}))
    return Schema(tuple(sections)).bits
