import pytest
import torch

from fedfisher_core.engine.errors import InputError
from tests import tiny
from tests.methods.clients import aggregate, bind_written, made_up_uploads, merge_changes

START = {"x": torch.full((4000,), 0.5)}
ONES = {"x": torch.ones(4000)}
THREES = {"x": torch.full((4000,), 3.0)}


@pytest.mark.parametrize("clients", [1, 3])
def test_without_drops_it_is_the_plain_mean(clients: int) -> None:
    parameters = [tiny.initial(seed=seed) for seed in range(1, clients + 1)]
    (network,) = aggregate("dare", made_up_uploads(parameters), drop=0.0).networks
    for name, tensor in network.items():
        mean = torch.stack([one[name] for one in parameters]).mean(0)
        assert torch.allclose(tensor, mean, atol=1e-6), name


@pytest.mark.parametrize("drop", [0.1, 0.9])
def test_what_stays_is_enlarged_and_the_rest_is_where_it_started(drop: float) -> None:
    change = merge_changes("dare", START, [ONES], drop=drop)["x"]
    kept = change.abs() > 1e-6
    assert torch.allclose(change[kept], torch.tensor(1 / (1 - drop)), atol=1e-5)
    # Deviation of a mean of 4000 draws: at most 0.008.
    assert kept.double().mean().item() == pytest.approx(1 - drop, abs=0.03)


def test_each_client_has_drops_of_its_own() -> None:
    change = merge_changes("dare", START, [ONES, THREES], drop=0.5)["x"]
    values, counts = change.round(decimals=4).unique(return_counts=True)
    assert values.tolist() == [0, 1, 3, 4]
    assert all(850 < count < 1150 for count in counts.tolist())


def test_the_servers_generator_decides_what_is_dropped() -> None:
    one, same, other = (merge_changes("dare", START, [ONES], seed=seed)["x"] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("drop", [-0.1, 1.0])
def test_a_probability_out_of_bounds_is_refused(drop: float) -> None:
    with pytest.raises(InputError, match=rf"methods\.dare\.drop={drop}"):
        bind_written("dare", {"drop": drop}, [tiny.TINY])
