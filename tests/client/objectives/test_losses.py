"""Each objective against a formula that is written out, class by class."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.objectives.objective import ConfiguredObjective, Losses, configure_objective
from fedfisher_core.client.training import Trained, train
from fedfisher_core.data.tensors import Examples
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.settings import Choice, TrainSettings
from tests import tiny

COUNTS = (4, 0, 1, 9)
LABELS = torch.tensor([0, 2, 3, 3, 0])
LOGITS = torch.randn(len(LABELS), len(COUNTS), generator=torch.Generator().manual_seed(0)).double() * 3
HELD = torch.tensor([label for label, count in enumerate(COUNTS) for _ in range(count)])

SETTINGS = TrainSettings(epochs=3, learning_rate=0.05, momentum=0.9, weight_decay=0.01, batch_size=13)
EXAMPLES = tiny.examples(50)


def configured(name: str, **settings: Any) -> ConfiguredObjective:
    return configure_objective(name, {name: Choice(**settings)})


def losses_of(name: str, **settings: Any) -> Losses:
    """The loss of a client that holds no example of the second class."""
    return configured(name, **settings).losses(nn.Linear(1, 1), HELD, len(COUNTS))


def softmax(scores: Sequence[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def plain(scores: list[float], label: int) -> float:
    return -math.log(softmax(scores)[label])


def smoothed(amount: float) -> Callable[[list[float], int], float]:
    def loss(scores: list[float], label: int) -> float:
        spread = [amount / len(scores) + (1 - amount) * (one == label) for one in range(len(scores))]
        return -sum(part * math.log(share) for part, share in zip(spread, softmax(scores), strict=True))

    return loss


def calibrated(tau: float) -> Callable[[list[float], int], float]:
    """FedLC by pairwise margins: log(1 + sum over other classes of exp(f_c - f_y + tau (n_y^-1/4 - n_c^-1/4)))."""

    def loss(scores: list[float], label: int) -> float:
        others = [one for one, count in enumerate(COUNTS) if count and one != label]
        margins = {one: tau * (COUNTS[label] ** -0.25 - COUNTS[one] ** -0.25) for one in others}
        return math.log(1 + sum(math.exp(scores[one] - scores[label] + margins[one]) for one in others))

    return loss


def restricted(alpha: float) -> Callable[[list[float], int], float]:
    def loss(scores: list[float], label: int) -> float:
        return plain([score if count else alpha * score for score, count in zip(scores, COUNTS, strict=True)], label)

    return loss


@pytest.mark.parametrize(
    ("name", "settings", "formula"),
    [
        ("plain", {}, plain),
        ("label_smoothing", {}, smoothed(0.1)),
        ("label_smoothing", {"amount": 0.4}, smoothed(0.4)),
        ("logit_adjustment", {}, calibrated(1.0)),
        ("logit_adjustment", {"tau": 2.5}, calibrated(2.5)),
        ("restricted_softmax", {}, restricted(0.5)),
        ("restricted_softmax", {"alpha": 0}, restricted(0.0)),
    ],
)
def test_a_loss_is_its_formula(
    name: str, settings: Mapping[str, Any], formula: Callable[[list[float], int], float]
) -> None:
    expected = [formula(scores, label) for scores, label in zip(LOGITS.tolist(), LABELS.tolist(), strict=True)]
    found = losses_of(name, **settings)(LOGITS, LABELS)
    assert found.tolist() == pytest.approx(expected, rel=1e-7)


def test_a_class_without_examples_is_left_alone_by_logit_adjustment() -> None:
    logits = LOGITS.clone().requires_grad_()
    losses_of("logit_adjustment")(logits, LABELS).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, 1] == 0).all()
    assert (logits.grad[:, [0, 2, 3]] != 0).all()


def trained(name: str | None = None, *, settings: TrainSettings = SETTINGS, **chosen: Any) -> Trained:
    network = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS))
    given = {}
    if name is not None:
        given["losses"] = configured(name, **chosen).losses(network, EXAMPLES.labels, tiny.CLASSES)
    return train(network, EXAMPLES, settings, generator=torch.Generator().manual_seed(1), **given)


def same(one: Trained, other: Trained) -> bool:
    return one.epoch_losses == other.epoch_losses and all(
        torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("plain", {}),
        ("label_smoothing", {"amount": 0}),
        ("logit_adjustment", {"tau": 0}),
        ("fedprox", {"mu": 0}),
        # The client holds examples of all classes.
        ("restricted_softmax", {"alpha": 0.3}),
    ],
)
def test_what_is_plain_in_the_limit_trains_the_same_weights_to_the_last_bit(
    name: str, settings: Mapping[str, Any]
) -> None:
    assert same(trained(name, **settings), trained())


@pytest.mark.parametrize(
    ("name", "settings"),
    [("label_smoothing", {}), ("logit_adjustment", {}), ("fedprox", {"mu": 0.1}), ("fedprox", {})],
)
def test_an_objective_trains_other_weights(name: str, settings: Mapping[str, Any]) -> None:
    assert not same(trained(name, **settings), trained())


def test_restricting_classes_that_a_client_lacks_trains_other_weights() -> None:
    few = Examples(EXAMPLES.inputs[EXAMPLES.labels < 2], EXAMPLES.labels[EXAMPLES.labels < 2])

    def last(**settings: Any) -> Tensor:
        network = tiny.TINY.load(tiny.initial())
        losses = configured("restricted_softmax", **settings).losses(network, few.labels, tiny.CLASSES)
        return train(network, few, SETTINGS, generator=torch.Generator(), losses=losses).parameters["head.weight"]

    assert torch.equal(last(alpha=1), train_plainly(few))
    assert not torch.equal(last(alpha=0.5), train_plainly(few))


def train_plainly(examples: Examples) -> Tensor:
    network = tiny.TINY.load(tiny.initial())
    return train(network, examples, SETTINGS, generator=torch.Generator()).parameters["head.weight"]


def test_the_gradient_of_fedprox_is_that_of_finite_differences() -> None:
    network = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS)).double()
    losses = configured("fedprox", mu=0.7).losses(network, EXAMPLES.labels, tiny.CLASSES)
    start = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3))

    def value() -> float:
        """The cross-entropy and half of 0.7 times the squared distance, written out."""
        logits = network(EXAMPLES.inputs.double()).tolist()
        distance = sum(((one - start[name]) ** 2).sum().item() for name, one in network.named_parameters())
        entropies = [plain(scores, label) for scores, label in zip(logits, EXAMPLES.labels.tolist(), strict=True)]
        return sum(entropies) / len(entropies) + 0.35 * distance

    loss = losses(network(EXAMPLES.inputs.double()), EXAMPLES.labels).mean()
    assert loss.item() == pytest.approx(value(), rel=1e-9)
    loss.backward()
    for weight in network.parameters():
        assert weight.grad is not None
        flat, step = weight.data.view(-1), 1e-5
        for place in range(0, len(flat), 7):
            middle = float(flat[place])
            ends = []
            for shift in (step, -step):
                flat[place] = middle + shift
                ends.append(value())
            flat[place] = middle
            expected = (ends[0] - ends[1]) / (2 * step)
            assert float(weight.grad.view(-1)[place]) == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_fedprox_pulls_to_the_start_at_every_step() -> None:
    settings = TrainSettings(steps=4, learning_rate=0.05, momentum=0, batch_size=len(EXAMPLES))
    found = trained("fedprox", settings=settings, mu=2.0)
    network = tiny.TINY_WITH_BIAS.load(start := tiny.initial(tiny.TINY_WITH_BIAS))
    for _ in range(4):
        loss = nn.functional.cross_entropy(network(EXAMPLES.inputs), EXAMPLES.labels)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for (name, weight), gradient in zip(network.named_parameters(), gradients, strict=True):
                weight -= 0.05 * (gradient + 2.0 * (weight - start[name]))
    for name, weight in network.named_parameters():
        torch.testing.assert_close(found.parameters[name], weight.detach(), rtol=1e-4, atol=1e-6)


def test_private_training_minimises_the_objective() -> None:
    settings = TrainSettings(steps=3, learning_rate=0.5, momentum=0, batch_size=len(EXAMPLES))
    private, usual, entropy = (
        tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS)) for _ in ("private", "usual", "entropy")
    )
    smooth = configured("label_smoothing", amount=0.5).losses(private, EXAMPLES.labels, tiny.CLASSES)
    # Without noise, and with batches of all examples and a clip that is never reached, DP-SGD is gradient descent.
    source = torch.Generator()
    without_noise = {"noise_multiplier": 0.0, "gradient_clip": 1e6, "generator": source}
    found = train_privately(private, EXAMPLES, settings, **without_noise, losses=smooth)
    expected = train(usual, EXAMPLES, settings, generator=source, losses=smooth)
    other = train(entropy, EXAMPLES, settings, generator=source)
    for name, weight in expected.parameters.items():
        torch.testing.assert_close(found.parameters[name], weight, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(other.parameters["head.weight"], expected.parameters["head.weight"], atol=1e-3)
