"""Encoding what clients send is a job of its own, which methods share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import decode
from fedfisher_core.engine import costs as spent
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.store import read_tensors, read_timings
from fedfisher_core.federation.aggregation import AggregateUploads
from fedfisher_core.federation.federation import POOLED
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.uploads import PAYLOAD, TENSORS, SendUpload, schema_of
from tests.walked import Walked, walk_tiny

SECURELY = {"method": "fedavg", "wire": {"budget": "none", "server_view": "secure_sum"}}


def stored(folder: Path) -> set[str]:
    return {path.name for path in (folder / "artifacts/payloads").iterdir()}


def sending(done: Walked) -> list[SendUpload]:
    """The jobs that encode uploads, each once."""
    return [job for job in graph_of(done.plan.jobs).values() if isinstance(job, SendUpload)]


@pytest.mark.parametrize(
    ("methods", "payloads"),
    [
        (["fedavg"], 3),
        (["fedavg", "ensemble", "local_mean", "otfusion"], 3),
        (["fisher_merge", "fedfisher_diag"], 3),
        (["fedavg", "fisher_merge", "fedfisher_diag"], 6),
        (["fedavg", "centralised"], 4),
        (["centralised"], 1),
    ],
)
def test_methods_that_send_the_same_share_one_payload_a_client(
    workplace: Path, methods: list[str], payloads: int
) -> None:
    done = walk_tiny(workplace, {name: {} for name in methods})
    assert len(stored(workplace)) == payloads
    assert len(sending(done)) == payloads


def test_the_same_in_another_format_is_another_payload(workplace: Path) -> None:
    first = walk_tiny(workplace, {"fisher_merge": {}})
    before = stored(workplace)
    methods = {"fisher_merge": {}, "again": {"method": "fedfisher_diag"}, "plain": {"method": "fisher_merge"}}
    methods["plain"]["wire"] = {"budget": "none"}  # type: ignore[assignment]
    done = walk_tiny(workplace, methods)
    assert len(stored(workplace)) == 6
    assert before < stored(workplace)
    assert done.rows["fisher_merge"].artifact == first.rows["fisher_merge"].artifact
    assert done.rows["again"].upload_bits == done.rows["fisher_merge"].upload_bits < done.rows["plain"].upload_bits
    # Both payloads of a client are made by one task.
    assert {job.title for job in sending(done)} == {
        f"encode uploads of client {client} of {done.federation.label}" for client in range(3)
    }


@pytest.mark.parametrize("wire", [{}, {"budget": "none", "format": "float32"}])
def test_a_payload_holds_what_the_client_computed(workplace: Path, wire: dict[str, Any]) -> None:
    done = walk_tiny(workplace, {"fisher_merge": {}}, wire=wire)
    federations, bound = done.plan.federations, done.plan.federations.methods["fisher_merge"]
    uploads: tuple[type[Statistic], ...] = (Weights, DiagonalFisher)
    sizes = []
    for client, computed in ((client, done.client(client, "fisher_merge")) for client in range(3)):
        job = federations.sending(done.federation, client, bound)
        payload = (done.made(job).path / PAYLOAD).read_bytes()
        sizes.append(len(payload))
        arrived = decode(payload, schema_of(bound, done.federation.spec), uploads, torch.device("cpu"))
        assert arrived.num_examples == len(held_by(done.partition, client))
        for one in uploads:
            for name, tensor in read_tensors(computed[one.name], TENSORS).items():
                if wire:
                    assert torch.equal(arrived[one].tensors[name], tensor)
                else:
                    assert (arrived[one].tensors[name] - tensor).abs().max() < 0.01 * tensor.abs().max()
    assert done.rows["fisher_merge"].upload_bits == 8 * sum(sizes)


def test_what_is_sent_lies_between_what_is_computed_and_what_is_aggregated(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fisher_merge": {}, "centralised": {}, "securely": SECURELY})
    federations, federation = done.plan.federations, done.federation
    for label in ("fisher_merge", "centralised"):
        bound = federations.methods[label]
        jobs = {
            client: federations.sending(federation, client, bound) for client in federations.members(federation, bound)
        }
        aggregation = federations.aggregation(federation, label)
        assert isinstance(aggregation, AggregateUploads)
        sent = {client: dict(one.uploads) for client, one in aggregation.needs.clients.items()}
        assert sent == {client: {PAYLOAD: job} for client, job in jobs.items()}
        for client, job in jobs.items():
            computed = {one.key for one in federations.uploaded(federation, client, bound).values()}
            assert computed < {one.key for one in job.roles.values()}
            assert computed <= {one.key for one in aggregation.roles.values()}
        assert {job.key for job in jobs.values()} < {one.key for one in aggregation.roles.values()}
    # What is masked is no payload.
    assert len(sending(done)) == 4


def test_encoding_is_timed_for_every_client(workplace: Path) -> None:
    methods = {"fedavg": {}, "ensemble": {}, "fisher_merge": {}, "centralised": {}, "securely": SECURELY}
    done = walk_tiny(workplace, methods)
    federations, federation, rows = done.plan.federations, done.federation, done.rows
    for label in ("fedavg", "ensemble", "fisher_merge", "centralised"):
        bound = federations.methods[label]
        jobs = [federations.sending(federation, client, bound) for client in federations.members(federation, bound)]
        seconds = [read_timings(done.made(job))["seconds"] for job in jobs]
        assert min(seconds) > 0
        assert rows[label].client_encode_seconds == pytest.approx(sum(seconds))
    assert rows["fedavg"].client_encode_seconds == rows["ensemble"].client_encode_seconds
    # The clients' part of the protocol is theirs, the rest the server's.
    timings = read_timings(done.aggregate("securely"))
    assert rows["securely"].client_encode_seconds == timings["client_seconds"] > 0
    assert rows["securely"].server_seconds == timings["seconds"] > 0


def test_processors_are_timed_for_all_that_clients_and_server_do(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "fisher_merge": {}, "securely": SECURELY})
    federations, federation = done.plan.federations, done.federation

    def processors(jobs: Iterable[Job[Any]]) -> float:
        return sum(read_timings(done.made(job))["processor_seconds"] for job in jobs)

    for label, row in done.rows.items():
        bound = federations.methods[label]
        clients = federations.members(federation, bound)
        took = processors(job for one in clients for job in federations.uploaded(federation, one, bound).values())
        timings = read_timings(done.aggregate(label))
        if label == "securely":
            took += timings["client_processor_seconds"]
        else:
            took += processors(federations.sending(federation, one, bound) for one in clients)
        assert row.client_processor_seconds == pytest.approx(took)
        assert row.server_processor_seconds == timings["processor_seconds"] > 0


def test_what_was_stored_before_processors_were_timed_has_no_such_seconds(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spent, "_clock_of", lambda device: None)
    (row,) = walk_tiny(workplace, {"fedavg": {}}).rows.values()
    assert (row.client_processor_seconds, row.server_processor_seconds) == (None, None)
    assert row.client_train_seconds > 0


def test_clients_encode_on_the_processor_and_servers_where_the_settings_say(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "centralised": {}}, run={"torch_threads": 2})
    for job in sending(done):
        assert (job.numerics.device, job.numerics.threads) == ("cpu", 2)
        assert job.may_diverge == (job.client != POOLED)


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": {"clients": 4}, "measures": {"personalisation": {"unseen_clients": 2}}},
        {"partition": {"clients": 3, "scheme": "largest", "column": "maker"}},
    ],
    ids=["unseen clients", "the largest clients"],
)
def test_pooled_data_counts_the_examples_that_are_trained_on(workplace: Path, changes: dict[str, Any]) -> None:
    done = walk_tiny(workplace, {"centralised": {}}, **changes)
    examples = len(held_by(done.partition, POOLED))
    spec = done.federation.dataset
    bits = spec.inputs.bits + (spec.classes - 1).bit_length()
    assert done.rows["centralised"].upload_bits == examples * bits
    assert examples < 100
