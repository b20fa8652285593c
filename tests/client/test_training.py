import copy
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.training import Trained, train
from fedfisher_core.data.tensors import Examples, augment
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.settings import TrainSettings
from tests import tiny

EPOCHS = 3
SETTINGS = TrainSettings(epochs=EPOCHS, learning_rate=0.05, momentum=0.9, weight_decay=0.01, batch_size=16)
EXAMPLES = tiny.examples(50)


def trained(
    settings: TrainSettings = SETTINGS, *, seed: int = 0, examples: Examples = EXAMPLES, augmented: bool = False
) -> Trained:
    generator = torch.Generator().manual_seed(seed)
    network = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS))
    return train(network, examples, settings, generator=generator, augmented=augmented)


def equal(one: Trained, other: Trained) -> bool:
    return one.epoch_losses == other.epoch_losses and all(
        torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters
    )


def plain_sgd(settings: TrainSettings, *, seed: int, augmented: bool) -> tuple[nn.Module, list[float]]:
    """Train in the plainest way: velocity <- momentum velocity + gradient, weight <- weight - rate velocity."""
    generator = torch.Generator().manual_seed(seed)
    network = tiny.TINY_WITH_BIAS.load(tiny.initial(tiny.TINY_WITH_BIAS))
    velocity: dict[str, Tensor] = {}
    losses = []
    for _ in range(EPOCHS):
        order = torch.randperm(len(EXAMPLES), generator=generator).tolist()
        loss_of_example = []
        for start in range(0, len(order), settings.batch_size):
            batch = order[start : start + settings.batch_size]
            inputs = EXAMPLES.inputs[batch]
            if augmented:
                inputs = augment(inputs, generator)
            network.zero_grad()
            log_probabilities = network(inputs).log_softmax(1)
            each = [-log_probabilities[row, EXAMPLES.labels[example]] for row, example in enumerate(batch)]
            (sum(each[1:], each[0]) / len(batch)).backward()
            loss_of_example += [one.item() for one in each]
            with torch.no_grad():
                for name, weight in network.named_parameters():
                    assert weight.grad is not None
                    gradient = weight.grad + settings.weight_decay * weight
                    velocity[name] = settings.momentum * velocity.get(name, torch.zeros_like(weight)) + gradient
                    weight -= settings.learning_rate * velocity[name]
        losses.append(sum(loss_of_example) / len(loss_of_example))
    return network, losses


@pytest.mark.parametrize("augmented", [False, True])
def test_training_is_stochastic_gradient_descent_with_momentum(augmented: bool) -> None:
    result = trained(augmented=augmented)
    network, losses = plain_sgd(SETTINGS, seed=0, augmented=augmented)
    assert result.epoch_losses == pytest.approx(losses, abs=1e-5)
    for name, expected in network.named_parameters():
        assert torch.allclose(result.parameters[name], expected, atol=1e-5), name


@pytest.mark.parametrize("augmented", [False, True])
def test_the_same_seed_trains_the_same_weights_to_the_last_bit(augmented: bool) -> None:
    first = trained(augmented=augmented)
    torch.manual_seed(99)
    assert equal(trained(augmented=augmented), first)
    assert not equal(trained(seed=1, augmented=augmented), first)


def test_training_in_threads_at_once_changes_nothing() -> None:
    expected = [trained(seed=seed, augmented=True) for seed in range(4)]
    barrier = Barrier(4)

    def together(seed: int) -> Trained:
        torch.set_num_threads(1)
        barrier.wait()
        return trained(seed=seed, augmented=True)

    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(pool.map(together, range(4)), expected, strict=True):
            assert equal(one, other)


def test_augmentation_changes_what_is_learnt() -> None:
    assert not equal(trained(augmented=True), trained(augmented=False))


def test_training_lowers_the_loss() -> None:
    settings = TrainSettings(epochs=15, learning_rate=0.05, batch_size=16)
    losses = trained(settings).epoch_losses
    assert len(losses) == 15
    assert losses[-1] < 0.6 * losses[0]


def test_steps_that_fill_epochs_train_as_the_epochs_do() -> None:
    per_epoch = -(-len(EXAMPLES) // SETTINGS.batch_size)
    counted = SETTINGS.model_copy(update={"epochs": None, "steps": EPOCHS * per_epoch})
    assert equal(trained(counted), trained())


def test_steps_end_an_epoch_early() -> None:
    settings = SETTINGS.model_copy(update={"epochs": None, "steps": 5})
    one_epoch = trained(SETTINGS.model_copy(update={"epochs": 1}))
    five_steps = trained(settings)
    # 50 examples in batches of 16 are four steps an epoch.
    assert five_steps.epoch_losses[0] == one_epoch.epoch_losses[0]
    assert len(five_steps.epoch_losses) == 2
    assert not equal(five_steps, one_epoch)


def test_the_data_stays_as_it_is() -> None:
    before = copy.deepcopy(EXAMPLES)
    trained(augmented=True)
    assert torch.equal(EXAMPLES.inputs, before.inputs)
    assert torch.equal(EXAMPLES.labels, before.labels)


def test_batches_may_be_larger_than_the_data() -> None:
    large, exact = (SETTINGS.model_copy(update={"batch_size": size}) for size in (1000, 50))
    assert equal(trained(large), trained(exact))


def test_a_diverging_loss_is_named_with_its_epoch() -> None:
    with pytest.raises(DivergedClientError, match=r"training loss is (nan|inf) in epoch \d"):
        trained(TrainSettings(epochs=5, learning_rate=1e6))


def test_weights_that_explode_in_the_last_step_are_named() -> None:
    examples = Examples(inputs=EXAMPLES.inputs * 1e20, labels=EXAMPLES.labels)
    settings = TrainSettings(epochs=1, learning_rate=1e30, batch_size=len(EXAMPLES))
    with pytest.raises(DivergedClientError, match=r"weight '.*' is not finite after 1 epochs"):
        trained(settings, examples=examples)


def test_inputs_that_are_not_finite_are_noticed() -> None:
    inputs = EXAMPLES.inputs.clone()
    inputs[3, 0, 0, 0] = float("nan")
    with pytest.raises(DivergedClientError, match="training loss is nan in epoch 1"):
        trained(examples=Examples(inputs=inputs, labels=EXAMPLES.labels))
