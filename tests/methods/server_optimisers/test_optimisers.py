"""Server optimisers against torch's own on the pseudo-gradient, and against the papers' rules."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server_optimisers.configured import configure_server_optimiser
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import Choice, TrainSettings

ROUNDS = 5
TAU = 1e-3


def weights(seed: int) -> Parameters:
    source = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=source) for name, shape in (("a", (3, 2)), ("b", (4,)))}


def changes(round_number: int) -> Parameters:
    return {name: 0.1 * tensor for name, tensor in weights(100 + round_number).items()}


def ours(name: str, settings: Mapping[str, Any]) -> list[Parameters]:
    bound = configure_server_optimiser(name, {name: Choice(**settings)})
    now = weights(0)
    moments: Any = bound.begin(now)
    path = []
    for round_number in range(ROUNDS):
        aggregate = {key: weight + changes(round_number)[key] for key, weight in now.items()}
        now, moments = bound.advance(now, aggregate, moments)
        path.append(now)
    return path


def torchs(make: Callable[[list[Tensor]], torch.optim.Optimizer], before: Any = None) -> list[Parameters]:
    """Follow torch's optimiser, whose gradient is minus the change."""
    now = {name: weight.clone().requires_grad_() for name, weight in weights(0).items()}
    optimiser = make(list(now.values()))
    path = []
    for round_number in range(ROUNDS):
        for name, weight in now.items():
            weight.grad = -changes(round_number)[name]
        if before is not None:
            before(optimiser, round_number + 1)
        optimiser.step()
        path.append({name: weight.detach().clone() for name, weight in now.items()})
    return path


def close(one: list[Parameters], other: list[Parameters]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        for name, weight in mine.items():
            torch.testing.assert_close(weight, theirs[name], rtol=2e-5, atol=1e-6)


def test_the_average_is_the_aggregate() -> None:
    path = ours("average", {})
    total = {
        name: weight + sum(changes(round_number)[name] for round_number in range(ROUNDS))
        for name, weight in weights(0).items()
    }
    close(path[-1:], [total])


def test_fedavgm_is_sgd_with_momentum() -> None:
    path = ours("fedavgm", {"learning_rate": 0.3, "momentum": 0.8})
    close(path, torchs(lambda given: torch.optim.SGD(given, lr=0.3, momentum=0.8)))


def test_fedadagrad_is_adagrad() -> None:
    path = ours("fedadagrad", {"learning_rate": 0.2, "adaptivity": TAU})
    close(path, torchs(lambda given: torch.optim.Adagrad(given, lr=0.2, initial_accumulator_value=TAU**2, eps=TAU)))


def test_fedadam_is_adam_without_the_correction_of_bias() -> None:
    first, second, rate = 0.9, 0.99, 0.05

    def uncorrected(optimiser: torch.optim.Optimizer, round_number: int) -> None:
        """Choose rate and epsilon so that torch's corrections cancel."""
        (group,) = optimiser.param_groups
        group["lr"] = rate * (1 - first**round_number) / (1 - second**round_number) ** 0.5
        group["eps"] = TAU / (1 - second**round_number) ** 0.5
        if round_number == 1:
            for weight in group["params"]:
                optimiser.state[weight] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.full_like(weight, TAU**2),
                }

    path = ours("fedadam", {"learning_rate": rate, "beta_1": first, "beta_2": second, "adaptivity": TAU})
    close(path, torchs(lambda given: torch.optim.Adam(given, betas=(first, second)), uncorrected))


def test_fedyogi_follows_the_papers_rule_number_by_number() -> None:
    first, second, rate = 0.9, 0.99, 0.05
    path = ours("fedyogi", {"learning_rate": rate, "beta_1": first, "beta_2": second, "adaptivity": TAU})
    weight = float(weights(0)["b"][2])
    mean, square = 0.0, TAU**2
    for round_number in range(ROUNDS):
        change = float(changes(round_number)["b"][2])
        mean = first * mean + (1 - first) * change
        sign = (square > change**2) - (square < change**2)
        square -= (1 - second) * change**2 * sign
        weight += rate * mean / (square**0.5 + TAU)
        assert float(path[round_number]["b"][2]) == pytest.approx(weight, rel=1e-4)


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad", "fedavgm"])
def test_no_change_moves_nothing_at_first(name: str) -> None:
    bound = configure_server_optimiser(name, {name: Choice()})
    start = weights(0)
    after, _ = bound.advance(start, start, bound.begin(start))
    close([after], [start])


def test_fedsgd_takes_one_full_step_and_nothing_else() -> None:
    bound = configure_server_optimiser("fedsgd", {"fedsgd": Choice()})
    plain = {"steps": 1, "momentum": 0.0, "batch_size": 120}
    bound.require(TrainSettings.model_validate(plain), 120)
    for key, value in (("steps", 2), ("momentum", 0.5), ("batch_size", 119)):
        with pytest.raises(InputError, match=f"train.{key}={value}.*allowed"):
            bound.require(TrainSettings.model_validate({**plain, key: value}), 120)
    # Before a data set is fetched, the number of examples of a client is not known.
    with pytest.raises(InputError, match="the data set is not here yet"):
        bound.require(TrainSettings.model_validate(plain), None)


@pytest.mark.parametrize(
    ("label", "entry", "message"),
    [
        ("fedadan", {}, r"rounds.server_optimiser.fedadan: .*fedadam"),
        ("fedadam", {"learning_rate": 0}, r"rounds.server_optimiser.fedadam.learning_rate=0"),
        ("fedadam", {"momentum": 1}, r"rounds.server_optimiser.fedadam.momentum"),
        ("mine", {"name": "fedyogi", "beta_1": 1.0}, r"rounds.server_optimiser.mine.beta_1=1"),
    ],
)
def test_unknown_optimisers_and_settings_are_named(label: str, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configure_server_optimiser(label, {label: Choice.model_validate(entry)})
