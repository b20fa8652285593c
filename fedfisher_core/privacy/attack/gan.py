"""The attacker's generative prior, trained by WGAN-GP (Gulrajani et al. 2017) on images that it has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.privacy.attack.networks import Critic, Generator, draw, load_state, state_of
from fedfisher_core.privacy.attack.settings import GanSettings


@dataclass(frozen=True, eq=False)
class Gan:
    """A trained prior, both networks in evaluation mode.

    Args:
        generator: makes images from latents.
        critic: scores images.
        distances: E D(x) - E D(G z), the critic's estimate of the distance of real and generated images, before
            each update of the generator, on the CPU.
    """

    generator: Generator
    critic: Critic
    distances: Tensor

    def state(self) -> dict[str, Tensor]:
        """Copies of the parameters, buffers and distances on the CPU: all that `load` needs."""
        return {
            **state_of(self.generator, "generator"),
            **state_of(self.critic, "critic"),
            "distances": self.distances.clone(),
        }

    @classmethod
    def load(cls, state: Mapping[str, Tensor], settings: GanSettings, *, images: Images, device: torch.device) -> "Gan":
        """Rebuild a prior from its state and the settings of its training.

        Raises:
            InputError: the state was of a prior of another shape.
        """
        generator, critic = _build(settings, images)
        if "distances" not in state:
            raise InputError(f"the state of a prior holds {', '.join(state) or 'nothing'}; 'distances' is missing")
        return cls(
            generator=load_state(generator, state, "generator").to(device),
            critic=load_state(critic, state, "critic").to(device),
            distances=state["distances"].cpu(),
        )


def train_gan(images: Tensor, settings: GanSettings, *, generator: torch.Generator) -> Gan:
    """Train generator and critic on images, on the images' device.

    Args:
        images: pixels between 0 and 1, shape (images, channels, height, width).
        generator: draws weights, batches, latents and mixtures, on the CPU.

    Raises:
        InputError: there are fewer images than a batch, or they are too small.
        DivergedAttackError: the critic's loss is not finite.
    """
    if images.ndim != 4 or len(images) < settings.batch_size:
        raise InputError(
            f"images have shape {tuple(images.shape)}; allowed: (images, channels, height, width), with at least "
            f"batch_size={settings.batch_size} images"
        )
    device = images.device
    maker, critic = (
        draw(network, generator).to(device).train() for network in _build(settings, Images(*images.shape[1:]))
    )
    assert isinstance(maker, Generator)
    assert isinstance(critic, Critic)
    optimisers = [
        torch.optim.Adam(network.parameters(), lr=settings.learning_rate, betas=settings.betas, fused=True)
        for network in (maker, critic)
    ]
    batches = _batches(len(images), settings.batch_size, generator)
    distances = torch.zeros(settings.generator_steps)

    def latents() -> Tensor:
        return torch.randn(settings.batch_size, settings.latent, generator=generator).to(device)

    for step in track(range(settings.generator_steps), what="generator step"):
        for _ in range(settings.critic_steps):
            real = images[next(batches).to(device)]
            with torch.no_grad():
                fake = maker(latents())
            mixture = torch.rand(settings.batch_size, generator=generator).to(device)
            distance = critic(real).mean() - critic(fake).mean()
            penalty = gradient_penalty(critic, real, fake, mixture)
            loss = settings.gradient_penalty * penalty - distance
            _update(optimisers[1], critic, loss)
        distances[step] = distance.detach()
        if not torch.isfinite(loss):
            raise DivergedAttackError(f"GAN: the critic's loss is {loss.item()} in generator step {step + 1}")
        _update(optimisers[0], maker, -critic(maker(latents())).mean())
    return Gan(generator=maker.eval(), critic=critic.eval(), distances=distances)


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor, mixture: Tensor) -> Tensor:
    """Measure how far the critic's gradients are from length 1 (Gulrajani et al. 2017, Equation 3, without lambda).

    Args:
        critic: maps images to scores of shape (batch,), each image separately.
        real: images, shape (batch, channels, height, width).
        fake: images of the same shape.
        mixture: the share of the real image in each mixed one, shape (batch,).

    Returns:
        E (||grad D(mixed)||_2 - 1)^2, differentiable in the critic's parameters.
    """
    share = mixture[:, None, None, None]
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (torch.linalg.vector_norm(gradient.flatten(1), dim=1) - 1).square().mean()


def _build(settings: GanSettings, images: Images) -> tuple[Generator, Critic]:
    return (
        Generator(images=images, latent=settings.latent, width=settings.width),
        Critic(images=images, width=settings.width),
    )


def _update(optimiser: torch.optim.Optimizer, network: nn.Module, loss: Tensor) -> None:
    """Make one step by the gradients of one network's parameters alone."""
    optimiser.zero_grad()
    # Gradients of gradients come in any layout. Unlike `grad`, this brings them to the parameters' layout, which fused
    # steps assume.
    loss.backward(inputs=list(network.parameters()))
    optimiser.step()


def _batches(images: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Draw batches of indices without end, each image at most once an epoch; a smaller last batch is dropped."""
    while True:
        order = torch.randperm(images, generator=generator)
        yield from order[: images // batch_size * batch_size].split(batch_size)
