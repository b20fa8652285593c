"""Choosing an objective's settings, and what it may see."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.objectives.objective import (
    Knowledge,
    Known,
    configure_objective,
    cross_entropies,
    objective,
    objectives,
)
from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import Choice

LABELS = torch.tensor([0, 0, 2])


@objective("curious", reference="https://example.org")
def curious(logits: Tensor, labels: Tensor, known: Known) -> Tensor:
    """Read what it does not declare."""
    return cross_entropies(logits, labels) * known.label_counts.sum()


@objective("averaging", reference="https://example.org", reads=(Knowledge.LABEL_COUNTS,))
def averaging(logits: Tensor, labels: Tensor, known: Known) -> Tensor:
    """Return a mean in the place of each example's loss."""
    return cross_entropies(logits, labels).mean()


def test_settings_are_the_keywords_with_their_defaults() -> None:
    assert configure_objective("plain", {"plain": Choice()}).described() == {}
    assert configure_objective("any label", {"any label": Choice(name="plain")}).described() == {}
    chosen = configure_objective("weak", {"weak": Choice(name="fedprox", mu=0.5)})
    assert chosen.described() == {"objective": {"name": "fedprox", "mu": 0.5}}
    assert configure_objective("fedprox", {"fedprox": Choice()}).described()["objective"]["mu"] == 0.01


@pytest.mark.parametrize(
    ("label", "entry", "message"),
    [
        ("fedprx", {}, r"train\.objective\.fedprx: unknown objective 'fedprx'; did you mean 'fedprox'\? allowed: "),
        ("mine", {"name": "fedprx"}, r"train\.objective\.mine: unknown objective 'fedprx'"),
        (
            "fedprox",
            {"nu": 1},
            r"unknown setting 'train\.objective\.fedprox\.nu'; did you mean 'mu'\? allowed: mu, name",
        ),
        ("fedprox", {"mu": -1}, r"train\.objective\.fedprox\.mu=-1: .* greater than or equal to 0"),
        ("fedprox", {"mu": float("nan")}, r"train\.objective\.fedprox\.mu=nan: "),
        ("mine", {"name": "fedprox", "mu": "x"}, r"train\.objective\.mine\.mu='x'"),
        ("label_smoothing", {"amount": 1}, r"train\.objective\.label_smoothing\.amount=1: .* less than 1"),
        ("restricted_softmax", {"alpha": 1.1}, r"train\.objective\.restricted_softmax\.alpha=1\.1: "),
        ("logit_adjustment", {"tau": -0.1}, r"train\.objective\.logit_adjustment\.tau=-0\.1: "),
        ("plain", {"mu": 1}, r"unknown setting 'train\.objective\.plain\.mu'; allowed: name"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(label: str, entry: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configure_objective(label, {label: Choice.model_validate(entry)})


def test_an_objective_sees_what_it_declares_and_no_more() -> None:
    losses = configure_objective("curious", {"curious": Choice()}).losses(nn.Linear(2, 3), LABELS, 3)
    with pytest.raises(RuntimeError, match="reads the client's label counts, which it does not declare"):
        losses(torch.zeros(2, 3), torch.tensor([1, 2]))
    network = nn.Linear(2, 3)
    counting = objectives.get("logit_adjustment").known(network, LABELS, 4)
    assert counting.label_counts.tolist() == [2, 0, 1, 0]
    for name in ("weights", "start"):
        with pytest.raises(RuntimeError, match="reads the weights, which it does not declare"):
            getattr(counting, name)
    weighing = objectives.get("fedprox").known(network, LABELS, 4)
    assert weighing.weights["bias"] is network.bias
    with torch.no_grad():
        network.bias += 1
    assert torch.equal(weighing.start["bias"] + 1, network.bias)


def test_a_mean_is_no_loss_of_each_example() -> None:
    losses = configure_objective("averaging", {"averaging": Choice()}).losses(nn.Linear(2, 3), LABELS, 3)
    with pytest.raises(RuntimeError, match=r"objective 'averaging' returned shape \(\); allowed: .* 2 examples"):
        losses(torch.zeros(2, 3), torch.tensor([1, 2]))


def test_a_keyword_must_not_take_the_place_of_the_name() -> None:
    def named(logits: Tensor, labels: Tensor, known: Known, *, name: str = "x") -> Tensor:
        return cross_entropies(logits, labels)

    with pytest.raises(InputError, match="objective 'named': argument 'name'"):
        objective("named", reference="https://example.org")(named)
