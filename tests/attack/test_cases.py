import pytest

from fedfisher_core.attack.cases import case_of
from fedfisher_core.errors import InputError
from fedfisher_core.methods.method import methods


def case_name(method: str, *, compressed: bool = False) -> str:
    return case_of(method, methods.get(method).views, compressed=compressed).name


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("otfusion", "(i) local model"),
        ("pfnm", "(i) local model"),
        ("dense", "(i) local model"),
        ("ensemble", "(i) local model"),
        ("ensemble_by_labels", "(i) local model"),
        ("fedavg", "(ii) sum of models"),
        ("fedfisher_kfac", "(iii) sum of models and the client's K-FAC"),
        ("fedfisher_diag", "(iv) sum of models and sum of diagonal Fishers"),
    ],
)
def test_a_methods_uploads_decide_the_case(method: str, name: str) -> None:
    assert case_name(method) == name


def test_compression_makes_a_case_of_its_own_where_factors_are_sent() -> None:
    assert case_name("fedfisher_kfac", compressed=True) == "(v) sum of models and the client's K-FAC, compressed"
    assert case_name("fedavg", compressed=True) == case_name("fedavg")


@pytest.mark.parametrize("method", ["regmean", "ma_echo", "fedfish", "fedfisher_full"])
def test_uploads_without_an_attack_are_refused_by_name(method: str) -> None:
    other = next(name for name in methods.get(method).views if name != "weights")
    with pytest.raises(InputError, match=rf"method '{method}' can't be attacked: .*'{other}'.*allowed: weights"):
        case_name(method)
