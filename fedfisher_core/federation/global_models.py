"""What an aggregation leaves in the store: a global model, and what is known of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from fedfisher_core.federation.memory import Files
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.start import NETWORK
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.store import Artifact, names_of, read_document, read_tensors

RESULT = "result.json"
"""Name of the file with what is known of it."""

_CLASS_WEIGHTS = "class_weights.safetensors"


@dataclass(frozen=True)
class Traffic:
    """Bits that crossed the network in one aggregation, all clients together.

    Args:
        upload_bits: from the clients, as they were counted on the wire.
        upload_bits_formula: the same as papers count it.
        download_bits: from the server.
        start_sent: what it sends before the training.
        start_bits: what that is of the download.
    """

    upload_bits: int
    upload_bits_formula: int
    download_bits: int
    start_sent: str
    start_bits: int


@dataclass(frozen=True)
class Result:
    """What is known of one method's global model.

    Args:
        networks: how many it is made of.
        combine: how several networks are joined.
        details: numbers that the method gave.
        widths: of the global network's hidden layers; empty for those of its family.
        uses_validation: whether the method looked at the server's validation set.
        traffic: bits that crossed the network for it.
    """

    networks: int
    combine: Combine
    details: Mapping[str, float]
    widths: tuple[int, ...]
    uses_validation: bool
    traffic: Traffic


def files_of(made: Aggregate) -> Files:
    """Make the files of a global model.

    Args:
        made: by a method, and whatever comes after it.

    Returns:
        Tensors on the CPU, by file and name.
    """
    networks = {
        NETWORK.format(index): {name: tensor.cpu().contiguous() for name, tensor in network.items()}
        for index, network in enumerate(made.networks)
    }
    if made.weights is None:
        return networks
    return {**networks, _CLASS_WEIGHTS: {"weights": made.weights.cpu().contiguous()}}


def read_result(artifact: Artifact) -> Result:
    """Read what is known of a global model.

    Args:
        artifact: made by an aggregation.

    Returns:
        The result.
    """
    return TypeAdapter(Result).validate_python(read_document(artifact, RESULT))


def read_model(artifact: Artifact, place: Place) -> Aggregate:
    """Read a global model.

    Args:
        artifact: made by an aggregation.
        place: its federation.

    Returns:
        The model, on the federation's device.
    """
    result = read_result(artifact)
    networks = [read_tensors(artifact, NETWORK.format(index)) for index in range(result.networks)]
    weighted = _CLASS_WEIGHTS in names_of(artifact)
    return Aggregate(
        networks=tuple({name: tensor.to(place.device) for name, tensor in one.items()} for one in networks),
        combine=result.combine,
        weights=read_tensors(artifact, _CLASS_WEIGHTS)["weights"] if weighted else None,
        spec=replace(place.spec, widths=result.widths),
    )
