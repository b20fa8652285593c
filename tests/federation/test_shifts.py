"""Whole tiny benchmarks whose clients see their examples in ways of their own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.data.shifts import Shifts, rotate
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.engine.store import open_store, read_tensors
from fedfisher_core.experiments.benchmark.page import report_files, shown_of
from fedfisher_core.experiments.benchmark.plan import make_plan, make_rows
from fedfisher_core.experiments.benchmark.runs import make_runs
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import POOLED, PartitionInputs
from fedfisher_core.federation.partition import examples_of, held_by, label_counts, shifts_of
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.settings.reading import validate
from tests.experiments.benchmark.samples import make_page
from tests.reporting.pages import Page
from tests.tiny import CLASSES, TINY_DATA, tiny_settings
from tests.walked import Walked, walk_tiny

ROTATION = {"kind": "rotation", "strength": 40}
NOISE = {"kind": "noise", "strength": 0.5}
LABELS = {"kind": "labels", "strength": 0.7}


def walked(folder: Path, shift: Any, *methods: str, **changes: Any) -> Walked:
    return walk_tiny(folder, {name: {} for name in methods}, partition={"shift": shift}, **changes)


def held(done: Walked, client: int) -> Tensor:
    return torch.from_numpy(held_by(done.partition, client))


def examples(done: Walked, client: int) -> Examples:
    return examples_of(done.federation, PartitionInputs(done.data, done.partition), client)


def shifts(done: Walked) -> Shifts:
    found = shifts_of(done.partition)
    assert found is not None
    return found


def turned(pixels: Tensor, degrees: float) -> Tensor:
    return (rotate(pixels / 255, degrees) - 0.4) / 0.3


def keys(folder: Path, kind: str) -> set[str]:
    return {path.name for path in (folder / "artifacts" / kind).iterdir()}


def test_shifts_that_differ_in_their_classes_are_different_federations(workplace: Path) -> None:
    shift = [{"kind": "labels", "strength": 0.7, "classes": classes} for classes in (2, 3)]
    federations = make_plan(tiny_settings(workplace, partition={"shift": shift})).federations
    few, all_of_them = (federations.partition(federation) for federation in federations.all)
    assert few.name != all_of_them.name
    assert few.key != all_of_them.key


def test_clients_train_on_what_they_see(workplace: Path) -> None:
    done = walked(workplace, ROTATION, "fedavg", "centralised")
    train = load_data(done.data).train
    for client, degrees in enumerate((-40.0, 0.0, 40.0)):
        seen, own = examples(done, client), held(done, client)
        assert torch.allclose(seen.inputs, turned(train.inputs[own], degrees), atol=1e-6)
        assert torch.equal(seen.labels, train.labels[own])
    assert torch.equal(examples(done, 1).inputs, select(train, TINY_DATA, held(done, 1)).inputs)
    # The pooled client has every image as its owner sees it.
    pooled = examples(done, POOLED)
    assert torch.equal(pooled.inputs, torch.cat([examples(done, client).inputs for client in range(3)]))
    assert torch.equal(pooled.labels, train.labels[held(done, POOLED)])


def test_statistics_are_of_the_shifted_images(workplace: Path) -> None:
    done = walked(workplace, ROTATION, "regmean", model={"name": "linear"})
    train = load_data(done.data).train
    for client, degrees in enumerate((-40.0, 0.0, 40.0)):
        found = read_tensors(done.client(client, "regmean")["gram"], "tensors.safetensors")["head"]
        pixels = train.inputs[held(done, client)]
        expected, plain = ((rows.T @ rows) / len(rows) for rows in _flat(pixels, degrees, 0.0))
        assert torch.allclose(found, expected, atol=1e-4)
        assert torch.allclose(found, plain, atol=1e-4) == (degrees == 0)


def _flat(pixels: Tensor, *angles: float) -> list[Tensor]:
    return [turned(pixels, degrees).flatten(1) for degrees in angles]


def test_exchanged_labels_are_trained_on_and_the_true_ones_are_counted(workplace: Path) -> None:
    done = walked(workplace, LABELS, "ensemble_by_holders")
    labels, found = load_data(done.data).train.labels, shifts(done)
    assert sorted(found.levels) == [0, 1, 1]
    for client, changed in enumerate(found.levels):
        true = labels[held(done, client)]
        seen = torch.tensor(found.names)[true] if changed else true
        assert torch.equal(examples(done, client).labels, seen)
        assert bool(changed) != torch.equal(seen, true)
        uploaded = read_tensors(done.client(client, "ensemble_by_holders")["label_counts"], "tensors.safetensors")
        assert uploaded["counts"].tolist() == torch.bincount(seen, minlength=CLASSES).tolist()
        assert label_counts(done.partition)[client] == torch.bincount(true, minlength=CLASSES).tolist()


@pytest.mark.parametrize("shift", [ROTATION, NOISE, LABELS, {"kind": "blur", "strength": 2}])
def test_the_worst_client_is_measured_on_what_it_sees_and_nothing_else_is(workplace: Path, shift: Any) -> None:
    done = walked(workplace, shift, "fedavg", "local_mean")
    test, found = load_data(done.data).test, shifts(done)
    counts = torch.tensor(label_counts(done.partition)).double()

    def accuracies(network: str, method: str, client: int | None) -> Tensor:
        """Of each class, in one client's view."""
        view = None if client is None else found.of(client, test=True)
        seen = select(test, TINY_DATA, view=view)
        model = done.federation.spec.load(read_tensors(done.aggregate(method), network)).eval()
        right = model(seen.inputs).argmax(1) == test.labels
        return torch.stack([right[test.labels == label].double().mean() for label in range(CLASSES)])

    def worst(network: str, method: str) -> float:
        views = [None if found.kind == "labels" else client for client in range(3)]
        each = [own @ accuracies(network, method, view) / own.sum() for own, view in zip(counts, views, strict=True)]
        return float(min(each))

    fedavg, local = done.rows["fedavg"], done.rows["local_mean"]
    assert fedavg.worst_client_accuracy == pytest.approx(worst("network_0.safetensors", "fedavg"))
    each = [worst(f"network_{client}.safetensors", "local_mean") for client in range(3)]
    assert local.worst_client_accuracy == pytest.approx(sum(each) / 3)
    plain = accuracies("network_0.safetensors", "fedavg", None)
    # The test set has as many images of every class.
    assert fedavg.accuracy == pytest.approx(float(plain.mean()))
    assert fedavg.worst_class_accuracy == pytest.approx(float(plain.min()))


def test_clients_that_see_nothing_else_come_to_the_same(workplace: Path) -> None:
    plain = walk_tiny(workplace, {"fedavg": {}})

    def same(other: Walked) -> list[bool]:
        found = [[done.client(client, "fedavg")["weights"].digest for client in range(3)] for done in (plain, other)]
        return [one == another for one, another in zip(*found, strict=True)]

    # The client in the middle turns nothing.
    assert same(walked(workplace, ROTATION, "fedavg")) == [False, True, False]
    changed = walked(workplace, LABELS, "fedavg")
    assert same(changed) == [not level for level in shifts(changed).levels]
    aggregates = keys(workplace, "aggregates")
    walked(workplace, {"kind": "rotation", "strength": 41}, "fedavg")
    assert len(keys(workplace, "aggregates") - aggregates) == 1


def test_the_same_seed_gives_the_same_bits(workplace: Path) -> None:
    one, two = (walked(workplace / name, NOISE, "fedavg", "centralised") for name in ("one", "two"))
    for client in (POOLED, 0, 1, 2):
        assert torch.equal(examples(one, client).inputs, examples(two, client).inputs)
        assert torch.equal(examples(one, client).labels, examples(two, client).labels)
    for method in ("fedavg", "centralised"):
        first, second = one.rows[method], two.rows[method]
        assert (first.artifact, first.loss) == (second.artifact, second.loss)
        assert first.worst_client_accuracy == second.worst_client_accuracy


def test_names_and_keys_without_a_shift_do_not_speak_of_one(workplace: Path) -> None:
    plan = make_plan(tiny_settings(workplace, methods={"fedavg": {}}))
    (federation,) = plan.federations.all
    graph = graph_of(plan.jobs)
    outcome = execute(plan.jobs, open_store(plan.settings.run.store))

    def settings(job: Job[Any]) -> dict[str, Any]:
        return dict(job.settings())

    split = plan.federations.partition(federation)
    assert split.name == "split tiny tiny dirichlet_client alpha=0.5 clients=3 seed=0"
    assert set(settings(split)["cell"]) == {"dataset", "scheme", "alpha", "clients", "seed"}
    assert "shift" not in settings(split)["partition"]
    summary = json.loads((outcome.artifacts[split.name].path / "partition.json").read_text())
    assert set(summary) == {"digest", "label_counts", "class_names"}
    (first, *_) = [job for job in graph.values() if isinstance(job, TrainClient)]
    assert set(settings(first)) == {"code", "model", "train", "augment", "seed", "client", "threads", "device"}


def test_shifts_of_one_benchmark_stand_apart_in_rows_page_and_runs(workplace: Path) -> None:
    partition = {"shift": ["none", ROTATION, LABELS]}
    done = walk_tiny(workplace, {"fedavg": {}, "ensemble": {"only": {"shift": "none"}}}, partition=partition)
    rows = make_rows(done.plan, done.outcome)
    assert [(row.method, row.shift, row.shift_strength) for row in rows] == [
        ("fedavg", None, None),
        ("ensemble", None, None),
        ("fedavg", "labels", 0.7),
        ("fedavg", "rotation", 40.0),
    ]
    text = Page(report_files(rows, make_page(shown=shown_of(done.plan, done.outcome)))["index.html"].decode()).text
    for part in (
        "dirichlet_client, α = 0.5, rotation 40",
        "no shift",
        "0 (−40°)",
        "1 (as they are)",
        "2 (40°)",
        "(exchanged)",
        "Counts are of true classes; the clients marked as exchanged call them by other names: left → ",
        "Test images and the server’s validation images are as they are.",
        "Only the worst client’s accuracy is of test images as each client sees its own.",
    ):
        assert part in text, part
    runs = make_runs(done.plan, done.outcome, rows)
    assert [run.params.get("shift") for run in runs.single] == [None, None, "labels 0.7", "rotation 40"]
    assert [run.name for run in runs.single][-1] == "fedavg a=0.5 rotation=40 s=0"
    # The page has the same pictures as text.
    pictures = [run.draw()["partition.png"] for run in runs.single]
    assert all(one.startswith(b"\x89PNG") for one in pictures)
    assert pictures[0] != pictures[-1]


def test_images_are_needed_to_shift_them_but_not_to_exchange_labels(arranged_workplace: Path) -> None:
    for dataset, model, layout in (("table", "mlp", "6 numbers"), ("texts", "bag", "5 tokens of 12")):
        chosen = {"data": {"dataset": dataset}, "model": {"name": model}}
        message = rf"partition\.shift=rotation 40: {dataset} has {layout}, not images; allowed: none, labels"
        with pytest.raises(InputError, match=message):
            check_federations(tiny_settings(arranged_workplace, partition={"shift": ROTATION}, **chosen))
        done = walk_tiny(arranged_workplace, {"fedavg": {}}, partition={"shift": LABELS}, **chosen)
        assert done.rows["fedavg"].shift == "labels"


@pytest.mark.parametrize("shift", [ROTATION, NOISE])
def test_too_few_clients_for_a_shift_are_refused(workplace: Path, shift: Any) -> None:
    with pytest.raises(
        InputError, match=r"partition\.clients=1 with partition\.shift=\w+ [0-9.]+; allowed: at least 2"
    ):
        check_federations(tiny_settings(workplace, partition={"shift": shift, "clients": [1, 3]}))


@pytest.mark.parametrize("settings", [AttackSettings, TwoLayerSettings])
def test_other_experiments_offer_no_shift(settings: Any) -> None:
    with pytest.raises(InputError, match=r"unknown setting 'partition'"):
        validate(settings, {"partition": {"shift": ROTATION}})


def test_private_clients_train_on_what_they_see(workplace: Path) -> None:
    privacy = {"epsilon": 8.0, "delta": 1e-3}
    plain = walk_tiny(workplace, {"fedavg": {}}, privacy=privacy)
    done = walked(workplace, ROTATION, "fedavg", privacy=privacy)
    weights = [[one.client(client, "fedavg")["weights"].digest for client in range(3)] for one in (plain, done)]
    assert [first == second for first, second in zip(*weights, strict=True)] == [False, True, False]
