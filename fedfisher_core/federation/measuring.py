"""What an aggregation made, measured on the test examples, and its record in the store."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from fedfisher_core.data.tensors import select
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.evaluation.measures import Measures, measure_each, measure_mean, measure_mean_logit
from fedfisher_core.evaluation.memory import working_memory
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import label_counts, validation_set
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import Sent
from fedfisher_core.jobs import names_in
from fedfisher_core.methods.server import Aggregate, Combine, Server
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.store import Artifact, Content, read_document

if TYPE_CHECKING:
    from fedfisher_core.methods.binding import BoundMethod

_RESULT = "result.json"


@dataclass(frozen=True)
class Traffic:
    """Bits that crossed the network in one aggregation, all clients together.

    Args:
        upload_bits: from the clients, as they were counted on the wire.
        upload_bits_formula: the same as papers count it.
        download_bits: from the server.
        start_sent: what it sends before the training.
    """

    upload_bits: int
    upload_bits_formula: int
    download_bits: int
    start_sent: str


@dataclass(frozen=True)
class Result:
    """What is known of one method's global model.

    Args:
        measures: on the test examples.
        details: numbers that the method gave.
        widths: of the global network's hidden layers; empty for those of its family.
        uses_validation: whether the method looked at the server's validation set.
        traffic: bits that crossed the network for it.
    """

    measures: Measures
    details: Mapping[str, float]
    widths: tuple[int, ...]
    uses_validation: bool
    traffic: Traffic


def read_result(artifact: Artifact) -> Result:
    """Read what is known of a global model.

    Args:
        artifact: made by an aggregation.

    Returns:
        The result.
    """
    document = read_document(artifact, _RESULT)
    measures = document["measures"]
    measures["confusion"] = tuple(tuple(row) for row in measures["confusion"])
    return Result(
        measures=Measures(**measures),
        details=document["details"],
        widths=tuple(document["widths"]),
        uses_validation=document["uses_validation"],
        traffic=Traffic(**document["traffic"]),
    )


def server_of(place: Place, data: Artifact, partition: Artifact, start: Artifact) -> Server:
    """Give a server what it holds before the first upload.

    Args:
        place: the federation.
        data: the decoded data set.
        partition: who holds what.
        start: the initial weights of the server.

    Returns:
        The server.
    """
    dataset = load_data(data)
    return Server(
        spec=place.spec,
        dataset=dataset.spec,
        initial=load_start(start, place.device),
        generator=torch_generator(place.cell.seed, Stream.SERVER),
        device=place.device,
        validation=select(dataset.train, dataset.spec, validation_set(partition)).to(place.device),
    )


def timed(
    bound: "BoundMethod", work: Callable[[], Aggregate], device: torch.device
) -> tuple[Aggregate, dict[str, float]]:
    """Do the server's work, decoding included, and measure what it takes.

    Args:
        bound: the method.
        work: what is timed.
        device: where it computes.

    Returns:
        What it made, its seconds and its working memory.

    Raises:
        ArithmeticError: a parameter of the global network is not finite.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    with working_memory(device) as peak:
        begun = perf_counter()
        result = work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = perf_counter() - begun
    for network in result.networks:
        for name, tensor in network.items():
            if not torch.isfinite(tensor).all():
                raise ArithmeticError(f"method {bound.method.name!r} returned a parameter {name!r} that is not finite")
    return result, {"seconds": seconds, "peak_memory_bytes": float(peak.bytes)}


def content_of(
    place: Place,
    server: Server,
    made: Aggregate,
    traffic: Traffic,
    timings: Mapping[str, float],
    *,
    data: Artifact,
    partition: Artifact,
) -> Content:
    """Measure a global model, and write down what is known of it.

    Args:
        place: the federation.
        server: after the aggregation.
        made: what it made.
        traffic: what was sent for it.
        timings: what it took.
        data: the decoded data set.
        partition: who holds what.

    Returns:
        What the store keeps.
    """
    result = Result(
        measures=_measure(place, made, data, partition),
        details=made.details,
        widths=(made.spec or place.spec).widths,
        uses_validation=server.used_validation,
        traffic=traffic,
    )
    networks = {
        f"network_{i}.safetensors": {name: tensor.cpu().contiguous() for name, tensor in network.items()}
        for i, network in enumerate(made.networks)
    }
    document: dict[str, Any] = asdict(result)
    return Content(tensors=networks, documents={_RESULT: document}, timings=timings)


def require_enough(place: Place, clients: Mapping[int, Sent[str]], lost: Mapping[str, Exception]) -> None:
    """Decide whether an aggregation can do without clients that diverged.

    Args:
        place: the federation; its settings say how many clients must be left.
        clients: names of the jobs of each.
        lost: why jobs are missing.

    Raises:
        DivergedClientError: names the last client, and how many are left.
    """
    errors = [lost[name] for sent in clients.values() for name in names_in(sent) if name in lost]
    missing = sum(any(name in lost for name in names_in(sent)) for sent in clients.values())
    allowed, left = place.settings.run.min_clients, place.cell.clients - missing
    if allowed is None or left < allowed:
        least = "all clients" if allowed is None else f"{allowed} clients"
        raise DivergedClientError(f"{errors[-1]}; run.min_clients asks for {least}, {left} are left") from errors[-1]


def _measure(place: Place, made: Aggregate, data: Artifact, partition: Artifact) -> Measures:
    dataset = load_data(data)
    test = select(dataset.test, dataset.spec).to(place.device)
    spec = made.spec or place.spec
    networks = [spec.load(parameters).eval() for parameters in made.networks]
    counts = torch.tensor(label_counts(partition))
    match made.combine:
        case Combine.MEAN_PROBABILITY:
            return measure_mean(networks, test, counts, weights=made.weights)
        case Combine.MEAN_LOGIT:
            return measure_mean_logit(networks, test, counts)
        case Combine.MEAN_MEASURE:
            return measure_each(networks, test, counts)
