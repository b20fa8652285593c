"""The attacker's generative prior (GMI, Zhang et al. 2020), trained by WGAN-GP (Gulrajani et al. 2017)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images, Layout, require_images
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.engine.progress import track
from fedfisher_core.privacy.attack.settings import GanSettings

SMALLEST = 8
"""Height and width of the smallest images; three halvings leave one pixel."""

Network = TypeVar("Network", bound=nn.Module)

_KERNEL = 5
_SLOPE = 0.2
_DEVIATION = 0.02


class Generator(nn.Module):
    """Latents to images: a linear layer and three transposed convolutions, each of which doubles height and width.

    Args:
        images: their size, at least 8x8; where height or width is no multiple of 8, larger images are cut on all sides.
        latent: numbers an image.
    """

    def __init__(self, *, images: Images, latent: int, width: int) -> None:
        super().__init__()
        require_size(images)
        self.images = images
        self.latent = latent
        self.first = _eighths(images)
        units = 4 * width * self.first[0] * self.first[1]
        self.linear = nn.Sequential(nn.Linear(latent, units, bias=False), nn.BatchNorm1d(units), nn.ReLU())
        self.maps = nn.Sequential(
            *_doubled(4 * width, 2 * width),
            *_doubled(2 * width, width),
            nn.ConvTranspose2d(width, images.channels, _KERNEL, stride=2, padding=2, output_padding=1),
        )

    def forward(self, latents: Tensor) -> Tensor:
        """Make images from latents of shape (batch, latent).

        Returns:
            Pixels between 0 and 1, shape (batch, channels, height, width).
        """
        images = self.maps(self.linear(latents).reshape(len(latents), -1, *self.first))
        top, left = (images.shape[-2] - self.images.height) // 2, (images.shape[-1] - self.images.width) // 2
        return images[..., top : top + self.images.height, left : left + self.images.width].sigmoid()


def _doubled(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.ConvTranspose2d(inputs, outputs, _KERNEL, stride=2, padding=2, output_padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


class Critic(nn.Module):
    """Images, at least 8x8, to scores: three convolutions that halve height and width, and one over what remains.

    Between them is layer normalisation. It mixes no images, as the gradient penalty demands. GMI's instance
    normalisation mixes none either, but leaves nothing of maps of one pixel.
    """

    def __init__(self, *, images: Images, width: int) -> None:
        super().__init__()
        require_size(images)
        self.maps = nn.Sequential(
            nn.Conv2d(images.channels, width, _KERNEL, stride=2, padding=2),
            nn.LeakyReLU(_SLOPE),
            *_halved(width, 2 * width),
            *_halved(2 * width, 4 * width),
            nn.Conv2d(4 * width, 1, _eighths(images)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Score images, pixels between 0 and 1; higher is more real, shape (batch,)."""
        return self.maps(images).flatten()


def _halved(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, _KERNEL, stride=2, padding=2)
    return [convolution, nn.GroupNorm(1, outputs), nn.LeakyReLU(_SLOPE)]


def _eighths(images: Images) -> tuple[int, int]:
    """Height and width after three halvings, each rounded up."""
    return -(-images.height // 8), -(-images.width // 8)


def require_size(layout: Layout) -> None:
    """Refuse, by an InputError, examples that are no images or can't be halved three times."""
    images = require_images(layout, "an attack")
    if min(images.height, images.width) < SMALLEST:
        raise InputError(
            f"images have {images.height}x{images.width} pixels; allowed for an attack: at least {SMALLEST}x{SMALLEST}"
        )


def draw(network: Network, generator: torch.Generator) -> Network:
    """Draw initial weights in place, on the CPU: N(0, 0.02) for layers, N(1, 0.02) for normalisation; biases are 0."""
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)
            else:
                mean = 1.0 if parameter.ndim == 1 else 0.0
                nn.init.normal_(parameter, mean, _DEVIATION, generator=generator)
    return network


def state_of(network: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Copy a network's parameters and buffers to the CPU, by their names after a prefix and a dot."""
    return {f"{prefix}.{name}": tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}


def load_state(network: Network, state: Mapping[str, Tensor], prefix: str) -> Network:
    """Undo `state_of` in place, on a network of the same shape, and put it into evaluation mode.

    Args:
        state: named tensors; those of other networks have other prefixes.

    Raises:
        InputError: a tensor is missing, left over or of another shape.
    """
    start = f"{prefix}."
    own = {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
    try:
        network.load_state_dict(own)
    except RuntimeError as error:
        raise InputError(f"the stored {prefix} is of another shape than its settings say: {error}") from error
    return network.eval()


@dataclass(frozen=True, eq=False)
class Gan:
    """A trained prior, both networks in evaluation mode.

    Args:
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
