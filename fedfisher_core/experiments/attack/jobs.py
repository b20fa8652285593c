"""Attacking one client of a federation through what a method lets the server see."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.attack.cases import Case
from fedfisher_core.attack.evaluator import Evaluator
from fedfisher_core.attack.evidence import Evidence, Knowledge, evidence_of_all, likelihoods
from fedfisher_core.attack.factors import Factors
from fedfisher_core.attack.gan import Gan
from fedfisher_core.attack.inversion import invert
from fedfisher_core.attack.measures import AttackMeasures, References, measure_attack, measure_references, prior_images
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
    TargetJob,
    pixels_of,
    private_images,
)
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.inputs import PartitionInputs, R
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import POOLED
from fedfisher_core.federation.privacy import Budget
from fedfisher_core.federation.sending import codecs_of
from fedfisher_core.federation.uploads import PAYLOAD, TENSORS
from fedfisher_core.jobs import digests_of
from fedfisher_core.layouts import require_images
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.privacy.release import Release
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_bytes, read_document, read_tensors
from fedfisher_core.wire.payload import Schema

_IMAGES = "images.safetensors"


@dataclass(frozen=True)
class BoundInputs(PartitionInputs[R]):
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


B = TypeVar("B", bound=BoundInputs[Artifact])


@dataclass(frozen=True)
class JudgedJob(TargetJob[B]):
    """A job that judges images of the prior or of an attack."""

    def gan(self, inputs: B) -> Gan:
        """Read what `TrainPrior` made."""
        images = require_images(self.place.dataset.inputs, "an attack")
        return Gan.load(read_tensors(inputs.prior, TENSORS), self.settings.gan, images=images, device=self.place.device)

    def evaluator(self, inputs: B) -> Evaluator:
        """Read what `TrainJudge` made."""
        return Evaluator.load(
            read_tensors(inputs.judge, TENSORS),
            self.settings.evaluator,
            images=require_images(self.place.dataset.inputs, "an attack"),
            classes=self.place.dataset.classes,
            device=self.place.device,
        )


@dataclass(frozen=True)
class AttackClient(JudgedJob[AttackInputs[Artifact]]):
    """Reconstruct the target label's images from what the server sees, and measure how well that went.

    Args:
        bound: the method and its settings.
        schema: how its uploads are encoded.
        case: what the method lets the server see.
    """

    bound: BoundMethod
    schema: Schema
    case: Case

    @property
    def budget(self) -> Budget | None:
        """What a client may spend, whose uploads to this method are all that it releases; None without privacy."""
        settings = self.place.settings
        return None if settings.privacy is None else Budget(settings.privacy, self.place.train, self.bound.uploads)

    def size(self, inputs: AttackInputs[Artifact]) -> float:
        """See `Job.size`."""
        inversion = self.settings.inversion
        return float(inversion.restarts * inversion.images * inversion.iterations)

    def step(self, inputs: AttackInputs[Artifact]) -> Step:
        """See `Job.step`; methods through which the server sees the same share it."""
        known = [likelihoods.get(name).evidence for name in self.case.statistics]
        return Step(
            kind="attacks",
            code=source_digest(
                type(self),
                models.get(self.place.spec.name),
                *self.bound.method.uploads,
                *codecs_of(self.schema),
                *(one for one in known if one is not None),
            ),
            settings={
                **self.described("gan", "evaluator"),
                # Of the choices of factors, this attack makes one.
                "inversion": self.settings.inversion.model_dump(mode="json", exclude={"factors"}),
                **({} if self.case.factors is Factors.ALL else {"factors": self.case.factors.value}),
                "model": {"name": self.place.spec.name, "bias": self.settings.model.bias},
                "fisher": self.place.fisher.estimator,
                "views": {name: view.value for name, view in self.case.views.items()},
                "wire": self.schema.digest().hex(),
                **({} if self.budget is None else self.budget.described()),
            },
            inputs={
                **digests_of(inputs),
                **{f"client_{client}": payload.digest for client, payload in inputs.payloads.items()},
            },
        )

    def compute(self, inputs: AttackInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: no attack is defined on what the server sees.
            DivergedAttackError: a loss is not finite.
        """
        place, gan, evaluator = self.place, self.gan(inputs), self.evaluator(inputs)
        begun = time.perf_counter()
        weights, evidence = self.seen(inputs)
        reconstruction = invert(
            place.spec.load(weights),
            gan,
            self.target,
            self.settings.inversion,
            normalise=partial(normalise, spec=place.dataset),
            generator=self.generator(Branch.INVERSION),
            evidence=evidence,
        )
        seconds = time.perf_counter() - begun
        private = pixels_of(private_images(inputs, self.target)).to(self.place.device)
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
        place, views, dataset = self.place, self.case.views, load_data(inputs.data)
        uploads = {client: self._received(payload) for client, payload in sorted(inputs.payloads.items())}

        def shown(statistic: type[Statistic]) -> Statistic:
            if views[statistic.name] is ServerView.SUM:
                return _mean(statistic, list(uploads.values()))
            return uploads[TARGET_CLIENT][statistic]

        weights = dict(shown(Weights).tensors)
        statistics = [shown(one) for one in self.bound.method.uploads if one.name in self.case.statistics]
        knowledge = Knowledge(
            network=place.spec.load(weights).eval(),
            auxiliary=select(dataset.train, dataset.spec, self.auxiliary(inputs)).inputs.to(place.device),
            share=uploads[TARGET_CLIENT].num_examples / len(held_by(inputs.partition, POOLED)),
            target=self.target,
            estimator=estimator_of(place.fisher),
            release=self.released(inputs),
            factors=self.case.factors,
        )
        return weights, evidence_of_all(statistics, knowledge)

    def released(self, inputs: AttackInputs[Artifact]) -> Release | None:
        """Say what the attacker knows of how statistics were released.

        Args:
            inputs: the artifacts.

        Returns:
            What is public; None without differential privacy, or where nothing but weights was released.
        """
        counts = tuple(len(held_by(inputs.partition, client)) for client in range(self.place.cell.clients))
        budget = self.budget
        multiplier = None if budget is None else budget.noise(counts[TARGET_CLIENT]).release
        if budget is None or multiplier is None:
            return None
        return Release(budget.privacy, multiplier, counts)

    def _received(self, payload: Artifact) -> Upload:
        return decode(read_bytes(payload, PAYLOAD), self.schema, self.bound.method.uploads, self.place.device)


@dataclass(frozen=True)
class MeasureBounds(JudgedJob[BoundInputs[Artifact]]):
    """Measure images of noise, of the prior by itself, and real test images of the target label.

    All federations that share data set, target label and seed have the same bounds.
    """

    @property
    def count(self) -> int:
        """As many images as all restarts of an attack make."""
        return self.settings.inversion.restarts * self.settings.inversion.images

    def step(self, inputs: BoundInputs[Artifact]) -> Step:
        """See `Job.step`."""
        chosen = {"count": self.count, "clip": self.settings.inversion.clip}
        return Step(
            kind="attack_bounds",
            code=source_digest(type(self)),
            settings=self.described("gan", "evaluator") | chosen,
            inputs=digests_of(inputs),
        )

    def compute(self, inputs: BoundInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        inversion, test, gan = self.settings.inversion, load_data(inputs.data).test, self.gan(inputs)
        references = measure_references(
            self.evaluator(inputs),
            gan,
            target=self.target,
            private=pixels_of(private_images(inputs, self.target)).to(self.place.device),
            real=pixels_of(test.inputs[test.labels == self.target]).to(self.place.device),
            count=self.count,
            clip=inversion.clip,
            generator=self.generator(Branch.REFERENCES),
        )
        generator = self.generator(Branch.REFERENCES)
        shown = prior_images(gan, inversion.images, clip=inversion.clip, generator=generator)
        return Content(tensors={_IMAGES: {"images": _as_bytes(shown)}}, documents={MEASURES: asdict(references)})


def read_attack(artifact: Artifact) -> AttackMeasures:
    """Read how well an attack went.

    Args:
        artifact: made by `AttackClient`.

    Returns:
        The measures.
    """
    return TypeAdapter(AttackMeasures).validate_python(read_document(artifact, MEASURES))


def read_bounds(artifact: Artifact) -> References:
    """Read floors and ceiling.

    Args:
        artifact: made by `MeasureBounds`.

    Returns:
        The measures of each.
    """
    return TypeAdapter(References).validate_python(read_document(artifact, MEASURES))


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


def _mean(statistic: type[Statistic], uploads: Sequence[Upload]) -> Statistic:
    """The sum over clients, weighted by their shares of the examples."""
    total = sum(upload.num_examples for upload in uploads)

    def mean(name: str) -> Tensor:
        return sum(upload.num_examples / total * upload[statistic].tensors[name] for upload in uploads)  # type: ignore[return-value]

    return statistic.of({name: mean(name) for name in uploads[0][statistic].tensors})


def _as_bytes(pixels: Tensor) -> Tensor:
    return (255 * pixels).round().byte().cpu()
