"""The judge: a classifier that learns, and what is stored of it."""

import pytest
import torch

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.privacy.attack.evaluator import Evaluator, train_evaluator
from fedfisher_core.privacy.attack.settings import EvaluatorSettings
from tests.privacy.attack.pieces import blobs, same

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
