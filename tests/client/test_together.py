"""Clients that train together, compared with each by itself."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.objectives.objective import configure_objective
from fedfisher_core.client.training import Member, Trained, train, train_together
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.settings import ObjectiveChoice, TrainSettings
from tests import tiny

SPEC = tiny.TINY_WITH_BIAS
SIZES = (20, 50, 7, 33)
EXAMPLES = tuple(tiny.examples(size, seed=size) for size in SIZES)


def settings(**chosen: Any) -> TrainSettings:
    return TrainSettings(**{"epochs": 3, "learning_rate": 0.05, "weight_decay": 0.01, "batch_size": 16} | chosen)


def member(examples: Examples, *, seed: int, start: int = 0, **chosen: Any) -> Member:
    return Member(tiny.initial(SPEC, seed=start), examples, torch.Generator().manual_seed(seed), **chosen)


def alone(one: Member, chosen: TrainSettings) -> Trained:
    return train(SPEC.load(one.start), one.examples, chosen, generator=one.generator, losses=one.losses)


def all_trained(found: Sequence[Trained | DivergedClientError]) -> list[Trained]:
    trained = [one for one in found if isinstance(one, Trained)]
    assert len(trained) == len(found)
    return trained


def require_close(found: Trained, expected: Trained) -> None:
    assert found.epoch_losses == pytest.approx(expected.epoch_losses, abs=1e-5)
    assert found.parameters.keys() == expected.parameters.keys()
    for name, tensor in expected.parameters.items():
        torch.testing.assert_close(found.parameters[name], tensor, rtol=0, atol=1e-5, msg=name)


# Only in steps of batches of one size can one call compute the losses of all.
@pytest.mark.parametrize("sizes", [SIZES, (20, 20, 20), (32, 16)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("length", [{"epochs": 3}, {"epochs": None, "steps": 1}, {"epochs": None, "steps": 9}])
def test_clients_of_any_size_become_what_each_becomes_by_itself(
    length: dict[str, Any], momentum: float, sizes: Sequence[int]
) -> None:
    chosen = settings(**length, momentum=momentum)
    examples = [tiny.examples(size, seed=size) for size in sizes]
    found = train_together(SPEC, [member(one, seed=i, start=i % 2) for i, one in enumerate(examples)], chosen)
    for number, (one, trained) in enumerate(zip(examples, all_trained(found), strict=True)):
        require_close(trained, alone(member(one, seed=number, start=number % 2), chosen))


@pytest.mark.parametrize("name", ["label_smoothing", "logit_adjustment", "restricted_softmax"])
def test_each_client_has_a_loss_of_its_own(name: str) -> None:
    bound = configure_objective(name, {name: ObjectiveChoice()})
    lacking = EXAMPLES[0].labels > 0
    held = (Examples(EXAMPLES[0].inputs[lacking], EXAMPLES[0].labels[lacking]), *EXAMPLES[1:])

    def members() -> list[Member]:
        losses = [bound.losses(SPEC.skeleton(), one.labels, tiny.CLASSES) for one in held]
        return [member(one, seed=i, losses=losses[i]) for i, one in enumerate(held)]

    found = all_trained(train_together(SPEC, members(), settings()))
    for trained, one in zip(found, members(), strict=True):
        require_close(trained, alone(one, settings()))
    with pytest.raises(AssertionError):
        require_close(found[0], alone(member(held[0], seed=0), settings()))


def test_a_result_has_memory_of_its_own() -> None:
    first, second = all_trained(train_together(SPEC, [member(EXAMPLES[0], seed=i) for i in range(2)], settings()))
    for name, tensor in first.parameters.items():
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
        assert tensor.untyped_storage().data_ptr() != second.parameters[name].untyped_storage().data_ptr()


def test_what_one_client_holds_does_not_reach_another() -> None:
    first = Examples(torch.full_like(EXAMPLES[1].inputs, torch.inf), EXAMPLES[1].labels)
    lost, found = train_together(SPEC, [member(first, seed=0), member(EXAMPLES[0], seed=1)], settings())
    assert isinstance(lost, DivergedClientError)
    (trained,) = all_trained([found])
    require_close(trained, alone(member(EXAMPLES[0], seed=1), settings()))


def exploding(outputs: Tensor, labels: Tensor) -> Tensor:
    return 1e30 * outputs.square().sum(1) ** 2


@pytest.mark.parametrize("place", range(4))
def test_one_that_diverges_says_so_and_leaves_the_others_what_they_become(place: int) -> None:
    members = [member(one, seed=i, **({"losses": exploding} if i == place else {})) for i, one in enumerate(EXAMPLES)]
    everyone = train_together(SPEC, members, settings())
    lost = everyone.pop(place)
    assert isinstance(lost, DivergedClientError)
    with pytest.raises(DivergedClientError) as caught:
        alone(member(EXAMPLES[place], seed=place, losses=exploding), settings())
    assert str(lost).split(" is ")[0] == str(caught.value).split(" is ")[0] == "training loss"
    others = [(i, one) for i, one in enumerate(EXAMPLES) if i != place]
    for (number, one), trained in zip(others, all_trained(everyone), strict=True):
        require_close(trained, alone(member(one, seed=number), settings()))
