import math
import statistics

import pytest
import torch
from torch import Tensor

from fedfisher_core.data.specs import Impute
from fedfisher_core.data.tensors import observe

NAN = math.nan


def table(rows: int, *, seed: int, features: int = 4) -> Tensor:
    """Draw numbers of very different sizes, of which about a third are missing."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, features, generator=generator) * torch.tensor([1.0, 50.0, 0.01, 3.0]) + 7
    return torch.where(torch.rand(rows, features, generator=generator) < 0.3, NAN, numbers)


def transcribed(own: list[list[float]], row: list[float], impute: Impute) -> list[float]:
    """What one client makes of a row, feature by feature, with Python's statistics of what it observed."""
    made = []
    for feature, number in enumerate(row):
        observed = [one[feature] for one in own if not math.isnan(one[feature])]
        if not observed or len(set(observed)) == 1:
            made.append(0.0)
            continue
        fill = statistics.fmean(observed) if impute == "mean" else statistics.median(observed)
        filled = fill if math.isnan(number) else number
        made.append((filled - statistics.fmean(observed)) / statistics.pstdev(observed))
    return made


@pytest.mark.parametrize("impute", ["mean", "median"])
def test_rows_are_filled_and_scaled_by_their_own_clients_statistics(impute: Impute) -> None:
    parts = [table(rows, seed=rows) for rows in (1, 8, 21)]
    parts[1][:, 2] = NAN
    parts[2][:, 3] = 5.5
    scaling = observe(parts, impute)
    rows, clients = table(30, seed=99), torch.arange(30) % 3
    expected = [
        transcribed(parts[client].double().tolist(), row, impute)
        for row, client in zip(rows.double().tolist(), clients.tolist(), strict=True)
    ]
    made = scaling.apply(rows, clients)
    assert made.dtype == torch.float32
    assert torch.allclose(made, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_what_is_missing_is_average_by_the_mean_and_may_not_be_by_the_median() -> None:
    own, missing = torch.tensor([[0.0], [0.0], [3.0], [NAN]]), torch.tensor([[NAN]])
    assert observe([own], "mean").apply(missing, torch.tensor([0])).tolist() == [[0.0]]
    # The numbers 0, 0 and 3 have the mean 1 and the deviation sqrt(2).
    assert observe([own], "median").apply(missing, torch.tensor([0])).item() == pytest.approx(-1 / math.sqrt(2))


def test_a_clients_statistics_are_of_its_own_rows_alone() -> None:
    own, other = table(12, seed=1), table(12, seed=2)
    one, two = observe([own, other], "median"), observe([own, other * 100 + 3], "median")
    for name in ("fill", "mean", "std"):
        assert torch.equal(getattr(one, name)[0], getattr(two, name)[0])
        assert not torch.equal(getattr(one, name)[1], getattr(two, name)[1])


@pytest.mark.parametrize("impute", ["mean", "median"])
@pytest.mark.parametrize("own", [[NAN, NAN, NAN], [0.1, 0.1, NAN], [0.1, 0.1, 0.1]], ids=["never", "alike", "all"])
def test_a_feature_without_a_scale_is_0_whatever_a_row_holds(own: list[float], impute: Impute) -> None:
    scaling = observe([torch.tensor(own)[:, None]], impute)
    assert scaling.std.tolist() == [[0.0]]
    rows = torch.tensor([[0.1], [NAN], [250.0], [-3e30]])
    assert scaling.apply(rows, torch.zeros(4, dtype=torch.int64)).tolist() == [[0.0]] * 4


def test_tensors_share_no_memory_as_files_demand() -> None:
    scaling = observe([table(5, seed=3)], "mean")
    assert len({tensor.data_ptr() for tensor in vars(scaling).values()}) == 3
