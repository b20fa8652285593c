"""The judge: a classifier that learns, and what is stored of it."""

import math

import pytest
import torch
from torch import Tensor

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.privacy.attack.evaluator import (
    Evaluator,
    measure,
    measure_attack,
    measure_references,
    prior_images,
    random_pixels,
    train_evaluator,
)
from fedfisher_core.privacy.attack.inversion import Reconstruction, Terms
from fedfisher_core.privacy.attack.settings import EvaluatorSettings
from tests.privacy.attack.pieces import PIXELS, blobs, columns_evaluator, pixelwise_gan, same
from tests.tiny import SIZE

SETTINGS = EvaluatorSettings(epochs=2, learning_rate=0.01, batch_size=16, filters=2)


def trained(*, seed: int = 0) -> Evaluator:
    images, labels = blobs(150)
    generator = torch.Generator().manual_seed(seed)
    return train_evaluator(images, labels, SETTINGS, classes=2, generator=generator)


def test_it_learns_and_is_reproducible() -> None:
    evaluator, (images, labels) = trained(), blobs(100, seed=1)
    assert evaluator.accuracy(images, labels) > 0.95
    assert evaluator.accuracy(images, 1 - labels) < 0.05
    assert same(evaluator.state(), trained().state())
    assert not same(evaluator.state(), trained(seed=1).state())


def test_logits_are_the_last_layers_of_the_features() -> None:
    evaluator, (images, _) = trained(), blobs(1030, seed=1)
    features = evaluator.features(images)
    assert features.shape == (1030, 8)
    torch.testing.assert_close(evaluator.classifier.head(features), evaluator.logits(images))
    torch.testing.assert_close(evaluator.logits(images[1020:]), evaluator.logits(images)[1020:])


def test_a_stored_evaluator_judges_alike() -> None:
    evaluator, (images, _) = trained(), blobs(20, seed=1)
    stored = evaluator.state()
    cpu = torch.device("cpu")
    restored = Evaluator.load(stored, SETTINGS, images=Images(1, 8, 8), classes=2, device=cpu)
    assert torch.equal(restored.logits(images), evaluator.logits(images))
    with pytest.raises(InputError, match="the stored evaluator"):
        Evaluator.load(stored, SETTINGS, images=Images(1, 8, 8), classes=3, device=cpu)


def test_it_cannot_be_measured_on_nothing() -> None:
    with pytest.raises(InputError, match="no images"):
        trained().accuracy(torch.zeros(0, 1, 8, 8), torch.zeros(0))


@pytest.mark.parametrize(("shape", "message"), [((8, 1, 8, 8), "batch_size=16"), ((20, 1, 7, 7), "7x7 pixels")])
def test_unusable_images_are_refused(shape: tuple[int, ...], message: str) -> None:
    labels = torch.zeros(shape[0]).long()
    with pytest.raises(InputError, match=message):
        train_evaluator(torch.rand(shape), labels, SETTINGS, classes=2, generator=torch.Generator())


def test_a_diverged_training_is_named() -> None:
    images, labels = blobs(32)
    with pytest.raises(DivergedAttackError, match="evaluator: the training loss is nan in epoch 1"):
        train_evaluator(images * torch.inf, labels, SETTINGS, classes=2, generator=torch.Generator())


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
