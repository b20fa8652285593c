"""The generative prior: its penalty, its training, and what is stored of it."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.privacy.attack.gan import Critic, Gan, Generator, draw, gradient_penalty, require_size, train_gan
from fedfisher_core.privacy.attack.settings import GanSettings
from tests.privacy.attack.pieces import blobs, same

SMALL = GanSettings(latent=6, width=4, generator_steps=3, critic_steps=2, batch_size=16)
CPU = torch.device("cpu")


def trained(settings: GanSettings = SMALL, *, seed: int = 0) -> Gan:
    return train_gan(blobs(64)[0], settings, generator=torch.Generator().manual_seed(seed))


def noise(count: int, latent: int, *, seed: int = 0) -> Tensor:
    return torch.randn(count, latent, generator=torch.Generator().manual_seed(seed))


class Quadratic(nn.Module):
    """D(x) = sum_j c_j x_j^2 / 2, whose gradient is c_j x_j."""

    def __init__(self) -> None:
        super().__init__()
        self.curvature = nn.Parameter(torch.arange(1.0, 5.0).reshape(1, 2, 2))

    def forward(self, images: Tensor) -> Tensor:
        return (self.curvature * images.square()).sum((1, 2, 3)) / 2


def test_the_gradient_penalty_is_taken_at_the_mixed_images() -> None:
    real, fake = torch.rand(3, 1, 2, 2), torch.rand(3, 1, 2, 2)
    mixture = torch.tensor([0.0, 0.25, 1.0])
    critic = Quadratic()
    expected = 0.0
    for image in range(3):
        share = mixture[image].item()
        squared = 0.0
        for pixel in range(4):
            mixed = share * real[image].flatten()[pixel] + (1 - share) * fake[image].flatten()[pixel]
            squared += ((pixel + 1) * mixed.item()) ** 2
        expected += (squared**0.5 - 1) ** 2 / 3
    penalty = gradient_penalty(critic, real, fake, mixture)
    assert penalty.item() == pytest.approx(expected, rel=1e-5)


def test_the_gradient_penalty_teaches_the_critic() -> None:
    critic = Quadratic().double()
    real, fake, mixture = (torch.rand(shape, dtype=torch.float64) for shape in ((3, 1, 2, 2), (3, 1, 2, 2), (3,)))
    (gradient,) = torch.autograd.grad(gradient_penalty(critic, real, fake, mixture), critic.curvature)
    with torch.no_grad():
        step = torch.zeros_like(critic.curvature)
        step[0, 1, 0] = 1e-6
        critic.curvature += step
    above = gradient_penalty(critic, real, fake, mixture)
    with torch.no_grad():
        critic.curvature -= 2 * step
    below = gradient_penalty(critic, real, fake, mixture)
    assert gradient[0, 1, 0].item() == pytest.approx((above - below).item() / 2e-6, rel=1e-5)


def test_a_flat_critic_has_a_penalty_with_a_gradient() -> None:
    critic = Quadratic()
    zeros = torch.zeros(2, 1, 2, 2)
    penalty = gradient_penalty(critic, zeros, zeros, torch.ones(2))
    (gradient,) = torch.autograd.grad(penalty, critic.curvature)
    assert penalty.item() == 1
    assert torch.isfinite(gradient).all()


def test_training_moves_generated_images_to_the_real_ones() -> None:
    images, _ = blobs(400)
    settings = GanSettings(latent=4, width=8, generator_steps=60, critic_steps=3, batch_size=16, learning_rate=5e-3)
    gan = train_gan(images, settings, generator=torch.Generator().manual_seed(0))
    untrained = draw(Generator(images=Images(1, 8, 8), latent=4, width=8), torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        made, before = gan.generator(noise(400, 4)), untrained(noise(400, 4))
    real = images.mean(0)
    assert (made.mean(0) - real).abs().mean() < 0.5 * (before.mean(0) - real).abs().mean()
    # Each image is bright in one corner, not half as bright in both.
    first, second = made[:, 0, :4, :4].mean((1, 2)), made[:, 0, 4:, 4:].mean((1, 2))
    assert (first - second).abs().mean() > 0.4
    assert (first > second).float().mean().item() == pytest.approx(0.5, abs=0.35)
    assert gan.distances[-10:].mean() < gan.distances.max() / 2


def test_one_critic_step_descends_the_loss_with_the_penalty() -> None:
    images, _ = blobs(32)
    settings = SMALL.model_copy(update={"generator_steps": 1, "critic_steps": 1, "batch_size": 32})
    gan = train_gan(images, settings, generator=torch.Generator().manual_seed(3))

    generator = torch.Generator().manual_seed(3)
    maker = draw(Generator(images=Images(1, 8, 8), latent=6, width=4), generator).train()
    critic = draw(Critic(images=Images(1, 8, 8), width=4), generator)
    real = images[torch.randperm(32, generator=generator)]
    fake = maker(torch.randn(32, 6, generator=generator)).detach()
    share = torch.rand(32, generator=generator)[:, None, None, None]
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    distance = critic(real).mean() - critic(fake).mean()
    loss = -distance + 10 * ((slope.square().sum((1, 2, 3)).sqrt() - 1) ** 2).mean()
    optimiser = torch.optim.Adam(critic.parameters(), lr=settings.learning_rate, betas=(0.5, 0.999))
    loss.backward()
    optimiser.step()

    assert gan.distances.tolist() == pytest.approx([distance.item()])
    for own, other in zip(gan.critic.parameters(), critic.parameters(), strict=True):
        torch.testing.assert_close(own, other)


def test_training_is_reproducible() -> None:
    assert same(trained().state(), trained().state())
    assert not same(trained().state(), trained(seed=1).state())


def test_a_stored_prior_makes_the_same_images() -> None:
    gan = trained()
    assert not gan.generator.training
    restored = Gan.load(gan.state(), SMALL, images=Images(1, 8, 8), device=CPU)
    images = gan.generator(noise(20, 6))
    assert torch.equal(restored.generator(noise(20, 6)), images)
    assert torch.equal(restored.critic(images), gan.critic(images))
    assert torch.equal(restored.distances, gan.distances)
    # The running statistics of batch normalisation are among what was stored.
    forgotten = {name: torch.zeros_like(t) if "running_mean" in name else t for name, t in gan.state().items()}
    other = Gan.load(forgotten, SMALL, images=Images(1, 8, 8), device=CPU)
    assert not torch.allclose(other.generator(noise(20, 6)), images)


@pytest.mark.parametrize("missing", ["distances", "generator.linear.1.running_var", "critic.maps.0.weight"])
def test_an_incomplete_prior_is_refused(missing: str) -> None:
    state = {name: tensor for name, tensor in trained().state().items() if name != missing}
    with pytest.raises(InputError, match=missing.partition(".")[2] or missing):
        Gan.load(state, SMALL, images=Images(1, 8, 8), device=CPU)


def test_a_prior_of_other_settings_is_refused() -> None:
    wider = SMALL.model_copy(update={"width": 8})
    with pytest.raises(InputError, match="the stored generator"):
        Gan.load(trained().state(), wider, images=Images(1, 8, 8), device=CPU)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 13), (1, 28), (3, 32)])
def test_images_of_any_size(channels: int, size: int) -> None:
    seed = torch.Generator().manual_seed(0)
    generator = draw(Generator(images=Images(channels, size, size), latent=5, width=2), seed)
    critic = draw(Critic(images=Images(channels, size, size), width=2), seed)
    images = generator(noise(7, 5))
    assert images.shape == (7, channels, size, size)
    assert 0 <= images.min() < images.max() <= 1
    assert critic(images).shape == (7,)


def test_the_critic_mixes_no_images() -> None:
    critic = draw(Critic(images=Images(1, 8, 8), width=4), torch.Generator().manual_seed(0))
    images, _ = blobs(6)
    torch.testing.assert_close(critic(images)[2:3], critic(images[2:3]))


def test_the_size_of_the_literature_can_be_set() -> None:
    generator = Generator(images=Images(1, 32, 32), latent=100, width=64)
    layers = [m for m in generator.modules() if isinstance(m, nn.Linear | nn.ConvTranspose2d)]
    assert [tuple(layer.weight.shape) for layer in layers] == [
        (4096, 100),
        (256, 128, 5, 5),
        (128, 64, 5, 5),
        (64, 1, 5, 5),
    ]


@pytest.mark.parametrize(("height", "width"), [(6, 6), (6, 20), (20, 7)])
def test_too_small_images_are_refused(height: int, width: int) -> None:
    with pytest.raises(InputError, match=f"{height}x{width} pixels"):
        train_gan(torch.rand(64, 1, height, width), SMALL, generator=torch.Generator())


def test_images_need_not_be_square() -> None:
    generator = torch.Generator().manual_seed(0)
    gan = train_gan(torch.rand(16, 3, 9, 20, generator=generator), SMALL, generator=generator)
    restored = Gan.load(gan.state(), SMALL, images=Images(3, 9, 20), device=CPU)
    pixels = restored.generator(torch.randn(2, SMALL.latent, generator=generator))
    assert pixels.shape == (2, 3, 9, 20)
    assert restored.critic(pixels).shape == (2,)


@pytest.mark.parametrize("layout", [Vectors(64), Tokens(64, 9)], ids=str)
def test_examples_that_are_no_images_are_refused(layout: Layout) -> None:
    with pytest.raises(InputError, match=f"an attack takes images; the data has {layout}"):
        require_size(layout)


@pytest.mark.parametrize("shape", [(8, 1, 8, 8), (64, 8, 8)])
def test_unusable_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="batch_size=16"):
        train_gan(torch.rand(shape), SMALL, generator=torch.Generator())


def test_a_diverged_training_is_named() -> None:
    images = blobs(64)[0]
    images[:] = torch.nan
    with pytest.raises(DivergedAttackError, match=r"critic's loss is nan in generator step 1"):
        train_gan(images, SMALL, generator=torch.Generator().manual_seed(0))
