"""Attacking one client of a federation through what a method lets the server see."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from fedfisher_core.attack.cases import Case
from fedfisher_core.attack.evidence import Evidence, Knowledge, evidence_of, likelihoods
from fedfisher_core.attack.inversion import invert
from fedfisher_core.attack.measures import (
    AttackMeasures,
    Measures,
    References,
    measure_attack,
    measure_references,
    prior_images,
)
from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.statistic import ServerView, Statistic
from fedfisher_core.client.transport import decode
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.tensors import normalise, select
from fedfisher_core.experiments.attack.attacker import (
    MEASURES,
    TARGET_CLIENT,
    Branch,
    PriorInputs,
    TargetJob,
    auxiliary_indices,
    generator_of,
    load_judge,
    load_prior,
    pixels_of,
    private_pixels,
)
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import POOLED
from fedfisher_core.federation.sending import codecs_of
from fedfisher_core.federation.uploads import PAYLOAD
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_document, read_tensors
from fedfisher_core.wire.payload import Schema

if TYPE_CHECKING:
    from fedfisher_core.methods.binding import BoundMethod

R = TypeVar("R")

_IMAGES = "images.safetensors"


@dataclass(frozen=True)
class BoundInputs(PriorInputs[R]):
    """What floors and ceiling are made of.

    Args:
        prior: the attacker's GAN.
        judge: the evaluator.
    """

    prior: R
    judge: R


@dataclass(frozen=True)
class AttackInputs(BoundInputs[R]):
    """What the attacker has.

    Args:
        payloads: uploads by client; the attacked one's, or all where the server sees a sum.
    """

    payloads: Mapping[int, R]


@dataclass(frozen=True)
class AttackClient(TargetJob[AttackInputs[Artifact]]):
    """Reconstruct the target label's images from what the server sees, and measure how well that went.

    Args:
        label: what the settings call the method.
        bound: the method and its settings.
        schema: how its uploads are encoded.
        case: what the method lets the server see.
        needs: names of the jobs before.
    """

    label: str
    bound: "BoundMethod"
    schema: Schema
    case: Case
    needs: AttackInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"attack on label {self.target} by {self.label}: {self.place.label}"

    def size(self, inputs: AttackInputs[Artifact]) -> float:
        """See `Job.size`."""
        inversion = self.settings.inversion
        return float(inversion.restarts * inversion.images * inversion.iterations)

    def step(self, inputs: AttackInputs[Artifact]) -> Step:
        """See `Job.step`; methods through which the server sees the same share it."""
        settings, views = self.settings, self.case.views
        known = [likelihoods.get(name).evidence for name in self.case.statistics]
        return Step(
            kind="attacks",
            code=source_digest(
                type(self),
                models.get(self.place.cell.model),
                *self.bound.method.uploads,
                *codecs_of(self.schema),
                *(one for one in known if one is not None),
            ),
            settings={
                "inversion": settings.inversion.model_dump(mode="json"),
                "gan": settings.gan.model_dump(mode="json"),
                "evaluator": settings.evaluator.model_dump(mode="json"),
                "model": {"name": self.place.cell.model, "bias": settings.model.bias},
                "fisher": settings.fisher.estimator,
                "views": {name: view.value for name, view in views.items()},
                "wire": self.schema.digest().hex(),
                "target": self.target,
                "seed": self.place.cell.seed,
                **self.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "partition": inputs.partition.digest,
                "prior": inputs.prior.digest,
                "judge": inputs.judge.digest,
                **{f"client_{client}": payload.digest for client, payload in inputs.payloads.items()},
            },
        )

    def compute(self, inputs: AttackInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: no attack is defined on what the server sees.
            DivergedAttackError: a loss is not finite.
        """
        place, settings = self.place, self.settings
        dataset = load_data(inputs.data)
        gan = load_prior(settings, place.cell, inputs.prior, place.device)
        evaluator = load_judge(settings, place.cell, inputs.judge, place.device)
        begun = time.perf_counter()
        weights, evidence = self.seen(inputs)
        reconstruction = invert(
            place.spec.load(weights),
            gan,
            self.target,
            settings.inversion,
            normalise=partial(normalise, spec=dataset.spec),
            generator=generator_of(place.cell, self.target, Branch.INVERSION),
            evidence=evidence,
        )
        seconds = time.perf_counter() - begun
        private = private_pixels(inputs.data, inputs.partition, self.target).to(place.device)
        measures = measure_attack(evaluator, reconstruction, target=self.target, private=private)
        return Content(
            tensors={_IMAGES: {"images": _as_bytes(reconstruction.images)}},
            documents={MEASURES: {"restart": reconstruction.best, **asdict(measures)}},
            timings={"seconds": seconds},
        )

    def seen(self, inputs: AttackInputs[Artifact]) -> tuple[Parameters, Evidence]:
        """Say what the attacker has.

        Args:
            inputs: the artifacts.

        Returns:
            The weights of the network that it inverts, and the evidence beside them.
        """
        place, views = self.place, self.case.views
        summed = any(view is ServerView.SUM for view in views.values())
        uploads = {
            client: self._received(inputs.payloads[client])
            for client in sorted(inputs.payloads)
            if summed or client == TARGET_CLIENT
        }
        total = len(held_by(inputs.partition, POOLED))

        def shown(statistic: type[Statistic]) -> Statistic:
            if views[statistic.name] is ServerView.SUM:
                return _mean(statistic, list(uploads.values()))
            return uploads[TARGET_CLIENT][statistic]

        weights = dict(shown(Weights).tensors)
        statistics = [
            shown(statistic) for statistic in self.bound.method.uploads if statistic.name in self.case.statistics
        ]
        dataset = load_data(inputs.data)
        known = auxiliary_indices(self.settings, place.cell, self.target, inputs.data, inputs.partition)
        knowledge = Knowledge(
            network=place.spec.load(weights).eval(),
            auxiliary=select(dataset.train, dataset.spec, known).inputs.to(place.device),
            share=uploads[TARGET_CLIENT].num_examples / total,
            estimator=estimator_of(self.settings.fisher),
        )
        return weights, evidence_of(statistics[0] if statistics else None, knowledge)

    def _received(self, payload: Artifact) -> Upload:
        return decode((payload.path / PAYLOAD).read_bytes(), self.schema, self.bound.method.uploads, self.place.device)


@dataclass(frozen=True)
class MeasureBounds(TargetJob[BoundInputs[Artifact]]):
    """Measure images of noise, of the prior by itself, and real test images of the target label.

    All federations that share data set, target label and seed have the same bounds.

    Args:
        needs: names of the jobs before.
    """

    needs: BoundInputs[str]

    @property
    def name(self) -> str:
        """See `Job.name`."""
        return f"floors and ceiling of label {self.target}: {self.place.cell.dataset} seed={self.place.cell.seed}"

    @property
    def count(self) -> int:
        """As many images as all restarts of an attack make."""
        return self.settings.inversion.restarts * self.settings.inversion.images

    def step(self, inputs: BoundInputs[Artifact]) -> Step:
        """See `Job.step`."""
        return Step(
            kind="attack_bounds",
            code=source_digest(type(self)),
            settings={
                "gan": self.settings.gan.model_dump(mode="json"),
                "evaluator": self.settings.evaluator.model_dump(mode="json"),
                "count": self.count,
                "clip": self.settings.inversion.clip,
                "target": self.target,
                "seed": self.place.cell.seed,
                **self.numerics.described(),
            },
            inputs={
                "data": inputs.data.digest,
                "partition": inputs.partition.digest,
                "prior": inputs.prior.digest,
                "judge": inputs.judge.digest,
            },
        )

    def compute(self, inputs: BoundInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        place, clip = self.place, self.settings.inversion.clip
        test = load_data(inputs.data).test
        gan = load_prior(self.settings, place.cell, inputs.prior, place.device)
        references = measure_references(
            load_judge(self.settings, place.cell, inputs.judge, place.device),
            gan,
            target=self.target,
            private=private_pixels(inputs.data, inputs.partition, self.target).to(place.device),
            real=pixels_of(test, (test.labels == self.target).nonzero()[:, 0]).to(place.device),
            count=self.count,
            clip=clip,
            generator=generator_of(place.cell, self.target, Branch.REFERENCES),
        )
        shown = prior_images(
            gan,
            self.settings.inversion.images,
            clip=clip,
            generator=generator_of(place.cell, self.target, Branch.REFERENCES),
        )
        return Content(tensors={_IMAGES: {"images": _as_bytes(shown)}}, documents={MEASURES: asdict(references)})


def read_attack(artifact: Artifact) -> AttackMeasures:
    """Read how well an attack went.

    Args:
        artifact: made by `AttackClient`.

    Returns:
        The measures.
    """
    document = read_document(artifact, MEASURES)
    return AttackMeasures(best=Measures(**document["best"]), mean_accuracy=document["mean_accuracy"])


def read_bounds(artifact: Artifact) -> References:
    """Read floors and ceiling.

    Args:
        artifact: made by `MeasureBounds`.

    Returns:
        The measures of each.
    """
    return References(**{name: Measures(**one) for name, one in read_document(artifact, MEASURES).items()})


def best_images(artifact: Artifact) -> Tensor:
    """Read the images of an attack's best restart.

    Args:
        artifact: made by `AttackClient`.

    Returns:
        uint8, shape (images, channels, height, width).
    """
    return read_tensors(artifact, _IMAGES)["images"][read_document(artifact, MEASURES)["restart"]]


def prior_sample(artifact: Artifact) -> Tensor:
    """Read images of the prior by itself.

    Args:
        artifact: made by `MeasureBounds`.

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


def _mean(statistic: type[Statistic], uploads: Sequence[Upload]) -> Statistic:
    """The sum over clients, weighted by their shares of the examples."""
    total = sum(upload.num_examples for upload in uploads)
    names = uploads[0][statistic].tensors
    return statistic.of(
        {
            name: sum(upload.num_examples / total * upload[statistic].tensors[name] for upload in uploads)  # type: ignore[misc]
            for name in names
        }
    )


def _as_bytes(pixels: Tensor) -> Tensor:
    return (255 * pixels).round().byte().cpu()
