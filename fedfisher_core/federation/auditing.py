"""Auditing the privacy of one client from below: training it once more, with canaries among its examples."""

import time
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.past import NO_PAST
from fedfisher_core.data.tensors import Examples
from fedfisher_core.federation.inputs import TrainingInputs
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.federation.private_training import TrainPrivately
from fedfisher_core.federation.start import load_start
from fedfisher_core.models.spec import Parameters
from fedfisher_core.privacy.audit import guess, lower_bound
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.seeds import Stream
from fedfisher_core.settings import AuditSettings
from fedfisher_core.store import Artifact, Content, Step, read_document

_AUDIT = "audit.json"
_BATCH = 1024


@dataclass(frozen=True)
class Audit:
    """What is known of a client's epsilon.

    Args:
        upper: what the accountant gives for all that the client releases.
        lower: what guesses from its weights alone refute, at a confidence of 95 %.
        canaries: m, examples whose presence was left to a coin.
        guesses: how many coins were guessed.
        correct: how many of them rightly.
    """

    upper: float
    lower: float
    canaries: int
    guesses: int
    correct: int


@dataclass(frozen=True)
class AuditClient(TrainPrivately):
    """Train a client as it is trained, but with canaries, and guess from its weights which of them were there.

    A canary is one of the client's examples under a wrong label; a fair coin says whether it is there or adds nothing.
    The auditor guesses by how much the training lowered the canaries' losses.

    Args:
        audit: how many canaries and guesses.
    """

    audit: AuditSettings

    def step(self, inputs: TrainingInputs[Artifact]) -> Step:
        """See `Job.step`."""
        trained = super().step(inputs)
        return replace(
            trained, kind="audits", settings={**trained.settings, "audit": self.audit.model_dump(mode="json")}
        )

    def compute(self, inputs: TrainingInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: the training is not finite.
        """
        place, budget = self.place, self.budget
        begun = time.perf_counter()
        examples = examples_of(place, inputs, self.client)
        noise, source = budget.noise(len(examples)), self.generator(Stream.AUDIT)
        order = torch.randperm(len(examples), generator=source).to(place.device)
        others, chosen = order[self.audit.canaries :], order[: self.audit.canaries]
        included = torch.rand(len(chosen), generator=source) < 0.5
        canaries = _mislabelled(examples, chosen, place.spec.classes, source)
        there = included.to(place.device)
        present = Examples(
            torch.cat([examples.inputs[others], canaries.inputs[there]]),
            torch.cat([examples.labels[others], canaries.labels[there]]),
        )
        start = load_start(inputs.start, place.device)
        network = place.spec.load(start)
        trained = train_privately(
            network,
            present,
            budget.train,
            noise_multiplier=noise.training,
            gradient_clip=budget.privacy.gradient_clip,
            generator=self.chance(inputs),
            losses=self.losses(network, present, NO_PAST),
            num_examples=len(examples),
            augmented=place.dataset.augment,
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
        """Cross-entropy of every example, on the CPU."""
        on_device = {name: tensor.to(self.place.device) for name, tensor in parameters.items()}
        return _losses(self.place.spec.load(on_device).eval(), examples)


def read_audit(artifact: Artifact) -> Audit:
    """Read what an audit found.

    Args:
        artifact: made by `AuditClient`.

    Returns:
        The bounds on epsilon.
    """
    return Audit(**read_document(artifact, _AUDIT))


def _mislabelled(examples: Examples, chosen: Tensor, classes: int, generator: torch.Generator) -> Examples:
    """Take some examples, each under another label than its own."""
    shifts = torch.randint(1, classes, (len(chosen),), generator=generator).to(chosen.device)
    return Examples(examples.inputs[chosen], (examples.labels[chosen] + shifts) % classes)


@torch.no_grad()
def _losses(network: nn.Module, examples: Examples) -> Tensor:
    parts = zip(examples.inputs.split(_BATCH), examples.labels.split(_BATCH), strict=True)
    losses = [functional.cross_entropy(network(inputs), labels, reduction="none") for inputs, labels in parts]
    return torch.cat(losses).cpu()
