"""Attacking one client of a federation through what a method lets the server see."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from torch import Tensor

from fedfisher_core.attack.cases import Case
from fedfisher_core.attack.evidence import Evidence, Knowledge, evidence_of
from fedfisher_core.attack.inversion import invert
from fedfisher_core.attack.measures import measure_attack, measure_references, prior_images
from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.statistic import ServerView, Statistic
from fedfisher_core.client.transport import upload_schema
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.tensors import normalise, select
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import Cell
from fedfisher_core.steps.aggregation import receive
from fedfisher_core.steps.attacker import (
    MEASURES,
    TARGET_CLIENT,
    AttackContext,
    Branch,
    auxiliary_indices,
    generator_of,
    load_judge,
    load_prior,
    pixels_of,
    private_pixels,
)
from fedfisher_core.steps.context import Context
from fedfisher_core.steps.data import load_data
from fedfisher_core.steps.partitions import load_partition
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors

_IMAGES = "images.safetensors"


@dataclass(frozen=True)
class Attacked:
    """One client that is attacked through one method.

    Args:
        federation: the benchmark that trained it.
        cell: which data set, network, split and seed.
        target: the attacked label.
        bound: the method and its settings.
        case: what the method lets the server see.
        clients: artifacts of the statistics by client and name.
        data: the decoded data set.
        partition: who holds what.
    """

    federation: Context
    cell: Cell
    target: int
    bound: BoundMethod
    case: Case
    clients: Mapping[int, Mapping[str, Artifact]]
    data: Artifact
    partition: Artifact


def attack_step(context: AttackContext, attacked: Attacked, prior: Artifact, judge: Artifact) -> Step:
    """Name an attack; methods through which the server sees the same share it.

    Args:
        context: the experiment.
        attacked: the client and what is seen of it.
        prior: the attacker's GAN.
        judge: the evaluator.

    Returns:
        The step.
    """
    views = attacked.case.views
    schema = upload_schema(attacked.bound.uploads, attacked.federation.model(attacked.cell), attacked.bound.wire)
    seen = {
        f"client_{client}.{name}": statistics[name].digest
        for client, statistics in sorted(attacked.clients.items())
        for name, view in views.items()
        if client == TARGET_CLIENT or view is ServerView.SUM
    }
    return Step(
        kind="attacks",
        version=1,
        settings={
            "inversion": context.settings.inversion.model_dump(mode="json"),
            "gan": context.settings.gan.model_dump(mode="json"),
            "evaluator": context.settings.evaluator.model_dump(mode="json"),
            "model": {"name": attacked.cell.model, "bias": context.settings.model.bias},
            "fisher": context.settings.fisher.estimator,
            "views": {name: view.value for name, view in views.items()},
            "wire": schema.digest().hex(),
            "target": attacked.target,
            "seed": attacked.cell.seed,
            **context.numerics,
        },
        inputs={
            "data": attacked.data.digest,
            "partition": attacked.partition.digest,
            "prior": prior.digest,
            "judge": judge.digest,
            **seen,
        },
    )


def attack(context: AttackContext, attacked: Attacked, prior: Artifact, judge: Artifact) -> Artifact:
    """Reconstruct the target label's images from what the server sees, and measure how well that went.

    Args:
        context: the experiment.
        attacked: the client and what is seen of it.
        prior: the attacker's GAN.
        judge: the evaluator.

    Returns:
        The images and the measures.

    Raises:
        InputError: no attack is defined on what the server sees.
        DivergedAttackError: a loss is not finite.
    """
    step = attack_step(context, attacked, prior, judge)
    found = context.store.find(step)
    if found is not None:
        return found
    dataset = load_data(attacked.data)
    gan, evaluator = load_prior(context, attacked.cell, prior), load_judge(context, attacked.cell, judge)
    begun = time.perf_counter()
    weights, evidence = seen_by_the_server(context, attacked)
    reconstruction = invert(
        attacked.federation.model(attacked.cell).load(weights),
        gan,
        attacked.target,
        context.settings.inversion,
        normalise=partial(normalise, spec=dataset.spec),
        generator=generator_of(attacked.cell, attacked.target, Branch.INVERSION),
        evidence=evidence,
    )
    seconds = time.perf_counter() - begun
    private = private_pixels(attacked.data, attacked.partition, attacked.target).to(context.device)
    measures = measure_attack(evaluator, reconstruction, target=attacked.target, private=private)
    content = Content(
        tensors={_IMAGES: {"images": _as_bytes(reconstruction.images)}},
        documents={MEASURES: {"restart": reconstruction.best, **asdict(measures)}},
        timings={"seconds": seconds},
    )
    return context.store.write(step, content)


def measure_bounds(
    context: AttackContext,
    cell: Cell,
    target: int,
    data: Artifact,
    partition: Artifact,
    prior: Artifact,
    judge: Artifact,
) -> Artifact:
    """Measure images of noise, of the prior by itself, and real test images of the target label.

    Args:
        context: the experiment.
        cell: which data set, how it is split, and the seed.
        target: the attacked label.
        data: the decoded data set.
        partition: who holds what.
        prior: the attacker's GAN.
        judge: the evaluator.

    Returns:
        The measures of the floors and the ceiling, and images of the prior.
    """
    step = Step(
        kind="attack_bounds",
        version=1,
        settings={
            "gan": context.settings.gan.model_dump(mode="json"),
            "evaluator": context.settings.evaluator.model_dump(mode="json"),
            "count": _bound_images(context),
            "clip": context.settings.inversion.clip,
            "target": target,
            "seed": cell.seed,
            **context.numerics,
        },
        inputs={"data": data.digest, "partition": partition.digest, "prior": prior.digest, "judge": judge.digest},
    )
    found = context.store.find(step)
    if found is not None:
        return found
    test = load_data(data).test
    gan, clip = load_prior(context, cell, prior), context.settings.inversion.clip
    references = measure_references(
        load_judge(context, cell, judge),
        gan,
        target=target,
        private=private_pixels(data, partition, target).to(context.device),
        real=pixels_of(test, (test.labels == target).nonzero()[:, 0]).to(context.device),
        count=_bound_images(context),
        clip=clip,
        generator=generator_of(cell, target, Branch.REFERENCES),
    )
    shown = prior_images(
        gan, context.settings.inversion.images, clip=clip, generator=generator_of(cell, target, Branch.REFERENCES)
    )
    content = Content(tensors={_IMAGES: {"images": _as_bytes(shown)}}, documents={MEASURES: asdict(references)})
    return context.store.write(step, content)


def read_measures(artifact: Artifact) -> dict[str, Any]:
    """Read what an evaluator, an attack or its bounds were measured at.

    Args:
        artifact: made by `train_judge`, `attack` or `measure_bounds`.

    Returns:
        The document.
    """
    return read_document(artifact, MEASURES)


def best_images(artifact: Artifact) -> Tensor:
    """Read the images of an attack's best restart.

    Args:
        artifact: made by `attack`.

    Returns:
        uint8, shape (images, channels, height, width).
    """
    return read_tensors(artifact, _IMAGES)["images"][read_measures(artifact)["restart"]]


def prior_sample(artifact: Artifact) -> Tensor:
    """Read images of the prior by itself.

    Args:
        artifact: made by `measure_bounds`.

    Returns:
        uint8, shape (images, channels, height, width).
    """
    return read_tensors(artifact, _IMAGES)["images"]


def private_images(data: Artifact, partition: Artifact, target: int, count: int) -> Tensor:
    """Read the first of the attacked client's images of the target label.

    Args:
        data: the decoded data set.
        partition: who holds what.
        target: the label.
        count: how many at most.

    Returns:
        uint8, shape (images, channels, height, width).
    """
    return _as_bytes(private_pixels(data, partition, target)[:count])


def seen_by_the_server(context: AttackContext, attacked: Attacked) -> tuple[Parameters, Evidence]:
    """Say what the attacker has.

    Args:
        context: the experiment.
        attacked: the client and what is seen of it.

    Returns:
        The weights of the network that it inverts, and the evidence beside them.
    """
    place = (attacked.federation, attacked.cell, attacked.bound, attacked.partition)
    case = attacked.case
    only = {TARGET_CLIENT: attacked.clients[TARGET_CLIENT]}
    summed = any(view is ServerView.SUM for view in case.views.values())
    uploads = list(receive(*place, attacked.clients if summed else only))
    total = sum(len(client) for client in load_partition(attacked.partition).clients)

    def seen(kind: type[Statistic]) -> Statistic:
        return _mean(kind, uploads) if case.views[kind.name] is ServerView.SUM else uploads[TARGET_CLIENT][kind]

    weights = dict(seen(Weights).tensors)
    statistics = [seen(kind) for kind in attacked.bound.method.uploads if kind.name in case.statistics]
    dataset = load_data(attacked.data)
    known = auxiliary_indices(context, attacked.cell, attacked.target, attacked.data, attacked.partition)
    knowledge = Knowledge(
        network=attacked.federation.model(attacked.cell).load(weights).eval(),
        auxiliary=select(dataset.train, dataset.spec, known).inputs.to(context.device),
        share=uploads[TARGET_CLIENT].num_examples / total,
        estimator=estimator_of(context.settings.fisher),
    )
    return weights, evidence_of(statistics[0] if statistics else None, knowledge)


def _mean(kind: type[Statistic], uploads: Sequence[Upload]) -> Statistic:
    """The sum over clients, weighted by their shares of the examples."""
    total = sum(upload.num_examples for upload in uploads)
    names = uploads[0][kind].tensors
    return kind.of(
        {
            name: sum(upload.num_examples / total * upload[kind].tensors[name] for upload in uploads)  # type: ignore[misc]
            for name in names
        }
    )


def _bound_images(context: AttackContext) -> int:
    """As many images as all restarts of an attack make."""
    return context.settings.inversion.restarts * context.settings.inversion.images


def _as_bytes(pixels: Tensor) -> Tensor:
    return (255 * pixels).round().byte().cpu()
