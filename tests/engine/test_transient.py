"""Results of earlier rounds: deleted when no job needs them, and missed by none."""

from typing import Any

import pytest

from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import Transients, execute, perform
from fedfisher_core.engine.plan import agenda_of
from fedfisher_core.engine.store import Store
from tests.adding import Add, add, results
from tests.counted import computed, nothing_computed_yet, store

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


def rounds(count: int, *, stays: int | None = None) -> list[Add]:
    """A client's result and an aggregate a round; the clients' results do not stay, but for those of one round."""
    jobs: list[Add] = []
    for number in range(count):
        transient = None if number == stays else number
        client = add(f"client {number}", *jobs[-1:], number=10**number, transient=transient)
        jobs += [client, add(f"aggregate {number}", client, number=0)]
    return jobs


def there(jobs: list[Add], store: Store) -> list[str]:
    return [job.name for job in jobs if store.find(job.recipe) is not None]


def test_clients_results_are_deleted_and_the_aggregates_stay(store: Store) -> None:
    jobs = rounds(3)
    outcome = execute(jobs[-1:], store)
    assert results(outcome.artifacts)["aggregate 2"] == 111
    assert there(jobs, store) == ["aggregate 0", "aggregate 1", "aggregate 2"]


def test_what_stays_for_another_reason_is_not_deleted(store: Store) -> None:
    jobs = rounds(3, stays=1)
    execute(jobs[-1:], store)
    assert "client 1" in there(jobs, store)


def test_a_finished_run_misses_nothing(store: Store) -> None:
    execute(rounds(3)[-1:], store)
    computed.clear()
    execute(rounds(3)[-1:], store)
    assert computed == []


def test_a_further_round_computes_itself_alone(store: Store) -> None:
    execute(rounds(2)[-1:], store)
    computed.clear()
    execute(rounds(3)[-1:], store)
    assert computed == ["client 2", "aggregate 2"]


def test_what_another_job_needs_again_is_made_again(store: Store) -> None:
    jobs = rounds(2)
    execute(jobs[-1:], store)
    computed.clear()
    execute([*jobs[-1:], add("measure", jobs[0], number=5)], store)
    assert computed == ["client 0", "measure"]


def test_of_a_job_that_fails_all_that_it_needs_stays(store: Store) -> None:
    client = add("client", number=1, transient=0)
    failing = add("aggregate", client, number=2, fails="out of paper")
    with pytest.raises(ValueError, match="out of paper"):
        execute([failing], store)
    assert there([client], store) == ["client"]


def test_while_another_run_uses_the_store_all_stays_and_the_next_run_deletes_it(store: Store) -> None:
    jobs: list[Job[Any]] = [*rounds(1)]
    with store.used_by_run("another"), store.used_by_run("this") as run:
        agenda = agenda_of(jobs[-1:], store)
        transients = Transients(agenda, store, run)
        for job in agenda.missing:
            perform([job], store)
            transients.done([job])
        transients.delete()
        assert (transients.deleted, transients.there) == (0, True)
        assert str(transients) == "left 1: another run uses the store"
    with store.used_by_run("later") as run:
        later = Transients(agenda_of(jobs[-1:], store), store, run)
        later.delete()
        assert (later.deleted, later.rounds, later.there) == (1, {0}, False)
        assert str(later).startswith("deleted 1 results of rounds 0 to 0, ")
