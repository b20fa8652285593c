"""The audit of a client's differential privacy: what canaries tell of the epsilon that it spends."""

import logging
import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedfisher_core.client.round_state import NO_PAST
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.seeds import Stream
from fedfisher_core.engine.store import Artifact, Content, read_document, understood
from fedfisher_core.federation.federation import TrainingInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.private_training import TrainPrivately
from fedfisher_core.federation.start import load_start
from fedfisher_core.models.spec import Parameters
from fedfisher_core.privacy.accountant import guess, lower_bound
from fedfisher_core.privacy.canaries import example_losses
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.settings import AuditSettings

log = logging.getLogger("fedfisher")

_AUDIT = "audit.json"


@dataclass(frozen=True)
class Audit:
    """What is known of a client's epsilon.

    Args:
        upper: the accountant's bound for all that the client releases.
        lower: the epsilon that guesses from its weights alone refute, at a confidence of 95 %.
        canaries: m, the number of examples whose presence a coin decided.
    """

    upper: float
    lower: float
    canaries: int
    guesses: int
    correct: int


@dataclass(frozen=True)
class AuditClient(TrainPrivately):
    """Train a client as usual, but with canaries, and guess from its weights which canaries were there.

    A canary is one of the client's examples under a wrong label. A fair coin decides whether the training includes it.
    The auditor guesses by how much the training lowered the canaries' losses.
    """

    kind: ClassVar[str] = "audits"
    version: ClassVar[int] = 1
    action: ClassVar[str] = "audit"

    audit: AuditSettings

    @property
    def chosen(self) -> dict[str, Any]:
        """See `TrainClient.chosen`."""
        return {**super().chosen, "audit": self.audit.model_dump(mode="json")}

    def compute(self, inputs: TrainingInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: the training is not finite.
        """
        federation, budget = self.federation, self.budget
        begun = time.perf_counter()
        examples = examples_of(federation, inputs, self.client)
        noise, source = budget.noise(len(examples)), self.generator(Stream.AUDIT)
        order = torch.randperm(len(examples), generator=source).to(federation.device)
        if len(order) < self.audit.canaries:
            log.warning(
                "%s: audit.canaries=%d, and the client has %d examples; all of them are canaries",
                self.name,
                self.audit.canaries,
                len(order),
            )
        others, chosen = order[self.audit.canaries :], order[: self.audit.canaries]
        included = torch.rand(len(chosen), generator=source) < 0.5
        canaries = _mislabelled(examples, chosen, federation.spec.classes, source)
        there = included.to(federation.device)
        present = Examples(
            torch.cat([examples.inputs[others], canaries.inputs[there]]),
            torch.cat([examples.labels[others], canaries.labels[there]]),
        )
        start = load_start(inputs.start, federation.device)
        network = federation.spec.load(start)
        trained = train_privately(
            network,
            present,
            budget.train,
            noise_multiplier=noise.training,
            gradient_clip=budget.privacy.gradient_clip,
            generator=self.training_generator(inputs),
            losses=self.losses(network, present, NO_PAST),
            num_examples=len(examples),
            augmented=federation.dataset.augment,
        )
        scores = self._losses(start, canaries) - self._losses(trained.parameters, canaries)
        guesses = guess(scores, included, made=min(self.audit.guesses, len(chosen)))
        audit = Audit(
            upper=noise.epsilon,
            lower=lower_bound(guesses, delta=budget.privacy.delta),
            canaries=guesses.canaries,
            guesses=guesses.made,
            correct=guesses.correct,
        )
        return Content(documents={_AUDIT: asdict(audit)}, timings={"seconds": time.perf_counter() - begun})

    def _losses(self, parameters: Parameters, examples: Examples) -> Tensor:
        """Cross-entropy of each example, on the CPU."""
        return example_losses(self.federation.network(parameters), examples.inputs, examples.labels)


@understood
def read_audit(artifact: Artifact) -> Audit:
    """Read the bounds on epsilon that an `AuditClient` found."""
    return Audit(**read_document(artifact, _AUDIT))


def _mislabelled(examples: Examples, chosen: Tensor, classes: int, generator: torch.Generator) -> Examples:
    """Take some examples, each under a wrong label."""
    shifts = torch.randint(1, classes, (len(chosen),), generator=generator).to(chosen.device)
    return Examples(examples.inputs[chosen], (examples.labels[chosen] + shifts) % classes)
