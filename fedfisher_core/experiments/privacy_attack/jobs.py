"""Attacking one client of a federation through what a method lets the server see."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.statistics.statistic import ServerView, Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload, decode
from fedfisher_core.communication.wire.payload import Schema
from fedfisher_core.data.layouts import require_images
from fedfisher_core.data.tensors import normalise, select
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.performing import divergence
from fedfisher_core.engine.store import Artifact, Content, read_bytes, read_document, read_tensors, understood
from fedfisher_core.experiments.privacy_attack.attacker import (
    MEASURES,
    TARGET_CLIENT,
    Branch,
    TargetJob,
    pixels_of,
    private_images,
)
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import POOLED, PartitionInputs, R
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.private_training import Budget
from fedfisher_core.federation.uploads import PAYLOAD, TENSORS
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.privacy.attack.cases import Case
from fedfisher_core.privacy.attack.evaluator import (
    AttackMeasures,
    Evaluator,
    References,
    measure_attack,
    measure_references,
    prior_images,
)
from fedfisher_core.privacy.attack.evidence import Evidence, Knowledge, evidence_of_all, likelihoods
from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.attack.gan import Gan
from fedfisher_core.privacy.attack.inversion import invert
from fedfisher_core.privacy.release import Release

_IMAGES = "images.safetensors"


@dataclass(frozen=True)
class BoundInputs(PartitionInputs[R]):
    """What floors and ceiling are measured with."""

    prior: R
    judge: R


@dataclass(frozen=True)
class AttackInputs(BoundInputs[R]):
    """What the attacker has.

    Args:
        payloads: uploads by client: the attacked one's, or all where the server sees a sum.
    """

    payloads: Mapping[int, R]


B = TypeVar("B", bound=BoundInputs[Artifact])


@dataclass(frozen=True)
class JudgedJob(TargetJob[B]):
    """A job that judges images of the prior or of an attack."""

    def gan(self, inputs: B) -> Gan:
        """Read the GAN that `TrainPrior` made."""
        images = require_images(self.federation.dataset.inputs, "an attack")
        return Gan.load(
            read_tensors(inputs.prior, TENSORS), self.experiment.gan, images=images, device=self.federation.device
        )

    def evaluator(self, inputs: B) -> Evaluator:
        """Read the evaluator that `TrainJudge` made."""
        return Evaluator.load(
            read_tensors(inputs.judge, TENSORS),
            self.experiment.evaluator,
            images=require_images(self.federation.dataset.inputs, "an attack"),
            classes=self.federation.dataset.classes,
            device=self.federation.device,
        )


@dataclass(frozen=True)
class AttackClient(JudgedJob[AttackInputs[Artifact]]):
    """Reconstruct the target label's images from what the server sees, and measure how well that went."""

    kind: ClassVar[str] = "attacks"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "attack"

    configured: ConfiguredMethod
    schema: Schema
    case: Case

    @property
    def tags(self) -> tuple[str, ...]:
        """See `Job.tags`."""
        return (*super().tags, self.configured.method.name)

    @property
    def budget(self) -> Budget | None:
        """What a client may spend on its uploads to this method, all that it releases; None without privacy."""
        settings = self.federation.settings
        return (
            None
            if settings.privacy is None
            else Budget(settings.privacy, self.federation.train, self.configured.uploads)
        )

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; methods that let the server see the same share it."""
        known = [likelihoods.get(name).evidence for name in self.case.statistics]
        return {
            **self.described("gan", "evaluator"),
            # The attacker knows its own images.
            "auxiliary_images": self.experiment.threat.auxiliary_images,
            "sources": list(self.experiment.threat.sources),
            # The settings list several choices of factors; this attack has one.
            "inversion": self.experiment.inversion.model_dump(mode="json", exclude={"factors"}),
            **({} if self.case.factors is Factors.ALL else {"factors": self.case.factors.value}),
            "model": {"name": self.federation.spec.identity, "bias": self.experiment.model.bias},
            "code": code_of(models.get(self.federation.spec.name), *(one for one in known if one is not None)),
            "fisher": self.federation.fisher.estimator,
            "views": {name: view.value for name, view in self.case.views.items()},
            "wire": self.schema.digest().hex(),
            **({} if self.budget is None else self.budget.described()),
        }

    def compute(self, inputs: AttackInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: no attack is defined on what the server sees.
            DivergedAttackError: a loss is not finite.
            DivergedClientError: a client that is attacked has diverged.
        """
        if (error := divergence(inputs.payloads.values())) is not None:
            raise error
        federation, gan, evaluator = self.federation, self.gan(inputs), self.evaluator(inputs)
        begun = time.perf_counter()
        weights, evidence = self.seen(inputs)
        reconstruction = invert(
            federation.spec.load(weights),
            gan,
            self.target,
            self.experiment.inversion,
            normalise=partial(normalise, spec=federation.dataset),
            generator=self.generator(Branch.INVERSION),
            evidence=evidence,
        )
        seconds = time.perf_counter() - begun
        private = pixels_of(private_images(inputs, self.target)).to(self.federation.device)
        measures = measure_attack(evaluator, reconstruction, target=self.target, private=private)
        return Content(
            tensors={_IMAGES: {"images": _as_bytes(reconstruction.images)}},
            documents={MEASURES: {"restart": reconstruction.best, **asdict(measures)}},
            timings={"seconds": seconds},
        )

    def seen(self, inputs: AttackInputs[Artifact]) -> tuple[Parameters, Evidence]:
        """The weights of the network that the attacker inverts, and the evidence in addition to them."""
        federation, views, dataset = self.federation, self.case.views, load_data(inputs.data)
        uploads = {client: self._received(payload) for client, payload in sorted(inputs.payloads.items())}

        def shown(statistic: type[Statistic]) -> Statistic:
            if views[statistic.name] is ServerView.SUM:
                return _mean(statistic, list(uploads.values()))
            return uploads[TARGET_CLIENT][statistic]

        weights = dict(shown(Weights).tensors)
        statistics = [shown(one) for one in self.configured.method.uploads if one.name in self.case.statistics]
        knowledge = Knowledge(
            network=federation.spec.load(weights).eval(),
            auxiliary=select(dataset.train, dataset.spec, self.auxiliary(inputs)).inputs.to(federation.device),
            share=uploads[TARGET_CLIENT].num_examples / len(held_by(inputs.partition, POOLED)),
            target=self.target,
            estimator=estimator_of(federation.fisher),
            release=self.released(inputs),
            factors=self.case.factors,
        )
        return weights, evidence_of_all(statistics, knowledge)

    def released(self, inputs: AttackInputs[Artifact]) -> Release | None:
        """What the attacker knows of how statistics were released.

        None without differential privacy, or where only weights were released.
        """
        counts = tuple(len(held_by(inputs.partition, client)) for client in range(self.federation.setting.clients))
        budget = self.budget
        multiplier = None if budget is None else budget.noise(counts[TARGET_CLIENT]).release
        if budget is None or multiplier is None:
            return None
        return Release(budget.privacy, multiplier, counts)

    def _received(self, payload: Artifact) -> Upload:
        return decode(read_bytes(payload, PAYLOAD), self.schema, self.configured.method.uploads, self.federation.device)


@dataclass(frozen=True)
class MeasureBounds(JudgedJob[BoundInputs[Artifact]]):
    """Measure images of noise, images of the prior without an attack, and real test images of the target label.

    All federations with the same data set, target label and seed have the same bounds.
    """

    kind: ClassVar[str] = "attack_bounds"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "bound"

    @property
    def count(self) -> int:
        """Number of images: as many as all restarts of an attack make."""
        return self.experiment.inversion.restarts * self.experiment.inversion.images

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        chosen = {"count": self.count, "clip": self.experiment.inversion.clip}
        return self.described("gan", "evaluator") | chosen

    def compute(self, inputs: BoundInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        inversion, test, gan = self.experiment.inversion, load_data(inputs.data).test, self.gan(inputs)
        references = measure_references(
            self.evaluator(inputs),
            gan,
            target=self.target,
            private=pixels_of(private_images(inputs, self.target)).to(self.federation.device),
            real=pixels_of(test.inputs[test.labels == self.target]).to(self.federation.device),
            count=self.count,
            clip=inversion.clip,
            generator=self.generator(Branch.REFERENCES),
        )
        generator = self.generator(Branch.REFERENCES)
        shown = prior_images(gan, inversion.images, clip=inversion.clip, generator=generator)
        return Content(tensors={_IMAGES: {"images": _as_bytes(shown)}}, documents={MEASURES: asdict(references)})


@understood
def read_attack(artifact: Artifact) -> AttackMeasures:
    """Read how well an `AttackClient` did."""
    return TypeAdapter(AttackMeasures).validate_python(read_document(artifact, MEASURES))


@understood
def read_bounds(artifact: Artifact) -> References:
    """Read the floors and the ceiling that `MeasureBounds` measured."""
    return TypeAdapter(References).validate_python(read_document(artifact, MEASURES))


@understood
def best_images(artifact: Artifact) -> Tensor:
    """Read the images of an attack's best restart, uint8, shape (images, channels, height, width)."""
    return read_tensors(artifact, _IMAGES)["images"][read_document(artifact, MEASURES)["restart"]]


@understood
def prior_sample(artifact: Artifact) -> Tensor:
    """Read images of the prior without an attack, uint8, shape (images, channels, height, width)."""
    return read_tensors(artifact, _IMAGES)["images"]


def _mean(statistic: type[Statistic], uploads: Sequence[Upload]) -> Statistic:
    """The mean over clients, weighted by their shares of the examples."""
    total = sum(upload.num_examples for upload in uploads)

    def mean(name: str) -> Tensor:
        return sum(upload.num_examples / total * upload[statistic].tensors[name] for upload in uploads)  # type: ignore[return-value]

    return statistic.of({name: mean(name) for name in uploads[0][statistic].tensors})


def _as_bytes(pixels: Tensor) -> Tensor:
    return (255 * pixels).round().byte().cpu()
