"""What holds for every method, regardless of its mathematics."""

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.methods.method import methods
from tests import tiny
from tests.methods.clients import bind_written, server
from tests.methods.every import NAMES, OF_ADAPTERS, QUICK, clients, run, spec_of

# Their networks are one a start, not one a client.
OF_STARTS = ("fedbens_mixture",)
ORDERED = {
    "fedpft": "features are drawn client by client",
    "pfnm": "the units of the first client make the first global units",
    "pfnm_original": "the units of the first client make the first global units",
    "otfusion": "the others are aligned to the first client",
    "otfusion_by_holders": "the others are aligned to the first client",
    "ma_echo_ot": "the others are aligned to the first client",
    "gaussian_distillation": "inputs are drawn client by client",
    "kfac_distillation": "inputs are drawn client by client",
    "mixture_distillation": "inputs are drawn client by client",
    "dare": "what is dropped is drawn for one client after another",
    "dare_products": "what is dropped is drawn for one client after another",
    "centralised": "it is given one client",
}
RESHAPED = {
    "co_boosting": "a student begins at the weights that all started from",
    "ccvr": "the head is trained anew",
    "pfnm": "the prior shrinks units",
    "pfnm_original": "the prior shrinks units",
    "summed_moments": "the network is trained on drawn inputs",
    "ties": "what changed little is trimmed",
    "iso_c": "what changed little and what changed much change alike",
    "dare": "what changed is dropped or enlarged",
    "fipa": "what no direction holds stays as it was",
    **dict.fromkeys(OF_ADAPTERS, "the factors of a product are others"),
}
every_method = pytest.mark.parametrize("name", NAMES)


def close(one: dict[str, Tensor], other: dict[str, Tensor], *, atol: float) -> bool:
    return list(one) == list(other) and all(torch.allclose(one[key], other[key], atol=atol) for key in one)


def test_the_methods_are_those_of_the_project() -> None:
    assert {"fedavg", "fedfisher_kfac", "pfnm", "otfusion", "dense", "ma_echo", "fedfish", "regmean"} < set(NAMES)
    assert set(ORDERED) | set(RESHAPED) <= set(NAMES)


@pytest.mark.drawn(40)
@every_method
@pytest.mark.parametrize("zero_rows", [False, True], ids=["", "zero rows"])
@pytest.mark.parametrize("empty_class", [False, True], ids=["", "a class that nobody has"])
def test_numbers_are_finite_and_named_as_the_clients(name: str, zero_rows: bool, empty_class: bool) -> None:
    result = run(name, clients(name, zero_rows=zero_rows, empty_class=empty_class))
    for network in result.networks:
        assert list(network) == list(tiny.initial(spec_of(name)))
        assert all(torch.isfinite(tensor).all() and tensor.dtype == torch.float32 for tensor in network.values())
    assert result.weights is None or torch.isfinite(result.weights).all()
    assert all(isinstance(value, float) for value in result.details.values())


@pytest.mark.parametrize("name", [name for name in NAMES if Weights in methods.get(name).uploads])
def test_one_client_alone_keeps_its_model(name: str) -> None:
    # Not the first, whose weights are those that the server started from.
    uploads = clients(name)[1:2]
    network, *_ = run(name, uploads).networks
    same = close(network, uploads[0][Weights].tensors, atol=1e-5)
    assert same != (name in RESHAPED), RESHAPED.get(name)


@pytest.mark.drawn(20)
@every_method
def test_the_order_of_clients_matters_only_where_it_must(name: str) -> None:
    if name == "centralised":
        pytest.skip("centralised training has one client")
    forward, backward = run(name, clients(name)), run(name, clients(name)[::-1])
    if len(forward.networks) > 1 and name not in OF_STARTS:
        assert all(close(a, b, atol=0) for a, b in zip(forward.networks, backward.networks[::-1], strict=True))
        return
    shapes = [[tensor.shape for network in one.networks for tensor in network.values()] for one in (forward, backward)]
    same = shapes[0] == shapes[1] and all(
        close(one, other, atol=2e-4) for one, other in zip(forward.networks, backward.networks, strict=True)
    )
    assert same != (name in ORDERED), ORDERED.get(name)


@pytest.mark.drawn(20)
@every_method
def test_the_use_of_the_validation_set_is_declared(name: str) -> None:
    spec = spec_of(name)
    bound, held = bind_written(name, QUICK.get(name, {}), [spec]), server(spec)
    bound(held, clients(name))
    assert bound.validates is held.used_validation


@pytest.mark.drawn(20)
@every_method
def test_uploads_stay_as_they_were(name: str) -> None:
    uploads, before = clients(name), clients(name)
    run(name, uploads)
    for one, other in zip(uploads, before, strict=True):
        for kind in methods.get(name).uploads:
            assert close(one[kind].tensors, other[kind].tensors, atol=0), kind.name
