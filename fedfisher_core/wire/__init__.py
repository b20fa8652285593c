"""What really crosses the network: quantisation, low rank, bit-packed payloads, counted."""

from fedfisher_core.wire.budget import Family, Kind, StatisticSpec, fedavg_bits, fit
from fedfisher_core.wire.codec import Codec, TensorSpec
from fedfisher_core.wire.elementwise import Float32, Root, Uniform
from fedfisher_core.wire.formula import formula_bits
from fedfisher_core.wire.low_rank import LowRank
from fedfisher_core.wire.payload import HEADER_BITS, Message, Schema, Section, decode, encode
from fedfisher_core.wire.spectral import Spectral

__all__ = [
    "HEADER_BITS",
    "Codec",
    "Family",
    "Float32",
    "Kind",
    "LowRank",
    "Message",
    "Root",
    "Schema",
    "Section",
    "Spectral",
    "StatisticSpec",
    "TensorSpec",
    "Uniform",
    "decode",
    "encode",
    "fedavg_bits",
    "fit",
    "formula_bits",
]
