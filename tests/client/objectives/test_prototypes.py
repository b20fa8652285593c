"""FAFI's objective against its formula written out, and its views against the authors' transforms."""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision import transforms

from fedfisher_core.client.objectives.objective import Losses, configure_objective
from fedfisher_core.client.objectives.prototypes import two_views
from fedfisher_core.client.training import Trained, train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import normalise
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import Choice, TrainSettings
from tests import tiny
from tests.client.test_features import hidden

GREY = DatasetSpec("grey", None, 3, Images(1, 28, 28), mean=(0.4,), std=(0.3,))
COLOURED = DatasetSpec("coloured", None, 3, Images(3, 32, 32), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
EXAMPLES = tiny.examples(24)


def losses_of(network: nn.Module, **settings: float) -> Losses:
    chosen = configure_objective("prototypes", {"prototypes": Choice(**settings)})
    return chosen.losses(network, EXAMPLES.labels, tiny.CLASSES)


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def entropy(scores: list[float], label: int) -> float:
    return math.log(sum(math.exp(score) for score in scores)) - scores[label]


def contrast(features: list[list[float]], labels: list[int], temperature: float) -> list[float]:
    """Equation 2 of Khosla et al. (2020), anchor by anchor; 0 for an image that is alone in its class."""
    found = []
    for anchor, z in enumerate(features):
        others = [index for index in range(len(features)) if index != anchor]
        total = sum(math.exp(dot(z, features[index]) / temperature) for index in others)
        alike = [index for index in others if labels[index] == labels[anchor]]
        terms = [math.log(math.exp(dot(z, features[index]) / temperature) / total) for index in alike]
        found.append(-sum(terms) / max(1, len(alike)))
    return found


def normalised(features: Tensor) -> list[list[float]]:
    """Features of length 1; those of 0 stay."""
    return [[entry / (math.sqrt(dot(row, row)) or 1) for entry in row] for row in features.tolist()]


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_without_prototypes_the_contrast_of_features_is_left(temperature: float) -> None:
    start = tiny.initial() | {"head.weight": torch.zeros(3, 5)}
    network, labels = tiny.TINY.load(start), [0, 1, 0, 2, 1, 0, 0]
    inputs = tiny.examples(len(labels), seed=5).inputs
    losses = losses_of(network, temperature=temperature)
    found = losses(network(inputs), torch.tensor(labels))
    expected = contrast(normalised(hidden(start, inputs)), labels, temperature)
    # Every class is as likely as any other: in both cross-entropies of an image, and in that of the prototypes.
    assert found.tolist() == pytest.approx([3 * math.log(3) + one for one in expected], rel=1e-4)
    assert expected[3] == 0 < min(expected[:3])


def test_the_whole_loss_is_written_out() -> None:
    start = tiny.initial(tiny.TINY_WITH_BIAS, seed=3)
    start["head.weight"] = torch.tensor([[1.0, 0, 2, 0, -1], [0, 3, 0, 1, 0], [-1, 1, 0.5, 0, 2]])
    network = tiny.TINY_WITH_BIAS.load(start)
    inputs, labels = tiny.examples(8, seed=2).inputs, [0, 1, 2, 2, 1, 0, 0, 1]
    losses = losses_of(network)
    found = losses(network(inputs), torch.tensor(labels))
    z = normalised(torch.relu(network.hidden(torch.relu(network.conv(inputs)).flatten(1))))
    rows = start["head.weight"].tolist()
    apart = sum(entropy([dot(row, other) for other in rows], label) for label, row in enumerate(rows)) / len(rows)
    near = [entropy([dot(one, row) for row in rows], label) for one, label in zip(z, labels, strict=True)]
    expected = [2 * pull + push + apart for pull, push in zip(near, contrast(z, labels, 0.07), strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=1e-4)


def trained(spec: ModelSpec = tiny.TINY_WITH_BIAS, *, seed: int = 1, **settings: float) -> Trained:
    network = spec.load(tiny.initial(spec))
    return train(
        network,
        EXAMPLES,
        TrainSettings(**({"epochs": 3, "learning_rate": 0.05, "batch_size": 10} | settings)),
        generator=torch.Generator().manual_seed(seed),
        losses=losses_of(network),
        views=partial(two_views, tiny.TINY_DATA),
    )


def test_a_step_goes_down_the_mean_loss_of_both_views() -> None:
    found = trained(epochs=1, batch_size=len(EXAMPLES), momentum=0).parameters
    network, draws = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS)), torch.Generator().manual_seed(1)
    order = torch.randperm(len(EXAMPLES), generator=draws)
    views = two_views(tiny.TINY_DATA, EXAMPLES.inputs[order], draws)
    labels = torch.cat([EXAMPLES.labels[order]] * 2)
    losses_of(network)(network(views), labels).mean().backward()
    for name, weight in network.named_parameters():
        if name == "head.bias":
            assert weight.grad is None
            continue
        assert weight.grad is not None
        assert weight.grad.norm() > 0, name
        torch.testing.assert_close(found[name], weight.detach() - 0.05 * weight.grad, rtol=1e-4, atol=1e-6)


def test_the_bias_of_the_last_layer_stays_and_all_other_weights_move() -> None:
    start, found = tiny.initial(tiny.TINY_WITH_BIAS), trained().parameters
    assert {name for name in start if torch.equal(start[name], found[name])} == {"head.bias"}


def same(one: Trained, other: Trained) -> bool:
    return one.epoch_losses == other.epoch_losses and all(
        torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters
    )


def test_training_repeats_to_the_last_bit_also_in_threads_at_once() -> None:
    expected = [trained(seed=seed) for seed in range(4)]
    barrier = Barrier(4)

    def together(seed: int) -> Trained:
        torch.set_num_threads(1)
        barrier.wait()
        return trained(seed=seed)

    with ThreadPoolExecutor(4) as pool:
        assert all(map(same, pool.map(together, range(4)), expected))
    assert not same(expected[0], expected[1])


def test_training_lowers_the_loss_and_tells_classes_apart() -> None:
    found = trained(tiny.TINY, epochs=60)
    # The first two classes are one another's mirror image, which views make of each.
    assert found.epoch_losses[-1] < found.epoch_losses[0] - 0.5
    network, test = tiny.TINY.load(found.parameters), tiny.examples(200, seed=9)
    features = functional.normalize(hidden(dict(network.named_parameters()), test.inputs), dim=1)
    predicted = (features @ found.parameters["head.weight"].T).argmax(1)
    assert (predicted == test.labels).double().mean() > 0.45


@pytest.mark.parametrize("spec", [GREY, COLOURED], ids=lambda spec: spec.name)
def test_views_are_those_of_the_authors_transforms(spec: DatasetSpec) -> None:
    size = spec.inputs.shape[-1]
    recolour = [
        transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
        transforms.RandomGrayscale(p=0.2),
    ]
    authors = transforms.Compose(
        [
            transforms.RandomResizedCrop(size=size, scale=(0.2, 1.0), antialias=False),
            transforms.RandomHorizontalFlip(),
            *(recolour if spec is COLOURED else []),
            transforms.Normalize(spec.mean, spec.std),
        ]
    )
    pixels = torch.rand(3, *spec.inputs.shape, generator=torch.Generator().manual_seed(7))
    for seed in range(40):
        found = two_views(spec, normalise(pixels, spec), torch.Generator().manual_seed(seed))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            expected = torch.cat([authors(pixels), authors(pixels)])
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        assert not torch.equal(found[:3], found[3:])
