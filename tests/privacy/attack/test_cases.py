import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.method import methods
from fedfisher_core.privacy.attack.cases import case_of, cases_of
from fedfisher_core.privacy.attack.factors import Factors


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


def names(method: str, *factors: Factors, compressed: bool = False) -> list[str]:
    views = methods.get(method).views
    return [case.name for case in cases_of(method, views, compressed=compressed, factors=factors).values()]


def test_each_choice_of_factors_is_a_case_with_a_title_and_all_of_them_keep_their_number() -> None:
    kfac = "sum of models and the client's K-FAC"
    assert names("fedfisher_kfac", *Factors) == [
        f"(iii) {kfac}",
        f"{kfac}, first inputs alone",
        f"{kfac}, later inputs alone",
        f"{kfac}, outputs alone",
        f"{kfac}, all factors alike",
    ]
    assert names("fedfisher_kfac", Factors.OUTPUTS, compressed=True) == [f"{kfac}, compressed, outputs alone"]
    assert names("gaussian_distillation", Factors.ALL, Factors.OUTPUTS) == [
        "local model and the client's K-FAC and the client's input moments",
        "local model and the client's K-FAC, outputs alone and the client's input moments",
    ]
    assert names("mixture_distillation", Factors.ALL, compressed=True) == [
        "local model and the client's K-FAC, compressed and the client's moments of each class, compressed"
    ]


@pytest.mark.parametrize("method", ["fedavg", "ensemble", "fedfisher_diag"])
def test_where_no_factors_are_sent_no_choice_makes_a_case(method: str) -> None:
    assert names(method, Factors.OUTPUTS, Factors.RELATIVE) == [case_name(method)]


@pytest.mark.parametrize("method", ["regmean", "ma_echo", "fedfish", "fedfisher_full"])
def test_uploads_without_an_attack_are_refused_by_name(method: str) -> None:
    other = next(name for name in methods.get(method).views if name != "weights")
    with pytest.raises(InputError, match=rf"method '{method}' can't be attacked: .*'{other}'.*allowed: weights"):
        case_name(method)
