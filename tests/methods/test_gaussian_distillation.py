from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.server import Aggregate
from tests import tiny
from tests.methods.clients import (
    aggregate,
    bind_written,
    divergence,
    made_up_uploads,
    server,
    trained_uploads,
)


def distilled(uploads: Sequence[Upload], **settings: Any) -> Aggregate:
    # A tiny network's budget has no room for the moments of its inputs.
    return aggregate("gaussian_distillation", uploads, wire={"budget": "none"}, **settings)


def test_identical_clients_return_the_client() -> None:
    uploads = made_up_uploads([tiny.initial()] * 3)
    (network,) = distilled(uploads, steps=20).networks
    assert all(torch.equal(tensor, network[name]) for name, tensor in tiny.initial().items())


def test_it_agrees_with_clients_on_their_inputs_better_than_what_it_starts_from() -> None:
    uploads = trained_uploads()
    start = aggregate("fedfisher_kfac", uploads).networks[0]
    result = distilled(uploads, steps=200, learning_rate=0.01)
    assert result.details["steps"] == 200
    assert divergence(result.networks[0], uploads) < 0.7 * divergence(start, uploads)


def test_every_part_can_be_left_out() -> None:
    uploads = trained_uploads()
    parts = [{}, {"start": "mean"}, {"inputs": "variances"}, {"inputs": "power"}]
    networks = [distilled(uploads, steps=2, **part).networks[0]["head.weight"] for part in parts]
    for i, one in enumerate(networks):
        assert not any(torch.allclose(one, other) for other in networks[:i])


def test_it_starts_where_it_says() -> None:
    uploads = trained_uploads()
    damped = {"factored_damping": 0.1}
    for start, method, settings in (
        ("fedfisher_kfac", "fedfisher_kfac", {}),
        ("fedfisher_kfac", "fedfisher_kfac", damped),
        ("mean", "fedavg", {}),
    ):
        (network,) = distilled(uploads, start=start, steps=1, learning_rate=1e-9, **settings).networks
        (expected,) = aggregate(method, uploads, wire={"budget": "none"}, **settings).networks
        assert all(torch.allclose(network[name], expected[name], atol=1e-7) for name in expected)


@pytest.mark.parametrize("setting", ["samples", "steps"])
def test_nothing_to_learn_from_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match=rf"methods\.gaussian_distillation\.{setting}=0"):
        distilled([], **{setting: 0})


def test_no_directions_are_refused() -> None:
    with pytest.raises(InputError, match=r"statistics\.input_moments\.directions=0"):
        configure_statistics([InputMoments], {"input_moments": {"directions": 0}})


def test_it_needs_no_validation_images() -> None:
    uploads = trained_uploads()
    nothing = tiny.examples(0)
    (network,) = distilled(uploads, validation=nothing, steps=2).networks
    assert all(torch.isfinite(tensor).all() for tensor in network.values())


def test_the_moments_decide_where_a_client_is_asked() -> None:
    uploads = trained_uploads()
    far = InputMoments({name: 10 + tensor for name, tensor in uploads[0][InputMoments].tensors.items()})
    moved = [Upload(uploads[0].num_examples, {**uploads[0].statistics, InputMoments: far}), *uploads[1:]]
    (one,), (other,) = (distilled(held, steps=5).networks for held in (uploads, moved))
    assert not torch.allclose(one["head.weight"], other["head.weight"])


@pytest.mark.parametrize(("start", "validates"), [("fedfisher_kfac", True), ("mean", False)])
def test_it_looks_at_images_only_where_its_start_is_selected_on_them(start: str, validates: bool) -> None:
    settings = {"start": start, "solver": {"name": "conjugate_gradients", "select": True}, "steps": 1}
    held, bound = server(), bind_written("gaussian_distillation", settings, [tiny.TINY])
    bound(held, trained_uploads())
    assert held.used_validation is bound.validates is validates
