import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.shared.averaging import Sums
from tests import tiny
from tests.methods.clients import SIZES, aggregate, bind_written, made_up_uploads, server


def uploads(*, clients: int = 3, fisher: float = 1.0) -> list[Upload]:
    made = made_up_uploads([tiny.initial(seed=seed) for seed in range(1, clients + 1)])
    for upload in made:
        for tensor in upload[DiagonalFisher].tensors.values():
            tensor *= fisher
    return made


def flat(parameters: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([parameters[name].flatten() for name in tiny.initial()]).double().numpy()


@pytest.mark.parametrize("prior", [1e-12, 3.0, 1e4])
def test_the_change_solves_the_equations_of_the_posteriors(prior: float) -> None:
    clients, start = uploads(), flat(tiny.initial())
    (network,) = aggregate("gradient_matching", clients, prior=prior).networks
    precisions = [np.diag(one.num_examples * flat(one[DiagonalFisher].tensors) + prior) for one in clients]
    changes = [flat(one[Weights].tensors) - start for one in clients]
    # The product of the posteriors has their prior three times, and is to have it once.
    together = sum(precisions) - 2 * prior * np.eye(len(start))
    expected = np.linalg.solve(together, sum(a @ b for a, b in zip(precisions, changes, strict=True)))
    assert flat(network) == pytest.approx(start + expected, abs=1e-5)


@pytest.mark.parametrize("prior", [1e-12, 3.0])
def test_one_client_alone_keeps_its_model(prior: float) -> None:
    (client,) = uploads(clients=1)
    (network,) = aggregate("gradient_matching", [client], prior=prior).networks
    assert all(torch.allclose(network[name], tensor, atol=1e-6) for name, tensor in client[Weights].tensors.items())


def test_with_hardly_any_prior_it_merges_by_fishers() -> None:
    (network,) = aggregate("gradient_matching", uploads()).networks
    (merged,) = aggregate("fisher_merge", uploads()).networks
    assert all(torch.allclose(network[name], tensor, atol=1e-5) for name, tensor in merged.items())


@pytest.mark.parametrize("settings", [{"prior": 1e-12}, {"prior": 1e20}])
def test_changes_are_added_where_fishers_say_nothing(settings: dict[str, float]) -> None:
    clients = uploads(fisher=0.0 if settings["prior"] < 1 else 1.0)
    (network,) = aggregate("gradient_matching", clients, **settings).networks
    start = flat(tiny.initial())
    assert flat(network) == pytest.approx(start + sum(flat(one[Weights].tensors) - start for one in clients), abs=1e-5)


def test_sums_that_are_not_known_say_nothing() -> None:
    def one(value: float) -> dict[str, Tensor]:
        return {"x": torch.tensor([value], dtype=torch.float64)}

    count = {"count": torch.tensor(2.0).double()}
    totals = {"weights": one(7.0), "clients": count, "fisher": one(1.0), "product": one(5.0)}
    held = server(initial={"x": torch.tensor([0.5])})
    bound = bind_written("gradient_matching", {"wire": {"budget": "none", "server_view": "secure_sum"}}, [tiny.TINY])
    # Both clients' changes, or their average by Fishers.
    for error, expected in ((1e-2, 0.5 + 7 - 2 * 0.5), (1e-4, 5.0)):
        sums = Sums(num_examples=sum(SIZES), totals=totals, errors={"fisher": {"x": error}})
        assert bound.of_sums(held, sums).networks[0]["x"].item() == pytest.approx(expected)


def test_there_must_be_a_prior() -> None:
    with pytest.raises(InputError, match=r"methods\.gradient_matching\.prior=0"):
        bind_written("gradient_matching", {"prior": 0}, [tiny.TINY])
