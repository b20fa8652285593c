import pytest
import torch

from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.models.layers import Dropout, begin_training
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.privacy.training import train_privately
from fedfisher_core.settings import TrainSettings
from tests import tiny

SPEC = ModelSpec("ma_echo_cnn", Images(1, 8, 8), classes=3, widths=(3, 4, 5, 6, 7))
SETTINGS = TrainSettings(epochs=2, batch_size=8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dropping(probability: float, seed: int = 0) -> Dropout:
    layer = Dropout(probability)
    begin_training(layer, generator(seed))
    return layer


def trained(examples: Examples) -> Parameters:
    return train(SPEC.load(tiny.initial(SPEC)), examples, SETTINGS, generator=generator()).parameters


def test_dropped_numbers_are_zero_and_the_mean_stays() -> None:
    inputs = torch.rand(100, 1000, generator=generator(1)) + 1
    outputs = dropping(0.2)(inputs)
    dropped = outputs == 0
    assert dropped.float().mean().item() == pytest.approx(0.2, abs=0.005)
    torch.testing.assert_close(outputs[~dropped], inputs[~dropped] / 0.8)
    # Each number by itself: neither whole rows nor whole columns.
    assert dropped.float().mean(0).max() < 0.4
    assert dropped.float().mean(1).max() < 0.3


def test_gradients_flow_through_what_is_kept() -> None:
    inputs = torch.ones(50, requires_grad=True)
    outputs = dropping(0.5)(inputs)
    outputs.sum().backward()
    assert torch.equal(inputs.grad, outputs.detach())


def test_the_same_seed_drops_the_same() -> None:
    inputs = torch.ones(200)
    first, second, other = dropping(0.5), dropping(0.5), dropping(0.5, seed=1)
    assert torch.equal(first(inputs), second(inputs))
    assert not torch.equal(first(inputs), other(inputs))
    assert not torch.equal(first(inputs), first(inputs))


def test_evaluation_drops_nothing() -> None:
    inputs = torch.ones(200)
    assert torch.equal(dropping(0.5).eval()(inputs), inputs)


def test_training_without_a_generator_is_refused() -> None:
    with pytest.raises(RuntimeError, match="dropout in training has no generator"):
        Dropout(0.5)(torch.ones(2))


def test_a_client_trains_to_the_same_bits_whatever_else_its_process_draws() -> None:
    examples = tiny.examples(24, spec=SPEC)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = trained(examples)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(17)
    second = trained(examples)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_training_does_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = tiny.examples(24, spec=SPEC)
    found = trained(examples)
    monkeypatch.setattr(Dropout, "forward", lambda layer, inputs: inputs)
    assert any(not torch.equal(tensor, found[name]) for name, tensor in trained(examples).items())


def test_private_training_drops_by_its_own_generator() -> None:
    def privately() -> Parameters:
        network = SPEC.load(tiny.initial(SPEC))
        examples = tiny.examples(24, spec=SPEC)
        chance = generator()
        return train_privately(
            network, examples, SETTINGS, noise_multiplier=1.0, gradient_clip=1.0, generator=chance
        ).parameters

    first = privately()
    torch.rand(17)
    second = privately()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_fisher_is_that_of_the_network_without_dropout() -> None:
    network = SPEC.load(tiny.initial(SPEC))
    inputs = tiny.examples(5, spec=SPEC).inputs
    first, second = (compute_fisher(network.train(mode), inputs) for mode in (True, False))
    assert all(torch.equal(first.diagonal[name], second.diagonal[name]) for name in first.diagonal)
    assert network.fc1.weight.requires_grad
