import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.training import Trained, count_steps
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples, augment
from fedfisher_core.engine.errors import DivergedClientError, UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.settings import TrainSettings
from tests import tiny
from tests.privacy.networks import NETWORKS, generator, make

HUGE = 1e9


def run(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    settings: TrainSettings,
    *,
    noise_multiplier: float = 0.0,
    gradient_clip: float = HUGE,
    seed: int = 0,
    augmented: bool = False,
) -> Trained:
    """Train a copy."""
    return train_privately(
        copy.deepcopy(network),
        Examples(inputs=inputs, labels=labels),
        settings,
        noise_multiplier=noise_multiplier,
        gradient_clip=gradient_clip,
        generator=generator(seed),
        augmented=augmented,
    )


def one_step(network: nn.Module, inputs: Tensor, labels: Tensor, *, gradient_clip: float = HUGE) -> dict[str, Tensor]:
    """The sum of clipped gradients over all examples, from one step without noise."""
    settings = TrainSettings(steps=1, learning_rate=1.0, momentum=0.0, batch_size=len(inputs))
    after = run(network, inputs, labels, settings, gradient_clip=gradient_clip).parameters
    return {name: (before.detach() - after[name]) * len(inputs) for name, before in network.named_parameters()}


def gradients(network: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The gradient of the summed loss."""
    network = copy.deepcopy(network)
    functional.cross_entropy(network(inputs), labels, reduction="sum").backward()
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def flat(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in named.values()])


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_example_changes_a_steps_sum_by_more_than_the_clip(name: str, size: float) -> None:
    network, inputs, labels = make(name, 7)
    inputs[3] *= size
    clip = 0.1
    others = [0, 1, 2, 4, 5, 6]
    with_it = flat(one_step(network, inputs, labels, gradient_clip=clip))
    without = flat(one_step(network, inputs[others], labels[others], gradient_clip=clip))
    change = float((with_it - without).norm())
    assert change <= clip * (1 + 1e-3)
    # Nor is the example ignored.
    assert change > 0.9 * clip


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_sums_clipped_gradients_of_examples(name: str) -> None:
    network, inputs, labels = make(name, 130)
    each = torch.stack([flat(gradients(network, inputs[[i]], labels[[i]])) for i in range(len(inputs))])
    norms = each.norm(dim=1)
    clip = float(norms.median())
    expected = (each * (clip / norms).clamp(max=1)[:, None]).sum(0)
    found = flat(one_step(network, inputs, labels, gradient_clip=clip))
    assert float((found - expected).norm()) < 1e-4 * float(expected.norm())


@pytest.mark.parametrize("augmented", [False, True])
def test_without_clip_and_noise_it_is_sgd_on_poisson_batches(augmented: bool) -> None:
    spec = tiny.TINY_WITH_BIAS
    data = tiny.examples(50)
    settings = TrainSettings(steps=6, learning_rate=0.05, momentum=0.9, weight_decay=0.01, batch_size=16)
    network = spec.load(tiny.initial(spec))
    found = run(network, data.inputs, data.labels, settings, augmented=augmented)

    source = generator()
    velocity = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    losses: list[list[float]] = [[], []]
    for step in range(6):
        batch = (torch.rand(50, dtype=torch.float64, generator=source) < 16 / 50).nonzero()[:, 0]
        inputs = augment(data.inputs[batch], source) if augmented else data.inputs[batch]
        losses[step // 4] += functional.cross_entropy(network(inputs), data.labels[batch], reduction="none").tolist()
        summed = gradients(network, inputs, data.labels[batch])
        with torch.no_grad():
            for name, p in network.named_parameters():
                # The noise is drawn, if only to be multiplied by 0.
                torch.randn(p.shape, generator=source)
                velocity[name] = 0.9 * velocity[name] + summed[name] / 16 + 0.01 * p
                p -= 0.05 * velocity[name]
    for name, p in network.named_parameters():
        assert torch.allclose(found.parameters[name], p, atol=1e-5), name
    # 50 examples in batches of 16 are four steps an epoch.
    assert found.epoch_losses == pytest.approx([sum(one) / len(one) for one in losses], abs=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_augmented_images_are_clipped_by_their_true_norms(bias: bool) -> None:
    spec = ModelSpec("compact", Images(3, 16, 16), classes=4, bias=bias)
    network = spec.load(spec.initialise(generator(2)))
    inputs = torch.randn(5, 3, 16, 16, generator=generator(3))
    labels = torch.arange(5) % 4
    settings = TrainSettings(steps=1, learning_rate=1.0, momentum=0.0, batch_size=5)
    source = generator()
    torch.rand(5, dtype=torch.float64, generator=source)
    seen = augment(inputs, source)
    each = torch.stack([flat(gradients(network, seen[[i]], labels[[i]])) for i in range(5)])
    clip = 0.5 * float(each.norm(dim=1).min())
    expected = (each * (clip / each.norm(dim=1))[:, None]).sum(0)
    after = run(network, inputs, labels, settings, gradient_clip=clip, augmented=True).parameters
    found = flat({name: (p.detach() - after[name]) * 5 for name, p in network.named_parameters()})
    assert float((found - expected).norm()) < 1e-3 * float(expected.norm())


@pytest.mark.parametrize(("noise_multiplier", "clip"), [(1.0, 0.5), (6.0, 0.5), (1.0, 4.0)])
def test_noise_has_the_deviation_of_clip_and_multiplier(noise_multiplier: float, clip: float) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(300, 100, bias=False), nn.ReLU(), nn.Linear(100, 3, bias=False))
    inputs, labels = torch.zeros(8, 300), torch.zeros(8, dtype=torch.long)
    settings = TrainSettings(steps=1, learning_rate=1.0, momentum=0.0, batch_size=4)
    after = run(network, inputs, labels, settings, noise_multiplier=noise_multiplier, gradient_clip=clip).parameters
    # Zero inputs have no gradient in the weights, and the mean is over the 4 examples that are expected.
    noise = (network.get_parameter("0.weight").detach() - after["0.weight"]) * 4
    assert float(noise.std()) == pytest.approx(noise_multiplier * clip, rel=0.02)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02 * noise_multiplier * clip)


def test_every_step_has_noise_of_its_own() -> None:
    network, inputs, labels = make("linear, no bias", 4)
    once = TrainSettings(steps=1, learning_rate=1.0, momentum=0.0, batch_size=4)
    often = once.model_copy(update={"steps": 49})
    # A clip of almost nothing with a large multiplier leaves the noise alone: 49 steps of it walk 7 times as far.
    spread = []
    for settings in (once, often):
        walks = [
            flat(run(network, inputs, labels, settings, noise_multiplier=1e8, gradient_clip=1e-10, seed=s).parameters)
            for s in range(6)
        ]
        start = flat({name: p.detach() for name, p in network.named_parameters()})
        spread.append(float((torch.stack(walks) - start).std()))
    assert spread[1] / spread[0] == pytest.approx(7, rel=0.25)


def test_empty_batches_are_steps_of_noise() -> None:
    network, inputs, labels = make("convolutional, bias", 3)
    settings = TrainSettings(epochs=10, learning_rate=0.1, momentum=0.0, batch_size=1)
    source = generator()
    drawn = []
    for _ in range(30):
        drawn.append(int((torch.rand(3, dtype=torch.float64, generator=source) < 1 / 3).sum()))
        for p in network.parameters():
            torch.randn(p.shape, generator=source)
    assert 0 in drawn
    assert max(drawn) > 1
    found = run(network, inputs, labels, settings, noise_multiplier=0.1, gradient_clip=1.0)
    assert len(found.epoch_losses) == 10
    first_empty = drawn.index(0)
    before, after = (
        run(
            network,
            inputs,
            labels,
            settings.model_copy(update={"epochs": None, "steps": steps}),
            noise_multiplier=0.1,
            gradient_clip=1.0,
        ).parameters
        for steps in (first_empty, first_empty + 1)
    )
    steps = flat(before) - flat(after)
    assert float(steps.std()) == pytest.approx(0.1 * 0.1, rel=0.3)


def test_steps_are_as_many_as_without_privacy() -> None:
    assert count_steps(TrainSettings(epochs=3, batch_size=16), 50) == 12
    assert count_steps(TrainSettings(steps=5, batch_size=16), 50) == 5
    assert count_steps(TrainSettings(epochs=3, batch_size=1000), 50) == 3
    data = tiny.examples(50)
    network = tiny.TINY.load(tiny.initial())
    for settings, epochs in (({"epochs": 3}, 3), ({"steps": 5}, 2), ({"steps": 4}, 1)):
        length = TrainSettings(batch_size=16, **settings)
        assert len(run(network, data.inputs, data.labels, length).epoch_losses) == epochs


def test_the_same_generator_trains_the_same_to_the_last_bit_and_another_another() -> None:
    data = tiny.examples(50)
    network = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS))
    settings = TrainSettings(epochs=2, batch_size=16)

    def trained(seed: int) -> Trained:
        return run(
            network,
            data.inputs,
            data.labels,
            settings,
            noise_multiplier=1.0,
            gradient_clip=1.0,
            seed=seed,
            augmented=True,
        )

    first, other = trained(0), trained(1)
    torch.manual_seed(99)
    again = trained(0)
    assert first.epoch_losses == again.epoch_losses
    assert torch.equal(flat(first.parameters), flat(again.parameters))
    assert not torch.equal(flat(first.parameters), flat(other.parameters))


def test_training_with_little_noise_lowers_the_loss() -> None:
    data = tiny.examples(120)
    settings = TrainSettings(epochs=20, learning_rate=0.2, batch_size=40)
    network = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS))
    losses = run(network, data.inputs, data.labels, settings, noise_multiplier=0.5, gradient_clip=1.0).epoch_losses
    assert losses[-1] < 0.7 * losses[0]


def test_the_hooks_on_the_network_are_gone_afterwards() -> None:
    network, inputs, labels = make("convolutional, bias", 6)
    train_privately(
        network,
        Examples(inputs=inputs, labels=labels),
        TrainSettings(steps=2, batch_size=3),
        noise_multiplier=1.0,
        gradient_clip=1.0,
        generator=generator(),
    )
    for module in network.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks


def test_resnet18_trains() -> None:
    spec = ModelSpec("resnet18", Images(3, 8, 8), classes=3)
    network = spec.load(spec.initialise(generator()))
    inputs, labels = torch.randn(2, 3, 8, 8, generator=generator()), torch.tensor([0, 1])
    each = torch.stack([flat(gradients(network, inputs[[i]], labels[[i]])) for i in range(2)])
    clip = 0.5 * float(each.norm(dim=1).min())
    expected = (each * (clip / each.norm(dim=1))[:, None]).sum(0)
    found = flat(one_step(network, inputs, labels, gradient_clip=clip))
    assert float((found - expected).norm()) < 1e-2 * float(expected.norm())


def test_layers_without_a_gradient_for_each_example_are_named() -> None:
    spec = ModelSpec("normalised", Images(1, 6, 6), classes=3)
    data = tiny.examples(4)
    normalised = spec.build()
    with pytest.raises(UnsupportedLayerError, match="layer 'norm' has type BatchNorm2d"):
        run(normalised, data.inputs, data.labels, TrainSettings())
    circular = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(2 * 36, 3))
    with pytest.raises(UnsupportedLayerError, match=r"layer '0' .*padding_mode='circular'; allowed .*'zeros'"):
        run(circular, data.inputs, data.labels, TrainSettings())


def test_a_loss_that_is_not_finite_is_named() -> None:
    network, inputs, labels = make("linear, bias", 6)
    inputs[2, 1] = float("nan")
    with pytest.raises(DivergedClientError, match="training loss is nan in epoch 1"):
        run(network, inputs, labels, TrainSettings(epochs=2, batch_size=6))


def test_weights_that_are_not_finite_are_named() -> None:
    network, inputs, labels = make("linear, bias", 6)
    settings = TrainSettings(epochs=1, batch_size=6, learning_rate=1e30)
    with pytest.raises(DivergedClientError, match=r"weight '.*' is not finite after 1 epochs"):
        run(network, inputs, labels, settings, noise_multiplier=1e20)
