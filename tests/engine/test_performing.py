"""Jobs that are computed: which, how often, what becomes of those that fail, and which results are deleted."""

import json
from typing import Any

import pytest

from fedfisher_core.engine.errors import DivergedClientError, UnwritableError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import DIVERGED, Transients, divergence, execute, perform
from fedfisher_core.engine.plan import agenda_of
from fedfisher_core.engine.store import Store, names_of, read_document
from tests.adding import Add, AddTogether, add, chain, results
from tests.counted import computed, nothing_computed_yet, store

__all__ = ["nothing_computed_yet", "store"]
"""Fixtures that pytest finds here."""


def test_jobs_get_what_they_need(store: Store) -> None:
    outcome = execute(chain(), store)
    assert results(outcome.artifacts) == {"a": 1, "b": 11, "c": 111}
    assert computed == ["a", "b", "c"]
    assert outcome.failed == {}


def test_what_is_found_in_the_store_is_not_computed(store: Store) -> None:
    first = execute(chain(), store)
    computed.clear()
    jobs = chain()
    assert execute(jobs, store).artifacts == first.artifacts
    assert computed == []
    assert results(execute([*jobs, add("d", jobs[0], number=1000)], store).artifacts)["d"] == 1111
    assert computed == ["d"]


def test_what_rests_on_a_change_is_computed_anew(store: Store) -> None:
    execute(chain(), store)
    computed.clear()
    assert results(execute(chain(second=20), store).artifacts) == {"a": 1, "b": 21, "c": 121}
    assert computed == ["b", "c"]


def test_a_raised_version_has_a_job_and_all_that_rests_on_it_computed_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(chain(), store)
    computed.clear()
    monkeypatch.setattr(AddTogether, "version", 2)
    execute(chain(), store)
    assert computed == []
    a, b, c = chain()[1], chain()[2], chain()[0]
    monkeypatch.setattr(type(a), "version", 2)
    execute([c, a, b], store)
    assert computed == ["a", "b", "c"]


def test_a_result_that_was_changed_on_disk_is_computed_again(store: Store) -> None:
    first = execute(chain(), store)
    (first.artifacts["b"].path / "sum.json").write_text("12")
    computed.clear()
    again = execute(chain(), store)
    assert computed == ["b"]
    assert results(again.artifacts) == {"a": 1, "b": 11, "c": 111}


def test_equal_jobs_are_computed_once(store: Store) -> None:
    one, same = add("one", number=5), add("same", number=5)
    outcome = execute([one, same, add("after", one, number=2), add("too", same, number=2)], store)
    assert computed == ["one", "after"]
    assert outcome.artifacts["one"] == outcome.artifacts["same"]
    assert outcome.artifacts["after"] == outcome.artifacts["too"]
    assert len(store.folders()) == 2


def test_the_manifest_names_settings_and_keys_of_inputs(store: Store) -> None:
    jobs = chain()
    artifact = execute(jobs, store).artifacts["c"]
    manifest = json.loads((artifact.path / "manifest.json").read_text())
    # Jobs of tests are those of a plug-in, whose code counts as well.
    assert manifest["settings"].items() >= {"number": 100, "fails": None}.items()
    assert manifest["inputs"] == {"needed/0": jobs[2].key}


def test_an_error_ends_the_work_and_keeps_what_was_done(store: Store) -> None:
    a = add("a", number=1)
    with pytest.raises(ValueError, match="out of paper"):
        execute([add("b", a, number=2, fails="out of paper")], store)
    assert store.find(a.recipe) is not None


def test_of_a_group_the_others_go_on(store: Store) -> None:
    jobs = [add("a", number=1), add("b", number=2, fails="out of paper"), add("c", number=3)]
    failed = perform(jobs, store)
    assert {name: str(error) for name, error in failed.items()} == {"b": "out of paper"}
    assert computed == ["a", "c"]


def test_a_job_without_its_inputs_is_passed_over(store: Store) -> None:
    (c, _, b) = chain()
    assert perform([b, c], store) == {}
    assert computed == []


def test_jobs_work_as_workers_get_them(store: Store) -> None:
    c, a, b = (job.detached() for job in chain())
    for job, original in zip((c, a, b), chain(), strict=True):
        assert job.key == original.key
    for job in (a, b, c):
        perform([job], store)
    assert results(agenda_of(chain(), store).outcome(store, {}).artifacts) == {"a": 1, "b": 11, "c": 111}


def test_a_client_that_diverges_is_a_result(store: Store) -> None:
    job = add("a", fails="diverges", may_diverge=True)
    artifact = execute([job], store).artifacts["a"]
    assert names_of(artifact) == (DIVERGED,)
    assert read_document(artifact, DIVERGED) == {"reason": "a diverged"}
    error = divergence([artifact])
    assert isinstance(error, DivergedClientError)
    assert str(error) == "a diverged"
    assert divergence([]) is None


def test_what_a_diverged_client_would_do_next_has_diverged_too(store: Store) -> None:
    first = add("a", fails="diverges", may_diverge=True)
    second = add("b", first, number=2, may_diverge=True)
    artifact = execute([second], store).artifacts["b"]
    assert read_document(artifact, DIVERGED) == {"reason": "a diverged"}
    assert computed == []


def test_where_it_may_not_diverge_it_is_an_error(store: Store) -> None:
    with pytest.raises(DivergedClientError, match="a diverged"):
        execute([add("a", fails="diverges")], store)


def test_jobs_that_are_computed_together_diverge_each_for_itself(store: Store) -> None:
    jobs = [
        add("a", kind=AddTogether, number=1, task="three", may_diverge=True),
        add("b", kind=AddTogether, number=2, task="three", may_diverge=True, fails="diverges"),
        add("c", kind=AddTogether, number=3, task="three", may_diverge=True),
    ]
    artifacts = execute(jobs, store).artifacts
    assert computed == ["3 together", "a", "c"]
    assert names_of(artifacts["b"]) == (DIVERGED,)
    assert results({name: artifacts[name] for name in "ac"}) == {"a": 1, "c": 3}


def test_jobs_whose_common_call_fails_are_tried_alone(store: Store) -> None:
    jobs = [
        add("a", kind=AddTogether, number=1, task="two"),
        add("b", kind=AddTogether, number=2, task="two", fails="out of paper"),
    ]
    assert {name: str(error) for name, error in perform(jobs, store).items()} == {"b": "out of paper"}
    assert store.find(jobs[0].recipe) is not None


def test_jobs_of_which_each_does_the_work_of_all_fail_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AddTogether, "indivisible", True)
    jobs = [
        add("a", kind=AddTogether, number=1, task="two"),
        add("b", kind=AddTogether, number=2, task="two", fails="out of paper"),
    ]
    assert set(perform(jobs, store)) == {"a", "b"}


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


def test_what_cannot_be_deleted_stays_and_the_work_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job[Any]] = [*rounds(1)]
    with store.used_by_run("this") as run:
        agenda = agenda_of(jobs[-1:], store)
        transients = Transients(agenda, store, run)
        for job in agenda.missing:
            perform([job], store)
            transients.done([job])

        def full(kind: str, key: str) -> int:
            raise UnwritableError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(store, "delete", full)
            transients.delete()
        assert str(transients) == "left 1: no space left"
        transients.delete()
        assert (transients.deleted, transients.there, transients.left) == (1, False, 0)
