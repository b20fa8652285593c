"""Accuracies on the embedded digits, pinned so that a change of a method shows even where its properties hold."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from fedfisher_core.steps.aggregation import aggregate, read_result
from fedfisher_core.steps.clients import POOLED, compute_statistics, train_client
from fedfisher_core.steps.context import Context
from fedfisher_core.steps.data import decode_data
from fedfisher_core.steps.partitions import split_data

from fedfisher_core.configuration import parse_settings
from fedfisher_core.methods.binding import bind
from fedfisher_core.store import Artifact

TOLERANCE = 0.03
"""Machines and libraries round differently, which moves a few of the 1000 test digits; a wrong factor moves more."""

METHODS: Mapping[str, dict[str, Any]] = {
    "fedavg": {},
    "fisher_merge": {},
    "regmean": {},
    "otfusion": {},
    "pfnm": {},
    "dense": {"epochs": 2, "generator_steps": 3, "images": 32},
    "ma_echo": {},
    "ma_echo_official": {},
    "ma_echo_ot": {},
    "fedfish": {},
    "fedfisher_diag": {},
    "fedfisher_kfac": {},
    "ensemble": {},
    "ensemble_logits": {},
    "ensemble_by_labels": {},
    "local_mean": {},
    "centralised": {},
}
GOLDEN: Mapping[str, float] = {
    "fedavg": 0.751,
    "fisher_merge": 0.834,
    "regmean": 0.781,
    "otfusion": 0.738,
    "pfnm": 0.886,
    "dense": 0.733,
    "ma_echo": 0.791,
    "ma_echo_official": 0.776,
    "ma_echo_ot": 0.791,
    "fedfish": 0.825,
    "fedfisher_diag": 0.834,
    "fedfisher_kfac": 0.845,
    "ensemble": 0.89,
    "ensemble_logits": 0.786,
    "ensemble_by_labels": 0.928,
    "local_mean": 0.675,
    "centralised": 0.958,
}


@pytest.fixture(scope="module")
def accuracies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    torch.set_num_threads(1)
    content = {
        "seeds": 0,
        "data": {"dataset": "mnist5k", "validation_size": 200},
        "partition": {"alpha": 0.2, "clients": 3},
        "model": {"name": "compact"},
        "train": {"epochs": 4},
        "run": {"device": "cpu", "store": str(tmp_path_factory.mktemp("store") / "artifacts")},
    }
    context = Context(parse_settings(content))
    (cell,) = context.settings.cells()
    data = decode_data(context, cell.dataset)
    partition = split_data(context, cell, data)
    bound = {label: bind(label, settings, [context.model(cell)]) for label, settings in METHODS.items()}
    found = {}
    clients: dict[int, dict[str, Artifact]] = {}
    for client in (POOLED, *range(cell.clients)):
        kinds = [
            kind for one in bound.values() if one.method.pooled == (client == POOLED) for kind in one.method.uploads
        ]
        trained = train_client(context, cell, data, partition, client)
        clients[client] = compute_statistics(context, cell, data, partition, client, trained, kinds)
    for label, one in bound.items():
        members = {client: own for client, own in clients.items() if (client == POOLED) == one.method.pooled}
        result = aggregate(context, cell, one, data, partition, members)
        found[label] = read_result(result)["measures"]["accuracy"]
    return found


@pytest.mark.parametrize("name", METHODS)
def test_the_accuracy_is_what_it_was(name: str, accuracies: dict[str, float]) -> None:
    assert accuracies[name] == pytest.approx(GOLDEN[name], abs=TOLERANCE)
