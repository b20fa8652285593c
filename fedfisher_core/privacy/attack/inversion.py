"""Model inversion with a generative prior (Zhang et al. 2020, GMI), for many images and restarts at a time."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.fisher.capture import evaluation_mode
from fedfisher_core.privacy.attack.evidence import Evidence
from fedfisher_core.privacy.attack.gan import Gan
from fedfisher_core.privacy.attack.settings import InversionSettings

View = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Terms:
    """The parts of the loss, before their weights, each of shape (restarts,).

    Args:
        prior: -mean D(G z) over the images of a restart.
        identity: mean cross-entropy of the attacked network with the target class.
        evidence: squared difference of the statistic from the given one, as a multiple of the given one's squared size.
    """

    prior: Tensor
    identity: Tensor
    evidence: Tensor

    def total(self, settings: InversionSettings) -> Tensor:
        """Weight the parts and add them up, shape (restarts,)."""
        return self.prior + settings.identity_weight * self.identity + settings.statistics_weight * self.evidence


@dataclass(frozen=True)
class Reconstruction:
    """The result of an attack.

    Args:
        images: pixels between 0 and 1, shape (restarts, images, channels, height, width).
        latents: of these images, shape (restarts, images, latent).
        logits: mean output of the attacked network for the target class, shape (restarts,).
        losses: before each update, shape (iterations, restarts), on the CPU.
    """

    images: Tensor
    latents: Tensor
    logits: Tensor
    losses: Tensor
    terms: Terms

    @property
    def best(self) -> int:
        """The restart for whose images the attacked network has the highest mean logit of the target class.

        The attacker can't know which is best by another measure; a probability would be 1 for several.
        """
        return int(self.logits.argmax())

    @property
    def best_images(self) -> Tensor:
        """The images of the best restart, shape (images, channels, height, width)."""
        return self.images[self.best]


def invert(
    network: nn.Module,
    gan: Gan,
    target: int,
    settings: InversionSettings,
    *,
    normalise: View,
    generator: torch.Generator,
    evidence: Evidence,
) -> Reconstruction:
    """Search for images of a class that the prior finds real, the network recognises and the evidence supports.

    Minimises -mean D(G z) + identity_weight CE(T(G z), target) + statistics_weight evidence over z, where the evidence
    is the squared difference from the given statistic in units of the given one's squares. Restarts share every pass,
    but do not affect one another.

    Args:
        network: T, what the server attacks; run in evaluation mode.
        gan: G and D, on the network's device.
        normalise: from pixels between 0 and 1 to the network's inputs.
        generator: draws the first latents, restart by restart, on the CPU.

    Raises:
        InputError: the network has no such class, or the evidence is of another network.
        DivergedAttackError: a loss is not finite.
    """
    drawn = [torch.randn(settings.images, gan.generator.latent, generator=generator) for _ in range(settings.restarts)]
    latents = torch.stack(drawn).to(next(gan.generator.parameters()).device)
    velocity = torch.zeros_like(latents)
    losses = torch.zeros(settings.iterations, settings.restarts)
    with ExitStack() as modes:
        for module in (network, gan.generator, gan.critic):
            modes.enter_context(evaluation_mode(module))
        _require_class(network, normalise(_images(gan, latents[:1])).flatten(0, 1), target)
        for iteration in track(range(settings.iterations), what="iteration"):
            latents.requires_grad_()
            terms = _terms(network, gan, target, latents, normalise=normalise, evidence=evidence)
            loss = terms.total(settings)
            (gradient,) = torch.autograd.grad(loss.sum(), latents)
            losses[iteration] = loss.detach()
            if not torch.isfinite(losses[iteration]).all():
                raise DivergedAttackError(f"inversion: losses are {loss.tolist()} in iteration {iteration + 1}")
            latents, velocity = update(
                latents.detach(),
                velocity,
                gradient,
                learning_rate=settings.learning_rate,
                momentum=settings.momentum,
                clip=settings.clip,
            )
        with torch.no_grad():
            images = _images(gan, latents)
            logits = network(normalise(images.flatten(0, 1)))[:, target].unflatten(0, (settings.restarts, -1))
    return Reconstruction(
        images=images,
        latents=latents,
        logits=logits.mean(1),
        losses=losses,
        terms=Terms(terms.prior.detach(), terms.identity.detach(), terms.evidence.detach()),
    )


def update(
    latents: Tensor, velocity: Tensor, gradient: Tensor, *, learning_rate: float, momentum: float, clip: float
) -> tuple[Tensor, Tensor]:
    """Make one step in Nesterov's form, as the authors of GMI do; gives z' and v'.

    v' = momentum v - learning_rate gradient; z' = clip(z - momentum v + (1 + momentum) v'), with latents z, velocity v
    and `clip` the largest absolute value of a latent.
    """
    following = momentum * velocity - learning_rate * gradient
    moved = latents - momentum * velocity + (1 + momentum) * following
    return moved.clamp(-clip, clip), following


def _images(gan: Gan, latents: Tensor) -> Tensor:
    """Make images of shape (restarts, images, channels, height, width)."""
    return gan.generator(latents.flatten(0, 1)).unflatten(0, latents.shape[:2])


def _terms(network: nn.Module, gan: Gan, target: int, latents: Tensor, *, normalise: View, evidence: Evidence) -> Terms:
    pixels = gan.generator(latents.flatten(0, 1))
    inputs = normalise(pixels)
    labels = torch.full((len(inputs),), target, device=inputs.device)
    sets = latents.shape[:2]
    return Terms(
        prior=-gan.critic(pixels).unflatten(0, sets).mean(1),
        identity=functional.cross_entropy(network(inputs), labels, reduction="none").unflatten(0, sets).mean(1),
        evidence=evidence.loss(network, inputs.unflatten(0, sets)) / evidence.size,
    )


def _require_class(network: nn.Module, inputs: Tensor, target: int) -> None:
    with torch.no_grad():
        classes = network(inputs).shape[1]
    if not 0 <= target < classes:
        raise InputError(f"target={target}; allowed for the attacked network: 0 to {classes - 1}")
