"""Aggregating the uploads of one cell by one method, and measuring the result."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedfisher_core.client.statistic import ServerView, Statistic
from fedfisher_core.client.transport import StoredUploads, decode, encode, upload_schema
from fedfisher_core.client.upload import Upload
from fedfisher_core.data.tensors import select
from fedfisher_core.evaluation.measures import Measures, measure_each, measure_mean, measure_mean_logit
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.methods.server import Aggregate, Combine, Server
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.settings import Cell
from fedfisher_core.steps.clients import TENSORS, initial_parameters
from fedfisher_core.steps.context import Context
from fedfisher_core.steps.data import load_data
from fedfisher_core.steps.memory import working_memory
from fedfisher_core.steps.partitions import label_counts, load_partition
from fedfisher_core.steps.secure import collect_securely, sums_of, vector_bits
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors
from fedfisher_core.wire.formula import formula_bits
from fedfisher_core.wire.payload import Schema

_RESULT = "result.json"


def aggregate(
    context: Context,
    cell: Cell,
    bound: BoundMethod,
    data: Artifact,
    partition: Artifact,
    clients: Mapping[int, Mapping[str, Artifact]],
) -> Artifact:
    """Aggregate the uploads of clients and measure the global model on the test images.

    Args:
        context: the benchmark.
        cell: which data set, how it is split, and the seed.
        bound: the method and its settings.
        data: the decoded data set.
        partition: who holds what.
        clients: artifacts of the statistics by client and name.

    Returns:
        The global model and its measures.
    """
    method = bound.method
    spec = context.model(cell)
    schema = upload_schema(bound.uploads, spec, bound.wire)
    inputs = {"data": data.digest, "partition": partition.digest}
    for client, statistics in sorted(clients.items()):
        inputs |= {f"client_{client}.{kind.name}": statistics[kind.name].digest for kind in method.uploads}
    step = Step(
        kind="aggregates",
        version=3,
        settings={
            "method": method.name,
            "method_version": method.version,
            "method_settings": bound.dumped_settings(),
            "wire": schema.digest().hex(),
            "model": {"name": cell.model, "bias": context.settings.model.bias},
            "seed": cell.seed,
            **({} if bound.summation is None else {"secure_sum": bound.wire.secure.model_dump(mode="json")}),
            **context.numerics,
        },
        inputs=inputs,
    )
    found = context.store.find(step)
    if found is not None:
        return found
    counts = _num_examples(bound, partition, sorted(clients))
    server = _server(context, cell, data, partition)
    if bound.summation is None:
        result, timings, bits = _plainly(context, bound, server, data, schema, clients, counts)
    else:
        result, timings, bits = _securely(context, cell, bound, server, clients, counts, session=step.key.encode())
    measures = _measure(context, cell, result, data, partition)
    parameters = sum(tensor.numel() for network in result.networks for tensor in network.values())
    document = {
        "measures": asdict(measures),
        "details": result.details,
        "widths": (result.spec or spec).widths,
        "uses_validation": server.used_validation,
        **bits,
        "download_bits": 32 * parameters * cell.clients + bits.get("download_bits", 0),
    }
    networks = {
        f"network_{i}.safetensors": {name: tensor.cpu().contiguous() for name, tensor in network.items()}
        for i, network in enumerate(result.networks)
    }
    return context.store.write(step, Content(tensors=networks, documents={_RESULT: document}, timings=timings))


def read_result(artifact: Artifact) -> dict[str, Any]:
    """Read the measures of an aggregation.

    Args:
        artifact: made by `aggregate`.

    Returns:
        measures, details, uses_validation, upload_bits, upload_bits_formula and download_bits.
    """
    return read_document(artifact, _RESULT)


def receive(
    context: Context,
    cell: Cell,
    bound: BoundMethod,
    partition: Artifact,
    clients: Mapping[int, Mapping[str, Artifact]],
) -> Iterator[Upload]:
    """Send clients' uploads to the server.

    Args:
        context: the benchmark.
        cell: which data set, how it is split, and the seed.
        bound: the method and its settings.
        partition: who holds what.
        clients: artifacts of the statistics by client and name.

    Yields:
        Each client's upload as it arrives, in the order of their numbers.
    """
    spec = context.model(cell)
    schema = upload_schema(bound.uploads, spec, bound.wire)
    for client, count in _num_examples(bound, partition, sorted(clients)).items():
        yield decode(
            _payload(bound, spec, schema, clients[client], count), schema, bound.method.uploads, context.device
        )


def _num_examples(bound: BoundMethod, partition: Artifact, clients: Sequence[int]) -> dict[int, int]:
    counts = [sum(one) for one in label_counts(partition)]
    return {client: sum(counts) if bound.method.pooled else counts[client] for client in clients}


def _plainly(
    context: Context,
    bound: BoundMethod,
    server: Server,
    data: Artifact,
    schema: Schema,
    clients: Mapping[int, Mapping[str, Artifact]],
    counts: Mapping[int, int],
) -> tuple[Aggregate, dict[str, float], dict[str, int]]:
    """Send every client's upload to the server: the result, its timings, and the bits that were sent."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for client, count in counts.items():
            paths.append(Path(folder, str(client)))
            paths[-1].write_bytes(_payload(bound, server.spec, schema, clients[client], count))
        bits = _upload_bits(bound, schema, data, [path.stat().st_size for path in paths])
        uploads = StoredUploads(paths, list(counts.values()), schema, bound.method.uploads, context.device)
        result, timings = _timed(bound, partial(_aggregate, bound, server, uploads), context.device)
    return result, timings, bits


def _securely(
    context: Context,
    cell: Cell,
    bound: BoundMethod,
    server: Server,
    clients: Mapping[int, Mapping[str, Artifact]],
    counts: Mapping[int, int],
    *,
    session: bytes,
) -> tuple[Aggregate, dict[str, float], dict[str, int]]:
    """Let the server learn sums only: the result, its timings, and the bits that were sent."""
    readers = {client: partial(_statistics, bound, server.spec, clients[client]) for client in counts}
    collected = collect_securely(bound, cell, readers, counts, session=session)
    result, timings = _timed(bound, lambda: bound.of_sums(server, sums_of(collected, context.device)), context.device)
    details = {**result.details, "clients_in_sum": float(len(collected.uploaded))}
    bits = {
        "upload_bits": 8 * collected.upload_bytes,
        "upload_bits_formula": vector_bits(collected),
        "download_bits": 8 * collected.download_bytes,
    }
    return replace(result, details=details), timings, bits


def _statistics(
    bound: BoundMethod, spec: ModelSpec, stored: Mapping[str, Artifact]
) -> dict[type[Statistic], Statistic]:
    """Read a client's statistics; files order tensors by name, the wire orders them as the statistic does."""
    found: dict[type[Statistic], Statistic] = {}
    for one in bound.uploads:
        tensors = read_tensors(stored[one.statistic.name], TENSORS)
        found[one.statistic] = one.statistic.of({name: tensors[name] for name in one.shapes(spec)})
    return found


def _payload(
    bound: BoundMethod, spec: ModelSpec, schema: Schema, statistics: Mapping[str, Artifact], num_examples: int
) -> bytes:
    sent = list(_statistics(bound, spec, statistics).values())
    return encode(schema, sent, num_examples=num_examples)


def _server(context: Context, cell: Cell, data: Artifact, partition: Artifact) -> Server:
    dataset = load_data(data)
    held = torch.from_numpy(load_partition(partition).validation)
    initial = {name: tensor.to(context.device) for name, tensor in initial_parameters(context, cell).items()}
    return Server(
        spec=context.model(cell),
        dataset=dataset.spec,
        initial=initial,
        generator=torch_generator(cell.seed, Stream.SERVER),
        device=context.device,
        validation=select(dataset.train, dataset.spec, held).to(context.device),
    )


def _aggregate(bound: BoundMethod, server: Server, stored: StoredUploads) -> Aggregate:
    """Decode and aggregate. Methods that make do with sums get one client's tensors at a time."""
    streamed = all(view is ServerView.SUM for view in bound.method.views.values())
    return bound(server, stored if streamed else [Upload(one.num_examples, dict(one.statistics)) for one in stored])


def _timed(
    bound: BoundMethod, work: Callable[[], Aggregate], device: torch.device
) -> tuple[Aggregate, dict[str, float]]:
    """Do the server's work, and measure what it takes."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    with working_memory(device) as peak:
        begun = time.perf_counter()
        result = work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - begun
    for network in result.networks:
        for name, tensor in network.items():
            if not torch.isfinite(tensor).all():
                raise ArithmeticError(f"method {bound.method.name!r} returned a parameter {name!r} that is not finite")
    return result, {"seconds": seconds, "peak_memory_bytes": float(peak.bytes)}


def _measure(context: Context, cell: Cell, result: Aggregate, data: Artifact, partition: Artifact) -> Measures:
    dataset = load_data(data)
    test = select(dataset.test, dataset.spec).to(context.device)
    spec = result.spec or context.model(cell)
    networks = [spec.load(parameters).eval() for parameters in result.networks]
    counts = torch.tensor(label_counts(partition))
    match result.combine:
        case Combine.MEAN_PROBABILITY:
            return measure_mean(networks, test, counts, weights=result.weights)
        case Combine.MEAN_LOGIT:
            return measure_mean_logit(networks, test, counts)
        case Combine.MEAN_MEASURE:
            return measure_each(networks, test, counts)


def _upload_bits(bound: BoundMethod, schema: Schema, data: Artifact, sizes: Sequence[int]) -> dict[str, int]:
    """Bits that all clients send: those of the payloads, and those that papers count."""
    if bound.method.pooled:
        # To train on all data is to send all data: the images and labels themselves.
        dataset = load_data(data)
        train = dataset.train
        bits = 8 * train.images.numel() + len(train) * (dataset.spec.classes - 1).bit_length()
        return {"upload_bits": bits, "upload_bits_formula": bits}
    return {"upload_bits": 8 * sum(sizes), "upload_bits_formula": len(sizes) * formula_bits(schema)}
