import pytest

from fedfisher_core.experiments.benchmark.rows import Role, is_local_mean, networks_of, role_of
from fedfisher_core.methods.method import methods
from tests.experiments.benchmark.samples import make_row

REFERENCES = {"local_mean", "centralised"}


def test_every_method_of_the_project_has_its_role() -> None:
    rows = {name: make_row(name, reference=not methods.get(name).ranked) for name in methods}
    found = {name: role_of(row) for name, row in rows.items()}
    assert all((role is Role.ONE_NETWORK) == methods.get(name).ranked for name, role in found.items())
    assert {name for name in found if "ensemble" in name} == {n for n, role in found.items() if role is Role.ENSEMBLE}
    assert {name for name, role in found.items() if role is Role.REFERENCE} >= REFERENCES


def test_a_label_does_not_hide_the_method() -> None:
    row = make_row("all of them", reference=True, method_settings={"method": "ensemble_logits"})
    assert role_of(row) is Role.ENSEMBLE
    assert is_local_mean(make_row("mine", reference=True, method_settings={"method": "local_mean"}))
    assert role_of(make_row("ensemble", method_settings={"method": "fedavg"})) is Role.ONE_NETWORK


def test_networks_that_were_counted_tell_an_ensemble() -> None:
    several = make_row("fedbens_mixture", reference=True, num_networks=3)
    assert (role_of(several), networks_of(several)) == (Role.ENSEMBLE, 3)
    alone = make_row("local_mean", reference=True, num_networks=5)
    assert (role_of(alone), networks_of(alone)) == (Role.REFERENCE, 1)


@pytest.mark.parametrize(
    ("method", "reference", "failed", "networks"),
    [("ensemble", True, [], 5), ("ensemble", True, [3], 4), ("local_mean", True, [], 1), ("fedavg", False, [], 1)],
)
def test_an_ensemble_predicts_with_the_networks_of_all_clients_that_are_left(
    method: str, reference: bool, failed: list[int], networks: int
) -> None:
    assert networks_of(make_row(method, reference=reference, failed_clients=failed)) == networks
