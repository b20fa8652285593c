"""Measures of an attack, on images whose features can be read off."""

import math

import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.attack.evaluator import (
    measure,
    measure_attack,
    measure_references,
    prior_images,
    random_pixels,
)
from fedfisher_core.privacy.attack.inversion import Reconstruction, Terms
from tests.privacy.attack.pieces import PIXELS, columns_evaluator, pixelwise_gan
from tests.tiny import SIZE


def columns(*brightness: list[float]) -> Tensor:
    """Make images of two columns and rows, whose features are what is given."""
    return torch.tensor(brightness)[:, None, None, :].expand(-1, 1, 2, 2).clone()


PRIVATE = columns([0.0, 1.0], [0.25, 0.75])


def test_accuracy_is_the_share_that_is_classified_as_the_target() -> None:
    pixels = columns([0.1, 0.9], [0.9, 0.1], [0.2, 0.3], [0.4, 0.5])
    assert measure(columns_evaluator(), pixels, target=1, private=PRIVATE).accuracy == 0.75
    assert measure(columns_evaluator(), pixels, target=0, private=PRIVATE).accuracy == 0.25


def test_the_distance_is_that_of_the_nearest_pair() -> None:
    pixels = columns([1.0, 0.0], [0.55, 0.35])
    expected = math.hypot(0.55 - 0.25, 0.35 - 0.75)
    distance = measure(columns_evaluator(), pixels, target=1, private=PRIVATE).feature_distance
    assert distance == pytest.approx(expected)


def test_a_copy_of_the_last_of_many_private_images_is_found() -> None:
    many = torch.rand(2001, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    assert measure(columns_evaluator(), many[-1:], target=1, private=many[:-1]).feature_distance > 0
    assert measure(columns_evaluator(), many[-1:], target=1, private=many).feature_distance == 0


def test_an_attack_is_judged_by_the_restart_that_the_attacker_chose() -> None:
    images = torch.stack([columns([0.0, 1.0], [0.0, 1.0]), columns([1.0, 0.0], [0.2, 0.9])])
    found = Reconstruction(
        images=images,
        latents=torch.zeros(2, 2, 1),
        logits=torch.tensor([-2.0, -1.0]),
        losses=torch.zeros(1, 2),
        terms=Terms(torch.zeros(2), torch.zeros(2), torch.zeros(2)),
    )
    measures = measure_attack(columns_evaluator(), found, target=1, private=PRIVATE)
    assert measures.best.accuracy == 0.5
    assert measures.mean_accuracy == 0.75
    assert measures.best.feature_distance == pytest.approx(math.hypot(0.05, 0.15))


def test_floors_and_ceiling() -> None:
    gan, evaluator = pixelwise_gan(), columns_evaluator()
    private = torch.full((3, 1, SIZE, SIZE), 0.5)
    private[..., 4] = 1.0
    # Features are means of six pixels, so that one column in six is the brightest of random ones.
    references = measure_references(
        evaluator,
        gan,
        target=4,
        private=private,
        real=private[:2],
        count=1200,
        clip=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    assert references.real.accuracy == 1
    assert references.real.feature_distance == 0
    for floor in (references.uniform, references.prior):
        assert floor.accuracy == pytest.approx(1 / 6, abs=0.04)
        assert floor.feature_distance > 0
    assert references.uniform != references.prior


def test_images_of_the_prior_are_those_of_clipped_normal_latents() -> None:
    images = prior_images(pixelwise_gan(), 1500, clip=0.5, generator=torch.Generator().manual_seed(2))
    latents = torch.randn(1500, PIXELS, generator=torch.Generator().manual_seed(2)).clamp(-0.5, 0.5)
    torch.testing.assert_close(images.flatten(1), latents.sigmoid())
    assert not images.requires_grad


def test_random_pixels_are_uniform() -> None:
    pixels = random_pixels(torch.Size((50, 3, 8, 8)), torch.Generator().manual_seed(0), torch.device("cpu"))
    assert pixels.shape == (50, 3, 8, 8)
    assert pixels.mean().item() == pytest.approx(0.5, abs=0.02)
    assert pixels.var().item() == pytest.approx(1 / 12, abs=0.005)


def test_nothing_cannot_be_judged() -> None:
    with pytest.raises(InputError, match="0 images and 2 of the client's"):
        measure(columns_evaluator(), PRIVATE[:0], target=1, private=PRIVATE)
    with pytest.raises(InputError, match="2 images and 0 of the client's"):
        measure(columns_evaluator(), PRIVATE, target=1, private=PRIVATE[:0])
