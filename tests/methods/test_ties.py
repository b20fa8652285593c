import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.ties import _average_agreeing
from tests import tiny
from tests.methods.clients import bind_written, merge_changes

START = {"first": torch.zeros(2, 2), "second": torch.zeros(3)}


def change(first: list[list[float]], second: list[float]) -> dict[str, Tensor]:
    return {"first": torch.tensor(first), "second": torch.tensor(second)}


ONE = change([[4, -1], [2, 0]], [3, -5, 0.5])
TWO = change([[2, 3], [-3, 1]], [1, 4, -4])
THREE = change([[-3, 5], [0, 0]], [2, 4, 1])


def test_the_mean_is_over_the_clients_of_the_elected_sign() -> None:
    merged = merge_changes("ties", START, [ONE, TWO, THREE], share=1.0)
    # Sums: 3, 7, -1, 1; 6, 3, -2.5.
    assert merged["first"].tolist() == [[3, 4], [-3, 1]]
    assert merged["second"].tolist() == [2, 4, -4]


def test_the_largest_numbers_of_all_layers_together_stay() -> None:
    merged = merge_changes("ties", START, [ONE, TWO, THREE], share=3 / 7)
    # Of the first client 4, 3, -5; of the second 3, -3, 4, -4, as two are equal; of the third -3, 5, 4.
    assert merged["first"].tolist() == [[4, 4], [-3, 0]]
    assert merged["second"].tolist() == [3, 4, -4]


@pytest.mark.parametrize(("majority", "expected"), [(1.0, 2.0), (-1.0, -2.0)])
def test_a_sum_of_nothing_gets_the_sign_that_most_coordinates_have(majority: float, expected: float) -> None:
    start = {"x": torch.zeros(3)}
    changes = [{"x": torch.tensor([2, majority, majority])}, {"x": torch.tensor([-2, majority, majority])}]
    assert merge_changes("ties", start, changes, share=1.0)["x"].tolist() == [expected, majority, majority]


def test_at_least_one_number_stays() -> None:
    merged = merge_changes("ties", START, [ONE], share=0.01)
    assert merged["first"].abs().sum() == 0
    assert merged["second"].tolist() == [0, -5, 0]


@pytest.mark.parametrize("clients", [1, 3])
def test_clients_of_one_mind_keep_what_is_not_trimmed(clients: int) -> None:
    whole = merge_changes("ties", START, [TWO] * clients, share=1.0)
    assert all(torch.equal(whole[name], tensor) for name, tensor in TWO.items())
    trimmed = merge_changes("ties", START, [TWO] * clients, share=0.3)
    assert trimmed["first"].abs().sum() == 0
    assert trimmed["second"].tolist() == [0, 4, -4]


def test_the_scale_lengthens_the_way_from_the_start() -> None:
    start = {"x": torch.tensor([10.0, -10.0])}
    changes = [{"x": torch.tensor([1.0, 2.0])}]
    assert merge_changes("ties", start, changes, share=1.0, scale=[3.0])["x"].tolist() == [3, 6]


def test_of_several_scales_the_validation_set_chooses() -> None:
    assert bind_written("ties", {"scale": [1, 2]}, [tiny.TINY]).validates
    assert not bind_written("ties", {"scale": [2]}, [tiny.TINY]).validates


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"share": 0}, "share=0"), ({"share": 1.1}, "share=1.1"), ({"scale": []}, "scale"), ({"scale": [0]}, "scale")],
)
def test_settings_out_of_bounds_are_refused(settings: dict[str, float], key: str) -> None:
    with pytest.raises(InputError, match=rf"methods\.ties\.{key}"):
        bind_written("ties", settings, [tiny.TINY])


def test_a_sum_of_0_gets_the_sign_that_most_coordinates_have_however_large_the_others() -> None:
    changes = [{"w": torch.tensor([5.0, -0.5, -0.5, own])} for own in (1.0, -1.0)]
    assert _average_agreeing(changes)["w"].tolist() == [5.0, -0.5, -0.5, -1.0]
