"""Training one client, and computing what it uploads."""

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace

import numpy as np
import torch

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.training import train
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.partitions import Indices
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.models.spec import Parameters
from fedfisher_core.privacy.local import PrivateLocal
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.settings import Cell
from fedfisher_core.steps.context import Context
from fedfisher_core.steps.data import load_data
from fedfisher_core.steps.partitions import load_partition
from fedfisher_core.steps.privacy import described, noise_of
from fedfisher_core.store import Artifact, Content, Step, read_tensors

TENSORS = "tensors.safetensors"
# Stands for the one client that holds the data of all.
POOLED = -1


def train_client(
    context: Context,
    cell: Cell,
    data: Artifact,
    partition: Artifact,
    client: int,
    kinds: Iterable[type[Statistic]] = (Weights,),
) -> Artifact:
    """Train one client from the cell's initial weights.

    Args:
        context: the benchmark.
        cell: which data set, how it is split, and the seed.
        data: the decoded data set.
        partition: who holds what.
        client: its number, or POOLED.
        kinds: the statistics that it uploads; with differential privacy they share its budget.

    Returns:
        The trained weights.

    Raises:
        DivergedClientError: names the client whose training is not finite.
    """
    settings = context.settings
    augmented = datasets.get(cell.dataset).augment
    indices = _indices(partition, client)
    step = Step(
        kind="clients",
        version=1,
        settings={
            "model": {"name": cell.model, "bias": settings.model.bias},
            "train": settings.train.model_dump(mode="json", exclude_none=True),
            **({} if settings.model.initialisation == "same" else {"initialisation": "different"}),
            "augment": augmented,
            "seed": cell.seed,
            "client": client,
            **described(context, kinds),
            **context.numerics,
        },
        inputs={"data": data.digest, "indices": hashlib.sha256(indices.tobytes()).hexdigest()},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    examples = _examples(context, data, indices)
    network = context.model(cell).load(initial_parameters(context, cell, client)).to(context.device)
    generator = torch_generator(cell.seed, Stream.CLIENT, _branch(client))
    noise = noise_of(context, len(examples), kinds)
    begun = time.perf_counter()
    try:
        if noise is None or settings.privacy is None:
            trained = train(network, examples, settings.train, generator=generator, augmented=augmented)
        else:
            trained = train_privately(
                network,
                examples,
                settings.train,
                noise_multiplier=noise.training,
                gradient_clip=settings.privacy.gradient_clip,
                generator=generator,
                augmented=augmented,
            )
    except DivergedClientError as error:
        raise DivergedClientError(f"{client_name(client)} of {cell.label}: {error}") from error
    seconds = time.perf_counter() - begun
    training = {"num_examples": len(examples), "epoch_losses": trained.epoch_losses}
    if noise is not None:
        training |= {"noise": asdict(noise)}
    content = Content(
        tensors={TENSORS: trained.parameters},
        documents={"training.json": training},
        timings={"seconds": seconds},
    )
    return context.store.write(step, content)


def compute_statistics(
    context: Context,
    cell: Cell,
    data: Artifact,
    partition: Artifact,
    client: int,
    trained: Artifact,
    kinds: Iterable[type[Statistic]],
) -> dict[str, Artifact]:
    """Compute what a client uploads.

    Args:
        context: the benchmark.
        cell: which data set, how it is split, and the seed.
        data: the decoded data set.
        partition: who holds what.
        client: its number, or POOLED.
        trained: its weights.
        kinds: the statistics.

    Returns:
        One artifact a statistic, by name; the weights are `trained` itself.

    Raises:
        DivergedClientError: names the client and the statistic that is not finite.
    """
    kinds = tuple(kinds)
    artifacts = {Weights.name: trained}
    missing: dict[type[Statistic], Step] = {}
    for kind in kinds:
        if kind is Weights:
            continue
        step = Step(
            kind="statistics",
            version=kind.version,
            settings={"statistic": kind.name, **_fisher_settings(context, kind, kinds), **context.numerics},
            inputs={"client": trained.digest, "data": data.digest, "partition": partition.digest},
        )
        found = context.store.find(step)
        if found is None:
            missing[kind] = step
        else:
            artifacts[kind.name] = found
    if not missing:
        return artifacts
    local = _local(context, cell, data, partition, client, trained, kinds)
    for group in group_by_pass(context, tuple(missing)):
        for kind, (statistic, seconds) in _compute(local, group).items():
            try:
                statistic.require_finite()
            except DivergedClientError as error:
                raise DivergedClientError(f"{client_name(client)} of {cell.label}: {error}") from error
            content = Content(tensors={TENSORS: statistic.tensors}, timings={"seconds": seconds})
            artifacts[kind.name] = context.store.write(missing[kind], content)
    return artifacts


def _fisher_settings(context: Context, kind: type[Statistic], kinds: Iterable[type[Statistic]]) -> dict[str, object]:
    fisher = {"fisher": context.settings.fisher.model_dump(mode="json")} if kind.approximation is not None else {}
    return {**fisher, **(described(context, kinds) if kind.mechanisms else {})}


def group_by_pass(context: Context, kinds: tuple[type[Statistic], ...]) -> list[tuple[type[Statistic], ...]]:
    """Group statistics by passes over the data.

    The full Fisher always has its own: it leaves little memory to the others, and how many examples they hold at a
    time, and hence how their sums round, must not depend on their company.

    Args:
        context: its settings say whether Fishers share a pass.
        kinds: the statistics.

    Returns:
        The groups, each computed together.
    """
    if context.settings.fisher.passes == "separate":
        return [(kind,) for kind in kinds]
    alone = [kind for kind in kinds if kind.approximation is Approximation.DENSE]
    together = tuple(kind for kind in kinds if kind not in alone)
    return [*([together] if together else []), *((kind,) for kind in alone)]


def _compute(local: Local, kinds: Sequence[type[Statistic]]) -> dict[type[Statistic], tuple[Statistic, float]]:
    """Compute statistics on the CPU, with their seconds; a pass over the data that several share counts for each."""
    wanted = frozenset(kind.approximation for kind in kinds if kind.approximation is not None)
    local = replace(local, approximations=wanted)
    begun = time.perf_counter()
    if wanted:
        _ = local.fisher
    pass_seconds = time.perf_counter() - begun
    computed: dict[type[Statistic], tuple[Statistic, float]] = {}
    for kind in kinds:
        begun = time.perf_counter()
        statistic = local.compute(kind, {})
        statistic = kind.of({name: tensor.cpu().contiguous() for name, tensor in statistic.tensors.items()})
        seconds = time.perf_counter() - begun + (0 if kind.approximation is None else pass_seconds)
        computed[kind] = (statistic, seconds)
    return computed


def initial_parameters(context: Context, cell: Cell, client: int = POOLED) -> Parameters:
    """Draw the weights that a client starts from.

    Args:
        context: the benchmark; its settings say whether all clients start from the same weights.
        cell: its data set and its seed decide.
        client: its number. The pooled client's weights are also those that the server holds.

    Returns:
        Named parameters on the CPU.
    """
    branch = _branch(client) if context.settings.model.initialisation == "different" else _branch(POOLED)
    return context.model(cell).initialise(torch_generator(cell.seed, Stream.INITIALISATION, branch))


def client_name(client: int) -> str:
    """Name a client for messages and run names."""
    return "pooled client" if client == POOLED else f"client {client}"


def _branch(client: int) -> int:
    """Branch of the seed tree; the pooled client's comes before all others."""
    return client + 1


def _indices(partition: Artifact, client: int) -> Indices:
    clients = load_partition(partition).clients
    return np.concatenate(clients) if client == POOLED else clients[client]


def _examples(context: Context, data: Artifact, indices: Indices) -> Examples:
    dataset = load_data(data)
    return select(dataset.train, dataset.spec, torch.from_numpy(indices)).to(context.device)


def _local(
    context: Context,
    cell: Cell,
    data: Artifact,
    partition: Artifact,
    client: int,
    trained: Artifact,
    kinds: Iterable[type[Statistic]],
) -> Local:
    parameters = {name: tensor.to(context.device) for name, tensor in read_tensors(trained, TENSORS).items()}
    local = Local(
        network=context.model(cell).load(parameters).eval(),
        initial={name: tensor.to(context.device) for name, tensor in initial_parameters(context, cell, client).items()},
        examples=_examples(context, data, _indices(partition, client)),
        classes=datasets.get(cell.dataset).classes,
        batch_size=context.settings.train.batch_size,
        settings=context.settings.fisher,
        approximations=frozenset(),
        generator=torch_generator(cell.seed, Stream.FISHER, _branch(client)),
    )
    noise = noise_of(context, len(local.examples), kinds)
    if noise is None or context.settings.privacy is None:
        return local
    shared = {field.name: getattr(local, field.name) for field in fields(Local)}
    return PrivateLocal(**shared, privacy=context.settings.privacy, noise=noise)
