from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.upload import Upload
from fedfisher_core.errors import InputError
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, bind_written, divergence, made_up_uploads, trained_uploads

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
    assert divergence(network, uploads, spec) < 0.7 * divergence(start, uploads, spec)


def test_the_first_factor_decides_where_a_client_is_asked() -> None:
    uploads = trained_uploads(tiny.ROWS)
    first, *others = uploads[0][KFAC].factors.items()
    moved = dict([(first[0], Kronecker(9 * first[1].inputs, first[1].outputs / 9)), *others])
    changed = [Upload(uploads[0].num_examples, {**uploads[0].statistics, KFAC: KFAC(moved)}), *uploads[1:]]
    # The block, and with it the start, is the same.
    (one,), (other,) = (distilled(held, steps=5).networks for held in (uploads, changed))
    (before,), (after,) = (distilled(held, steps=1, learning_rate=1e-9).networks for held in (uploads, changed))
    name = next(iter(one))
    assert torch.allclose(before[name], after[name], atol=1e-5)
    assert not torch.allclose(one[name], other[name], atol=1e-4)


def test_networks_that_begin_with_a_convolution_are_refused() -> None:
    message = "'kfac_distillation' can't serve model 'tiny': the first layer, 'conv', is a Conv2d that does not see"
    with pytest.raises(InputError, match=message):
        bind_written("kfac_distillation", {}, [tiny.TINY])
