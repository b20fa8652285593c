"""What was measured on clients' own examples: as numbers and on a page."""

import pytest

from fedfisher_core.experiments.benchmark.clients import on_clients
from fedfisher_core.experiments.benchmark.rows import networks_of
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from tests.experiments.benchmark.samples import make_row, make_rows, render
from tests.reporting.pages import Page

BARRIER = {"barrier_accuracy": 0.2, "barrier_loss": -0.5}
PERSONALISED = {
    "unseen_clients": 2,
    "unseen_accuracy": 0.5,
    "unseen_loss": 1.25,
    "personalised_accuracy": 0.75,
    "personalised_loss": 0.625,
}


def test_measures_are_means_over_seeds_of_the_methods_that_have_them() -> None:
    rows = [
        make_row("fedavg", seed=0, **BARRIER),
        make_row("fedavg", seed=1, barrier_accuracy=0.4, barrier_loss=-1.5),
        make_row("ensemble", seed=0, reference=True),
        make_row("ensemble", seed=1, reference=True),
    ]
    (table,) = on_clients(summarise(rows))
    ((method, found),) = table.lines
    assert (method, table.unmeasured, table.barrier, table.personalised) == ("fedavg", ("ensemble",), True, False)
    assert found.barrier_accuracy is not None
    assert found.barrier_loss is not None
    assert (found.barrier_accuracy.mean, found.barrier_accuracy.n) == (pytest.approx(0.3), 2)
    assert found.barrier_loss.deviation == pytest.approx(0.5**0.5)
    assert found.personalised_accuracy is None


def test_a_page_shows_what_was_measured_and_names_the_other_methods() -> None:
    rows = [
        make_row("fedavg", **BARRIER, **PERSONALISED),
        make_row("centralised", reference=True, **PERSONALISED),
        make_row("ensemble", reference=True, unseen_clients=2),
    ]
    text = Page(render(rows)).text
    for part in (
        "On clients’ own examples",
        "Barrier, points",
        "20.00",
        "-0.500",
        "Unseen, before, %",
        "75.00",
        "0.625",
    ):
        assert part in text
    assert "Not measured: Ensemble. Only methods" in text
    assert "5 clients, 2 unseen" in text
    assert "Canary" not in text
    only_barrier = Page(render([make_row("fedavg", **BARRIER)])).text
    assert "Barrier, points" in only_barrier
    assert "Unseen" not in only_barrier
    assert "Not measured" not in only_barrier


def test_a_page_shows_what_the_client_and_the_merged_network_expose() -> None:
    rows = [
        make_row("fedavg", seed=seed, canary_exposure=merged, canary_client_exposure=10.0)
        for seed, merged in enumerate((1.0, 2.0))
    ]
    text = Page(render([*rows, make_row("ensemble", reference=True)])).text
    for part in ("client 0", "Canary, client’s network, bits", "10.0", "merged network, bits", "1.5 ± 0.7"):
        assert part in text
    assert "Not measured: Ensemble. Only methods" in text
    assert "the barrier and the canary only where clients train" in text


def test_a_page_without_measures_is_silent() -> None:
    assert "On clients’ own examples" not in Page(render(make_rows({"fedavg": 0.5}))).text


def test_settings_with_unseen_clients_are_settings_of_their_own() -> None:
    plain, unseen = make_row("fedavg"), make_row("fedavg", unseen_clients=2)
    assert Setting.of(plain) != Setting.of(unseen)
    assert len(summarise([plain, unseen])) == 2


def test_an_ensemble_has_no_network_of_unseen_clients() -> None:
    assert networks_of(make_row("ensemble", reference=True, unseen_clients=2)) == 3
    assert networks_of(make_row("ensemble", reference=True, cohort=2)) == 2
