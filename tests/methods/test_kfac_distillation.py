from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods import kfac_distillation
from fedfisher_core.methods.distillation.pseudo_inputs import Draw
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import FisherSettings
from tests import tiny
from tests.methods.clients import aggregate, bind_written, divergence, made_up_uploads, server, trained_uploads

WITH_BIAS = replace(tiny.ROWS, bias=True)


def distilled(uploads: Sequence[Upload], **settings: Any) -> Aggregate:
    return aggregate("kfac_distillation", uploads, spec=tiny.ROWS, wire={"budget": "none"}, **settings)


def test_identical_clients_return_the_client() -> None:
    initial = tiny.initial(tiny.ROWS)
    (network,) = distilled(made_up_uploads([initial] * 3, tiny.ROWS), steps=20).networks
    assert all(torch.equal(tensor, network[name]) for name, tensor in initial.items())


def test_it_starts_at_the_solution_of_fedfisher() -> None:
    uploads = trained_uploads(tiny.ROWS)
    for damping in (0.0, 0.1):
        (network,) = distilled(uploads, factored_damping=damping, steps=1, learning_rate=1e-9).networks
        (start,) = aggregate("fedfisher_kfac", uploads, spec=tiny.ROWS, factored_damping=damping).networks
        assert all(torch.allclose(network[name], start[name], atol=1e-7) for name in start)


@pytest.mark.parametrize("spec", [tiny.ROWS, WITH_BIAS], ids=["no bias", "bias"])
def test_it_agrees_with_clients_on_their_inputs_better_than_what_it_starts_from(spec: ModelSpec) -> None:
    uploads = trained_uploads(spec)
    (start,) = aggregate("fedfisher_kfac", uploads, spec=spec).networks
    (network,) = aggregate("kfac_distillation", uploads, spec=spec, steps=200, learning_rate=0.01).networks
    assert divergence(network, uploads, spec) < 0.5 * divergence(start, uploads, spec)


@pytest.mark.parametrize("spec", [tiny.ROWS, WITH_BIAS], ids=["no bias", "bias"])
@pytest.mark.parametrize(
    "fisher",
    [{"estimator": "exact"}, {"estimator": "truncated"}, {"estimator": "monte_carlo", "samples": 3}],
    ids=lambda one: one["estimator"],
)
def test_inputs_are_drawn_with_the_moments_of_the_clients(
    spec: ModelSpec, fisher: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [tiny.examples(200, seed=client) for client in (1, 2)]
    held[1] = replace(held[1], inputs=3 * held[1].inputs + 1)
    network = spec.load(tiny.initial(spec))
    uploads = [
        Upload(
            len(examples),
            {Weights: Weights(tiny.initial(spec)), KFAC: KFAC.compute(tiny.local(network, examples, **fisher))},
        )
        for examples in held
    ]
    given: list[Draw] = []

    def caught(server: Server, uploads: Sequence[Upload], begun: Parameters, draws: list[Draw], **_: Any) -> Aggregate:
        given.extend(draws)
        return Aggregate.of(begun)

    monkeypatch.setattr(kfac_distillation, "distilled", caught)
    asked = server(spec)
    asked.fisher = FisherSettings(**fisher)
    bind_written("kfac_distillation", {}, [spec])(asked, uploads)
    for examples, draw in zip(held, given, strict=True):
        own = examples.inputs.flatten(1)
        drawn = draw(40_000, torch.Generator().manual_seed(0)).flatten(1)
        size = own.square().mean().item()
        mean = own.mean(0) if spec.bias else torch.zeros(own.shape[1])
        assert torch.allclose(drawn.mean(0), mean, atol=0.05 * size**0.5)
        assert torch.allclose(drawn.T @ drawn / len(drawn), own.T @ own / len(own), atol=0.1 * size)


def test_networks_that_begin_with_a_convolution_are_refused() -> None:
    message = (
        "'kfac_distillation' can't serve model 'tiny': the first layer, 'conv', has type Conv2d, which does not see"
    )
    with pytest.raises(InputError, match=message):
        bind_written("kfac_distillation", {}, [tiny.TINY])
