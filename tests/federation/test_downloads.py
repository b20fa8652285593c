"""What a server sends is counted as it is encoded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32
from fedfisher_core.communication.wire.payload import Schema, Section, decode, encode
from fedfisher_core.engine.store import Artifact, read_tensors
from fedfisher_core.federation.global_models import read_result
from fedfisher_core.federation.partition import label_counts
from fedfisher_core.federation.uploads import NOTHING, SEED, SEED_BITS
from tests import tiny
from tests.walked import walk_tiny

CLIENTS = 3
SIZE = sum(parameter.numel() for parameter in tiny.TINY.skeleton().parameters())


def networks(artifact: Artifact) -> dict[str, dict[str, Tensor]]:
    """The networks of a global model, by name."""
    return {path.stem: read_tensors(artifact, path.name) for path in sorted(artifact.path.glob("network_*"))}


def encoded(sections: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    """Tensors as they would be sent, after making sure that they arrive."""
    schema = Schema(
        tuple(
            Section(name, tuple(TensorSpec(key, tuple(one.shape)) for key, one in tensors.items()), Float32())
            for name, tensors in sections.items()
        )
    )
    payload = encode(schema, sections, num_examples=0)
    for name, tensors in decode(payload, schema).statistics.items():
        assert all(torch.equal(one, sections[name][key].float()) for key, one in tensors.items())
    return payload


@pytest.mark.parametrize("method", ["fedavg", "fisher_merge", "fedfisher_kfac", "otfusion", "ensemble", "pfnm"])
def test_every_client_gets_a_seed_and_the_encoded_global_model(workplace: Path, method: str) -> None:
    done = walk_tiny(workplace, {method: {}})
    row, held = done.rows[method], networks(done.aggregate(method))
    assert len(held) == (CLIENTS if method == "ensemble" else 1)
    assert row.download_bits == CLIENTS * (SEED_BITS + 8 * len(encoded(held)))
    assert row.start_sent == SEED


def test_a_number_takes_32_bits_and_a_payload_a_header(workplace: Path) -> None:
    rows = walk_tiny(workplace, {"fedavg": {}, "ensemble": {}}).rows
    assert rows["fedavg"].download_bits == CLIENTS * (64 + 256 + 32 * SIZE)
    assert rows["ensemble"].download_bits == CLIENTS * (64 + 256 + CLIENTS * 32 * SIZE)


def test_weights_of_classes_are_sent_with_the_networks(workplace: Path) -> None:
    done = walk_tiny(workplace, {"ensemble_by_labels": {}})
    counts = torch.tensor(label_counts(done.partition))
    assert counts.shape == (CLIENTS, tiny.CLASSES)
    sections = networks(done.aggregate("ensemble_by_labels")) | {"weights": {"weights": counts / counts.sum(0)}}
    assert done.rows["ensemble_by_labels"].download_bits == CLIENTS * (SEED_BITS + 8 * len(encoded(sections)))


def test_a_wider_global_network_costs_what_it_has(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "pfnm": {}})
    filters, hidden = read_result(done.aggregate("pfnm")).widths
    assert (filters, hidden) > (2, 5)
    # 9 weights a filter, 9 of its places a hidden unit, and 3 classes.
    numbers = 9 * filters + 9 * filters * hidden + hidden * 3
    assert done.rows["pfnm"].download_bits == CLIENTS * (64 + 256 + 32 * numbers)
    assert done.rows["pfnm"].download_bits > done.rows["fedavg"].download_bits


@pytest.mark.parametrize(("initialisation", "seed", "sent"), [("same", SEED_BITS, SEED), ("different", 0, NOTHING)])
def test_a_seed_is_sent_only_where_all_start_alike(workplace: Path, initialisation: str, seed: int, sent: str) -> None:
    model = {"initialisation": initialisation}
    rows = walk_tiny(workplace, {"fedavg": {}, "local_mean": {}, "ensemble": {}}, model=model).rows
    assert {row.start_sent for row in rows.values()} == {sent}
    assert rows["fedavg"].download_bits == CLIENTS * (seed + 256 + 32 * SIZE)
    # Every client goes on with its own network.
    assert rows["local_mean"].download_bits == CLIENTS * seed


@pytest.mark.parametrize("initialisation", ["same", "different"])
def test_who_sends_all_data_starts_from_nothing(workplace: Path, initialisation: str) -> None:
    row = walk_tiny(workplace, {"centralised": {}}, model={"initialisation": initialisation}).rows["centralised"]
    assert row.start_sent == NOTHING
    assert row.download_bits == CLIENTS * (256 + 32 * SIZE)


def test_who_uploads_nothing_of_its_training_starts_from_nothing(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedcgs": {}}, model={"name": "linear", "bias": True})
    row = done.rows["fedcgs"]
    assert row.start_sent == NOTHING
    assert row.download_bits == CLIENTS * 8 * len(encoded(networks(done.aggregate("fedcgs"))))


@pytest.mark.parametrize("wire", [{"budget": 7000}, {"budget": "none"}, {"format": "paper"}])
def test_downloads_do_not_depend_on_how_uploads_are_shortened(workplace: Path, wire: dict[str, Any]) -> None:
    row = walk_tiny(workplace, {"fedavg": {}}, wire=wire).rows["fedavg"]
    assert row.download_bits == CLIENTS * (64 + 256 + 32 * SIZE)
