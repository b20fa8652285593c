"""A whole tiny benchmark through its steps, without orchestration."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from fedfisher_core.steps.context import Context

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.upload import Upload
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.partitions import Partition
from fedfisher_core.data.specs import DatasetSpec, datasets
from fedfisher_core.errors import DivergedClientError
from fedfisher_core.methods.binding import bind
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.store import Artifact, read_tensors
from tests import tiny

KINDS = (Weights, DiagonalFisher)


def run(folder: Path, methods: Mapping[str, Mapping[str, Any]], **changes: Any) -> dict[str, Row]:
    context = Context(tiny.tiny_settings(folder, methods=dict(methods), **changes))
    (cell,) = context.settings.cells()
    data = decode_data(context, cell.dataset)
    partition = split_data(context, cell, data)
    rows = {}
    for label, chosen in methods.items():
        bound = bind(label, chosen, [context.model(cell)], context.settings.wire)
        members = [POOLED] if bound.method.pooled else range(cell.clients)
        clients: dict[int, dict[str, Artifact]] = {}
        for client in members:
            trained = train_client(context, cell, data, partition, client)
            clients[client] = compute_statistics(context, cell, data, partition, client, trained, bound.method.uploads)
        result = aggregate(context, cell, bound, data, partition, clients)
        rows[label] = make_row(context, cell, label, bound, clients, (), result)
    return rows


seen_by_servers: list[Server] = []


@method("looking", uploads=(Weights,), reference="https://example.org")
def looking(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Remember the server."""
    seen_by_servers.append(server)
    return Aggregate.of(uploads[0][Weights].tensors)


@pytest.mark.parametrize("dataset", [tiny.TINY_DATA, tiny.TINY_AUGMENTED], ids=lambda spec: spec.name)
def test_a_server_knows_how_images_were_prepared(workplace: Path, dataset: DatasetSpec) -> None:
    run(workplace, {"looking": {}}, data={"dataset": dataset.name})
    assert seen_by_servers[-1].dataset == dataset


def written(folder: Path) -> dict[str, int]:
    store = folder / "artifacts"
    return {str(path.relative_to(store)): path.stat().st_mtime_ns for path in store.glob("*/*/manifest.json")}


def test_what_is_stored_is_not_computed_again(workplace: Path) -> None:
    methods = {"fedavg": {}, "fisher_merge": {}, "centralised": {}}
    first = run(workplace, methods)
    before = written(workplace)
    assert run(workplace, methods) == first
    assert written(workplace) == before

    run(workplace, {"fisher_merge": {"fisher_floor": 0.5}})
    new = set(written(workplace)) - set(before)
    assert len(new) == 1
    assert next(iter(new)).startswith("aggregates/")
    assert {key: time for key, time in written(workplace).items() if key in before} == before


def test_the_same_seed_gives_the_same_bits_in_another_store(workplace: Path) -> None:
    one = run(workplace / "one", {"fedavg": {}, "ensemble": {}})
    two = run(workplace / "two", {"fedavg": {}, "ensemble": {}})
    assert {label: (row.accuracy, row.loss, row.artifact) for label, row in one.items()} == {
        label: (row.accuracy, row.loss, row.artifact) for label, row in two.items()
    }
    assert run(workplace / "two", {"fedavg": {}}, seeds=[1])["fedavg"].loss != one["fedavg"].loss


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"epochs": 4}},
        {"train": {"learning_rate": 0.051}},
        {"train": {"epochs": None, "steps": 7}},
        {"model": {"bias": True}},
        {"model": {"initialisation": "different"}},
        {"seeds": [9]},
        {"run": {"torch_threads": 2}},
        {"partition": {"alpha": [0.9]}},
    ],
)
def test_a_setting_that_can_change_a_client_trains_it_anew(workplace: Path, changes: dict[str, Any]) -> None:
    run(workplace, {"fedavg": {}})
    before = {key for key in written(workplace) if key.startswith("clients/")}
    run(workplace, {"fedavg": {}}, **changes)
    assert {key for key in written(workplace) if key.startswith("clients/")} > before


def test_the_bits_of_a_wider_global_network_are_counted(workplace: Path) -> None:
    rows = run(workplace, {"fedavg": {}, "pfnm": {}})
    (artifact,) = (workplace / "artifacts").glob(f"aggregates/{rows['pfnm'].artifact}*")
    filters, hidden = json.loads((artifact / "result.json").read_text())["widths"]
    # 3 clients; 9 weights a filter, 9 of its places a hidden unit, and 3 classes.
    assert rows["fedavg"].download_bits == 3 * 32 * (9 * 2 + 9 * 2 * 5 + 5 * 3)
    assert rows["pfnm"].download_bits == 3 * 32 * (9 * filters + 9 * filters * hidden + hidden * 3)
    assert (filters, hidden) > (2, 5)


def test_clients_may_start_from_weights_of_their_own(workplace: Path) -> None:
    def initial(initialisation: str, client: int) -> dict[str, torch.Tensor]:
        context = Context(tiny.tiny_settings(workplace, model={"initialisation": initialisation}))
        return initial_parameters(context, context.settings.cells()[0], client)

    assert all(torch.equal(initial("same", 0)[name], tensor) for name, tensor in initial("same", 1).items())
    assert not any(
        torch.equal(initial("different", 0)[name], tensor) for name, tensor in initial("different", 1).items()
    )


ALL_FISHERS = {"fisher_merge": {}, "fedfisher_kfac": {}, "fedfisher_full": {}}


def statistics(folder: Path) -> dict[str, set[str]]:
    """Digest of every stored statistic's tensors, by its name."""
    found: dict[str, set[str]] = {}
    for path in (folder / "artifacts/statistics").iterdir():
        manifest = json.loads((path / "manifest.json").read_text())
        content = hashlib.sha256((path / "tensors.safetensors").read_bytes()).hexdigest()
        found.setdefault(manifest["settings"]["statistic"], set()).add(content)
    return found


def test_fishers_do_not_depend_on_which_others_shared_their_pass(workplace: Path) -> None:
    run(workplace / "together", ALL_FISHERS)
    for label in ALL_FISHERS:
        run(workplace / "one_by_one", {label: {}})
    run(workplace / "separate", ALL_FISHERS, fisher={"passes": "separate"})
    together = statistics(workplace / "together")
    assert {name: len(digests) for name, digests in together.items()} == {
        "diagonal_fisher": 3,
        "kfac": 3,
        "dense_fisher": 3,
    }
    assert statistics(workplace / "one_by_one") == together
    assert statistics(workplace / "separate") == together


@pytest.mark.parametrize(
    "fisher", [{"estimator": "empirical"}, {"estimator": "monte_carlo"}, {"backend": "nngeometry"}, {"memory_mib": 64}]
)
def test_another_fisher_is_computed_anew_by_the_same_clients(workplace: Path, fisher: dict[str, Any]) -> None:
    run(workplace, {"fisher_merge": {}, "regmean": {}})
    before = written(workplace)
    run(workplace, {"fisher_merge": {}, "regmean": {}}, fisher=fisher)
    new = [key.partition("/")[0] for key in set(written(workplace)) - set(before)]
    # The Gram matrices are no Fishers, and a Fisher of the same bits makes the same aggregate.
    assert new.count("statistics") == 3
    assert set(new) <= {"statistics", "aggregates"}


def test_a_monte_carlo_fisher_is_drawn_from_the_seed(workplace: Path) -> None:
    chosen = {"estimator": "monte_carlo", "samples": 2}
    run(workplace / "one", {"fisher_merge": {}}, fisher=chosen)
    run(workplace / "two", {"fisher_merge": {}}, fisher=chosen)
    assert statistics(workplace / "one") == statistics(workplace / "two")


def test_other_constants_of_normalisation_make_other_data(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(tiny.tiny_settings(workplace))
    first = decode_data(context, "tiny")
    shifted = dataclasses.replace(tiny.TINY_DATA, mean=(0.5,))
    monkeypatch.setattr(datasets, "get", lambda name: shifted)
    assert decode_data(context, "tiny").digest != first.digest


def test_uploads_fit_the_budget_that_the_settings_name(workplace: Path) -> None:
    methods = {"fedavg": {}, "fisher_merge": {}, "plain": {"method": "fisher_merge", "wire": {"budget": "none"}}}
    rows = run(workplace, methods)
    assert rows["fisher_merge"].upload_bits <= rows["fedavg"].upload_bits < rows["plain"].upload_bits
    assert rows["fisher_merge"].accuracy == pytest.approx(rows["plain"].accuracy, abs=0.1)
    assert rows["plain"].method_settings["wire"]["budget"] == "none"


def test_settings_that_can_not_change_a_result_share_it(workplace: Path) -> None:
    first = run(workplace, {"fedavg": {}})["fedavg"]
    again = run(workplace, {"fedavg": {}}, run={"workers": 7, "retries": 3}, report={"notes": "other"}, name="other")
    assert again["fedavg"].artifact == first.artifact


def test_a_diverged_client_is_named_and_nothing_of_it_is_stored(workplace: Path) -> None:
    context = Context(tiny.tiny_settings(workplace, train={"learning_rate": 1e30}))
    (cell,) = context.settings.cells()
    data = decode_data(context, cell.dataset)
    partition = split_data(context, cell, data)
    with pytest.raises(
        DivergedClientError, match=r"client 1 of tiny tiny dirichlet_client alpha=0\.5 clients=3 seed=0"
    ):
        train_client(context, cell, data, partition, 1)
    assert not [key for key in written(workplace) if key.startswith("clients/")]


def test_a_partition_is_read_as_it_was_split(workplace: Path) -> None:
    context = Context(tiny.tiny_settings(workplace))
    (cell,) = context.settings.cells()
    data = decode_data(context, cell.dataset)
    artifact = split_data(context, cell, data)
    partition: Partition = load_partition(artifact)
    labels = load_data(data).train.labels.numpy()
    assert sorted(index for held in partition.clients for index in held) == list(range(tiny.TRAIN))
    assert label_counts(artifact) == partition.label_counts(labels, tiny.CLASSES).tolist()
    assert len(partition.validation) == 20
    assert class_names(artifact) == tuple(tiny.CLASS_NAMES)


def test_bits_are_those_of_the_payloads(workplace: Path) -> None:
    methods = {"fedavg": {}, "fisher_merge": {}, "centralised": {}, "ensemble": {}}
    rows = run(workplace, methods, wire={"budget": "none"})
    size = sum(parameter.numel() for parameter in tiny.TINY.skeleton().parameters())
    assert rows["fedavg"].upload_bits_formula == 3 * 32 * size
    assert rows["fisher_merge"].upload_bits_formula == 3 * 64 * size
    for label in ("fedavg", "fisher_merge"):
        assert 0 < rows[label].upload_bits - rows[label].upload_bits_formula <= 3 * 8 * 64
    assert rows["fedavg"].download_bits == 3 * 32 * size
    assert rows["ensemble"].download_bits == 3 * 3 * 32 * size
    assert rows["centralised"].upload_bits == tiny.TRAIN * (8 * tiny.SIZE**2 + 2)


def test_rows_say_what_they_are(workplace: Path) -> None:
    rows = run(workplace, {"fedavg": {}, "fedfisher_diag": {"solver": "paper"}, "local_mean": {}})
    assert [rows[label].uses_validation for label in ("fedavg", "fedfisher_diag", "local_mean")] == [False, True, False]
    assert [rows[label].reference for label in ("fedavg", "fedfisher_diag", "local_mean")] == [False, False, True]
    assert rows["fedfisher_diag"].method_settings == {
        "method": "fedfisher_diag",
        "solver": {"name": "paper", "steps": 2000, "select": True, "check_every": 100},
        "wire": {"budget": "fedavg", "format": "fedfisher", "factor_bits": 9},
    }
    assert set(rows["fedfisher_diag"].client_statistics_seconds) == {"diagonal_fisher"}
    assert rows["fedavg"].client_train_seconds > 0
    assert rows["fedavg"].peak_memory_bytes >= 0
    assert rows["fedavg"].uploads == {"weights": "sum"}
    assert rows["local_mean"].uploads == {"weights": "each"}
    assert rows["fedfisher_diag"].uploads == {"weights": "sum", "diagonal_fisher": "sum"}


def test_the_stored_network_is_the_one_that_was_measured(workplace: Path) -> None:
    run(workplace, {"fedavg": {}})
    context = Context(tiny.tiny_settings(workplace))
    (cell,) = context.settings.cells()
    (path,) = (workplace / "artifacts/aggregates").iterdir()
    artifact = Artifact(kind="aggregates", key=path.name, digest="", path=path)
    parameters = read_tensors(artifact, "network_0.safetensors")
    test = tiny.TINY_DATA
    dataset = load_data(decode_data(context, "tiny"))
    inputs = (dataset.test.inputs.float() / 255 - test.mean[0]) / test.std[0]
    with torch.no_grad():
        predicted = context.model(cell).load(parameters)(inputs).argmax(1)
    right = float((predicted == dataset.test.labels).double().mean())
    assert read_result(artifact)["measures"]["accuracy"] == pytest.approx(right)
