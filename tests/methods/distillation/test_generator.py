import pytest
import torch
from torch import nn
from torch.nn import functional

from fedfisher_core.data.layouts import Images
from fedfisher_core.methods.distillation.generator import SMALLEST, Generator, UpsampledConvolution, draw_generator

CPU = torch.device("cpu")


def drawn(seed: int = 0, *, channels: int = 1, size: int = 8, latent: int = 5) -> Generator:
    generator = torch.Generator().manual_seed(seed)
    return draw_generator(images=Images(channels, size, size), latent=latent, generator=generator, device=CPU)


def test_a_doubling_convolution_is_a_convolution_of_repeated_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = UpsampledConvolution(3, 4).double()
    nn.init.normal_(layer.weight, generator=generator)
    maps = torch.randn(2, 3, 5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    repeated = maps.repeat_interleave(2, 2).repeat_interleave(2, 3)
    expected = functional.conv2d(repeated, layer.weight, padding=1)
    found = layer(maps)
    assert torch.allclose(found, expected, atol=1e-12)
    probe = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    learned = [maps, layer.weight]
    for one, other in zip(
        torch.autograd.grad((found * probe).sum(), learned),
        torch.autograd.grad((expected * probe).sum(), learned),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-11)


def test_the_generator_is_that_of_dense() -> None:
    network = drawn(channels=3).double()
    noise = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    linear, (norm, conv, norm_2, _, conv_2, norm_3, _, last) = network.linear, network.maps

    def normalised(maps: torch.Tensor, layer: nn.BatchNorm2d) -> torch.Tensor:
        mean, variance = maps.mean((0, 2, 3), keepdim=True), maps.var((0, 2, 3), keepdim=True, correction=0)
        scale, shift = (one.reshape(1, -1, 1, 1) for one in (layer.weight, layer.bias))
        return (maps - mean) / (variance + 1e-5).sqrt() * scale + shift

    def convolved(maps: torch.Tensor, layer: UpsampledConvolution) -> torch.Tensor:
        return functional.conv2d(functional.interpolate(maps, scale_factor=2), layer.weight, padding=1)

    maps = normalised((noise @ linear.weight.T + linear.bias).reshape(6, 128, 2, 2), norm)
    maps = functional.leaky_relu(normalised(convolved(maps, conv), norm_2), 0.2)
    maps = functional.leaky_relu(normalised(convolved(maps, conv_2), norm_3), 0.2)
    expected = functional.conv2d(maps, last.weight, last.bias, padding=1).sigmoid()
    assert expected.shape == (6, 3, 8, 8)
    assert torch.allclose(network(noise), expected, atol=1e-12)


@pytest.mark.parametrize("size", [SMALLEST, 6, 28, 30, 32, 33])
def test_images_of_every_size_are_made(size: int) -> None:
    pixels = drawn(size=size)(torch.randn(3, 5, generator=torch.Generator().manual_seed(1)))
    assert pixels.shape == (3, 1, size, size)
    assert 0 < pixels.min() < pixels.max() < 1


def test_images_need_not_be_square() -> None:
    generator = torch.Generator().manual_seed(0)
    network = draw_generator(images=Images(3, 6, 17), latent=5, generator=generator, device=CPU)
    assert network(torch.randn(2, 5)).shape == (2, 3, 6, 17)


def test_weights_are_drawn_as_the_paper_draws_them() -> None:
    network = drawn(size=28, latent=256)
    drawn_weights = dict(network.named_parameters())
    norms = {f"maps.{i}.weight" for i, one in enumerate(network.maps) if isinstance(one, nn.BatchNorm2d)}
    assert len(norms) == 3
    for name, tensor in drawn_weights.items():
        if name.endswith("bias"):
            assert not tensor.any(), name
            continue
        assert tensor.mean().item() == pytest.approx(1.0 if name in norms else 0.0, abs=0.01), name
        assert tensor.std().item() == pytest.approx(0.02, rel=0.3), name


def test_weights_depend_on_the_generator_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = drawn(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    again, other = drawn(0), drawn(1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.linear.weight, other.linear.weight)
