"""What a server sends to its clients, counted as it is encoded."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedfisher_core.communication.wire.payload import Schema, bits_of, uncompressed
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.start import pretrained_of
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.server import Aggregate, Combine

SEED_BITS = 64
"""Bits of the seed that the server sends where all clients draw the same initial weights."""

SEED = "seed"
NOTHING = "nothing"
MODEL = "model"


@dataclass(frozen=True)
class Download:
    """What a server sends in one round, in bits, to all clients together.

    Args:
        start_bits: the weights or the seed that training clients start from.
        model_bits: the global model, to all clients.
        start_sent: SEED; MODEL after the first round and for pre-trained weights; NOTHING where every client draws its
            own weights or does not train.
    """

    start_bits: int
    model_bits: int
    start_sent: str


def download(
    federation: Federation,
    made: Aggregate,
    start: Mapping[str, Tensor],
    *,
    configured: ConfiguredMethod,
    round_number: int,
    extra_bits: int,
) -> Download:
    """Count the start, sent to the clients of the round, and the encoded global model, sent to all that may take part.

    A download to an unseen client later is not counted.

    Args:
        start: the weights that the round started from.
        extra_bits: what the server sends to each client of the round in addition to the start.
    """
    takers, model_bits = len(federation.cohort(round_number)), len(federation.participants) * _model_bits(made)
    if configured.method.pooled or not configured.method.trains:
        return Download(0, model_bits, NOTHING)
    if round_number > 1:
        return Download(takers * (bits_of(start) + extra_bits), model_bits, MODEL)
    if federation.settings.model.initialisation == "different":
        return Download(0, model_bits, NOTHING)
    if pretrained_of(federation) is not None:
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
