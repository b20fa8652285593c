"""Encoding what clients send is a job of its own, which methods share."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.transport import decode
from fedfisher_core.client.weights import Weights
from fedfisher_core.federation.aggregation import AggregateUploads
from fedfisher_core.federation.federation import schema_of
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.place import POOLED
from fedfisher_core.federation.sending import SendUpload
from fedfisher_core.federation.uploads import PAYLOAD, TENSORS
from fedfisher_core.jobs import graph_of, inputs_of, names_in
from fedfisher_core.store import read_tensors, read_timings
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
    assert {job.batch for job in sending(done)} == {
        f"send uploads of client {client}: {done.place.label}" for client in range(3)
    }


@pytest.mark.parametrize("wire", [{}, {"budget": "none", "format": "float32"}])
def test_a_payload_holds_what_the_client_computed(workplace: Path, wire: dict[str, Any]) -> None:
    done = walk_tiny(workplace, {"fisher_merge": {}}, wire=wire)
    federations, bound = done.plan.federations, done.plan.federations.methods["fisher_merge"]
    uploads: tuple[type[Statistic], ...] = (Weights, DiagonalFisher)
    sizes = []
    for client, computed in ((client, done.client(client, "fisher_merge")) for client in range(3)):
        job = federations.sending(done.place, client, bound)
        payload = (done.outcome.artifacts[job.name].path / PAYLOAD).read_bytes()
        sizes.append(len(payload))
        arrived = decode(payload, schema_of(bound, done.place), uploads, torch.device("cpu"))
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
    federations, place = done.plan.federations, done.place
    for label in ("fisher_merge", "centralised"):
        bound = federations.methods[label]
        jobs = {client: federations.sending(place, client, bound) for client in federations.members(place, bound)}
        aggregation = federations.aggregation(place, label)
        assert isinstance(aggregation, AggregateUploads)
        sent = {client: dict(one.uploads) for client, one in aggregation.needs.clients.items()}
        assert sent == {client: {PAYLOAD: job.name} for client, job in jobs.items()}
        for client, job in jobs.items():
            computed = set(federations.names_of_statistics(place, client, bound).values())
            assert computed < set(names_in(job.needs))
            # What else a client computes is waited for, and is no part of what names the result.
            sent_by = aggregation.needs.clients[client]
            assert computed <= {sent_by.trained, *sent_by.beside}
        step = aggregation.step(inputs_of(aggregation.needs, done.outcome.artifacts))
        payloads = {done.outcome.artifacts[job.name].digest for job in jobs.values()}
        assert {value for key, value in step.inputs.items() if key.startswith("client_")} == payloads
    # What is masked is no payload.
    assert len(sending(done)) == 4
    stage = set(done.plan.stages["clients"])
    assert {job.name for job in sending(done)} < stage


def test_encoding_is_timed_for_every_client(workplace: Path) -> None:
    methods = {"fedavg": {}, "ensemble": {}, "fisher_merge": {}, "centralised": {}, "securely": SECURELY}
    done = walk_tiny(workplace, methods)
    federations, place, rows = done.plan.federations, done.place, done.rows
    for label in ("fedavg", "ensemble", "fisher_merge", "centralised"):
        bound = federations.methods[label]
        jobs = [federations.sending(place, client, bound) for client in federations.members(place, bound)]
        seconds = [read_timings(done.outcome.artifacts[job.name])["seconds"] for job in jobs]
        assert min(seconds) > 0
        assert rows[label].client_encode_seconds == pytest.approx(sum(seconds))
    assert rows["fedavg"].client_encode_seconds == rows["ensemble"].client_encode_seconds
    # The clients' part of the protocol is theirs, the rest the server's.
    timings = read_timings(done.aggregate("securely"))
    assert rows["securely"].client_encode_seconds == timings["client_seconds"] > 0
    assert rows["securely"].server_seconds == timings["seconds"] > 0


def test_clients_encode_on_the_processor_and_servers_where_the_settings_say(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "centralised": {}}, run={"torch_threads": 2})
    for job in sending(done):
        assert (job.numerics.device, job.numerics.threads) == ("cpu", 2)
        assert job.may_be_lost == (job.client != POOLED)


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
    spec = done.place.dataset
    bits = spec.inputs.bits + (spec.classes - 1).bit_length()
    assert done.rows["centralised"].upload_bits == examples * bits
    assert examples < 100
