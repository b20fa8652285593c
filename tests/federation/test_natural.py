"""Whole tiny benchmarks whose clients are those of the data: makers, domains, and coarse labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.experiments.benchmark.page import report_files, shown_of
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.experiments.benchmark.runs import make_runs
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.partition import (
    held_by,
    label_counts,
    maker_names,
    own_test_sizes,
    shifts_of,
    unassigned_test_size,
)
from tests import tiny
from tests.experiments.benchmark.samples import make_page
from tests.reporting.pages import Page
from tests.walked import Walked, walk_tiny

COLUMN = {"scheme": "column", "column": "maker"}
# Of `write_tiny`, image i of either split is by maker i mod 7.
MAKERS = [f"maker {number}" for number in range(7)]


def right(done: Walked, inputs: Tensor) -> Tensor:
    """Which of the test images FedAvg's network predicts, in the form that it is shown."""
    model = done.federation.spec.load(read_tensors(done.aggregate("fedavg"), "network_0.safetensors")).eval()
    with torch.no_grad():
        return model(inputs).argmax(1) == load_data(done.data).test.labels


def test_clients_are_the_makers_and_are_measured_on_their_own_images(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}}, partition=COLUMN | {"clients": [7]})
    assert maker_names(done.partition) == [[maker] for maker in MAKERS]
    for client in range(7):
        assert sorted(held_by(done.partition, client).tolist()) == list(range(client, tiny.TRAIN, 7))
    test = load_data(done.data).test
    found = right(done, select(test, tiny.TINY_DATA).inputs)
    own = [found[list(range(client, tiny.TEST, 7))].double().mean() for client in range(7)]
    assert done.rows["fedavg"].worst_client_accuracy == pytest.approx(float(min(own)))
    assert own_test_sizes(done.partition) == [len(range(client, tiny.TEST, 7)) for client in range(7)]


@pytest.mark.parametrize("scheme", ["column", "domain"])
def test_makers_that_share_a_client_or_clients_that_share_a_domain_are_measured_as_they_see_it(
    workplace: Path, scheme: str
) -> None:
    clients, turned = {"column": 3, "domain": 14}[scheme], {"kind": "rotation", "strength": 40}
    done = walk_tiny(
        workplace, {"fedavg": {}}, partition={**COLUMN, "scheme": scheme, "clients": [clients], "shift": turned}
    )
    makers, shifts = maker_names(done.partition), shifts_of(done.partition)
    assert makers is not None
    assert shifts is not None
    if scheme == "domain":
        assert makers == [[maker] for maker in MAKERS for _ in range(2)]
    test, own = load_data(done.data).test, []
    for client, held in enumerate(makers):
        seen = right(done, select(test, tiny.TINY_DATA, view=shifts.of(client, test=True)).inputs)
        own.append(seen[[row for row in range(tiny.TEST) if f"maker {row % 7}" in held]].double().mean())
    assert done.rows["fedavg"].worst_client_accuracy == pytest.approx(float(min(own)))


def test_with_the_largest_makers_all_test_images_count_and_those_of_clients_are_their_own(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}}, partition={**COLUMN, "scheme": "largest", "clients": [2]})
    # Of 120 training images, maker 0 made 18 and each other 17; of equals the first comes first.
    assert maker_names(done.partition) == [["maker 0"], ["maker 1"]]
    test = load_data(done.data).test
    found = right(done, select(test, tiny.TINY_DATA).inputs).double()
    own = [found[list(range(client, tiny.TEST, 7))].mean() for client in range(2)]
    assert done.rows["fedavg"].worst_client_accuracy == pytest.approx(float(min(own)))
    assert done.rows["fedavg"].accuracy == pytest.approx(float(found.mean()))
    assert own_test_sizes(done.partition) == [9, 9]
    assert unassigned_test_size(done.partition) == 42
    rows = make_rows(done.plan, done.outcome)
    text = Page(report_files(rows, make_page(shown=shown_of(done.plan, done.outcome)))["index.html"].decode()).text
    assert "own test examples: 9, 9. All other measures are of all test examples, 42 of makers that are no" in text


def test_who_made_test_images_alone_is_no_client_of_the_largest_and_refused_elsewhere(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tiny.write_tiny(workplace / "data") / "tiny" / "test.parquet"
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "data"))
    rows = pq.read_table(file)
    makers = ["stranger", *rows["maker"].to_pylist()[1:]]
    pq.write_table(rows.set_column(rows.column_names.index("maker"), "maker", pa.array(makers)), file)
    done = walk_tiny(workplace, {"fedavg": {}}, partition={**COLUMN, "scheme": "largest", "clients": [2]})
    assert maker_names(done.partition) == [["maker 0"], ["maker 1"]]
    assert own_test_sizes(done.partition) == [8, 9]
    assert unassigned_test_size(done.partition) == 43
    for scheme in ("column", "domain"):
        with pytest.raises(InputError, match=r"partition\.column='maker': 'stranger' has test examples, but none of"):
            walk_tiny(workplace, {"fedavg": {}}, partition={**COLUMN, "scheme": scheme, "clients": [7]})


@pytest.mark.parametrize(("tester", "unseen"), [("maker 6", 0), ("maker 2", 1)])
def test_clients_of_whom_none_has_test_examples_are_refused_before_any_training(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, tester: str, unseen: int
) -> None:
    file = tiny.write_tiny(workplace / "data") / "tiny" / "test.parquet"
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "data"))
    rows = pq.read_table(file)
    makers = [tester] * len(rows)
    pq.write_table(rows.set_column(rows.column_names.index("maker"), "maker", pa.array(makers)), file)
    changes = {"partition": {**COLUMN, "scheme": "largest", "clients": [2 + unseen]}}
    if unseen:
        changes["measures"] = {"personalisation": {"unseen_clients": unseen}}
    said = r"^partition\.column='maker' of .*: none of the 2 clients that take part has test examples; "
    with pytest.raises(InputError, match=said):
        walk_tiny(workplace, {"fedavg": {}}, **changes)
    assert not (workplace / "artifacts" / "clients").exists()


def test_speaking_roles_are_clients_over_rounds(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    said = {role: "".join(rng.choice(list("abc"), size)) for role, size in (("B", 2400), ("A", 2000), ("C", 2800))}
    text = workplace / "data" / "tinyshakespeare" / "input.txt"
    text.parent.mkdir(parents=True)
    text.write_text("\n\n".join(f"{role}:\n{words}" for role, words in said.items()), encoding="utf-8")
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "data"))
    done = walk_tiny(
        workplace,
        {"fedavg": {}, "fedfish": {}, "ties": {}},
        data={"dataset": "shakespeare"},
        model={"name": "gru"},
        partition={"scheme": "largest", "column": "role", "clients": [2]},
        rounds={"count": 2, "cohort": 1},
        train={"epochs": None, "steps": 2, "batch_size": 8},
    )
    assert maker_names(done.partition) == [["C"], ["B"]]
    assert [len(held_by(done.partition, client)) for client in range(2)] == [440, 376]
    assert own_test_sizes(done.partition) == [26, 22]
    assert unassigned_test_size(done.partition) == 18
    assert set(done.rows) == {"fedavg", "fedfish", "ties"}
    place, federations = done.federation, done.plan.federations
    made = done.made(federations.aggregation(place, "fedavg", federations.rounds_of("fedavg")[1]))
    model, test = place.spec.load(read_tensors(made, "network_0.safetensors")).eval(), load_data(done.data).test
    with torch.no_grad():
        found = (model(test.inputs).argmax(1) == test.labels).double()
    # In the order of their names: 18 windows of A, 22 of B, 26 of C.
    assert done.rows["fedavg"].accuracy == pytest.approx(float(found.mean()))
    worst = min(float(found[18:40].mean()), float(found[40:].mean()))
    assert done.rows["fedavg"].worst_client_accuracy == pytest.approx(worst)


def test_without_makers_of_test_images_the_worst_client_is_one_of_proportions(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tiny.write_tiny(workplace / "data")
    pixels, labels = tiny.images(tiny.TEST, seed=2)
    columns = {"image": list(map(tiny.png, pixels)), "label": labels}
    tiny.write_split(root / "tiny" / "test.parquet", columns, class_names=tiny.CLASS_NAMES)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(root))
    done = walk_tiny(workplace, {"fedavg": {}}, partition=COLUMN | {"clients": [7]})
    assert own_test_sizes(done.partition) is None
    test = load_data(done.data).test
    found = right(done, select(test, tiny.TINY_DATA).inputs).double()
    by_class = torch.stack([found[test.labels == label].mean() for label in range(tiny.CLASSES)])
    counts = torch.tensor(label_counts(done.partition)).double()
    worst = float((counts @ by_class / counts.sum(1)).min())
    assert done.rows["fedavg"].worst_client_accuracy == pytest.approx(worst)


def test_held_out_images_are_their_makers_own(workplace: Path) -> None:
    done = walk_tiny(
        workplace, {"fedavg": {}}, data={"held_out": 50, "validation_size": 5}, partition=COLUMN | {"clients": [7]}
    )
    groups = load_data(done.data).test.groups
    assert groups is not None
    assert own_test_sizes(done.partition) == torch.bincount(groups, minlength=7).tolist()
    assert len(groups) == 50


def test_the_page_and_the_runs_name_the_clients(workplace: Path) -> None:
    turned = {"kind": "rotation", "strength": 40}
    done = walk_tiny(workplace, {"fedavg": {}}, partition=COLUMN | {"clients": [2, 7], "shift": ["none", turned]})
    rows = make_rows(done.plan, done.outcome)
    text = Page(report_files(rows, make_page(shown=shown_of(done.plan, done.outcome)))["index.html"].decode()).text
    for part in (
        "6 (maker 6)",
        "6 (maker 6, 40°)",
        "0 (4 makers)",
        "The worst client’s accuracy is of each client’s own test examples: 9, 9, 9, 9, 8, 8, 8.",
    ):
        assert part in text, part
    # The page has the same pictures as text.
    drawn = [run.draw()["partition.png"] for run in make_runs(done.plan, done.outcome, rows).single]
    assert all(one.startswith(b"\x89PNG") for one in drawn)
    assert len(set(drawn)) == len(drawn)


def test_other_splits_of_the_same_data_have_no_clients_of_their_own(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}}, partition={**COLUMN, "scheme": ["column", "iid"], "clients": [3]})
    federations = done.plan.federations
    partitions = [done.made(federations.partition(place)) for place in federations.all]
    assert [maker_names(one) is None for one in partitions] == [False, True]
    assert [own_test_sizes(one) is None for one in partitions] == [False, True]


def write_cifar100(root: Path, *, coarse: bool = True, contradict: bool = False) -> Path:
    """Write images in CIFAR-100's schema: 100 labels, of which five stand below each of 20 coarse ones."""
    for split, each, seed in (("train", 4, 1), ("test", 1, 2)):
        labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(100), each))
        pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 32, 32, 3)).astype(np.uint8)
        above = (labels % 20).tolist()
        above[0] += contradict
        columns: dict[str, Any] = {"img": list(map(tiny.png, pixels)), "fine_label": labels.tolist()}
        tiny.write_split(root / "cifar100" / f"{split}.parquet", columns | ({"coarse_label": above} if coarse else {}))
    return root


PACHINKO = {"scheme": "pachinko", "alpha": [0.1], "beta": 10.0, "clients": [8], "min_size": 5}


def cifar100(folder: Path, **options: bool) -> dict[str, Any]:
    write_cifar100(folder / "data", **options)
    return {"data": {"dataset": "cifar100"}, "model": {"name": "linear"}, "partition": PACHINKO, "train": {"epochs": 1}}


def test_pachinko_allocation_follows_the_coarse_labels_of_the_file(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "data"))
    done = walk_tiny(workplace, {"fedavg": {}}, **cifar100(workplace))
    assert load_data(done.data).coarse == tuple(label % 20 for label in range(100))
    counts = np.array(label_counts(done.partition))
    assert counts.sum(1).tolist() == [50] * 8
    assert (counts.sum(0) == 4).all()
    # Half of a client's images are of three of 20 coarse labels, and of nearly all labels below its first.
    by_coarse = counts.reshape(8, 5, 20).sum(1)
    assert np.sort(by_coarse[0])[-3:].sum() >= 25
    assert (counts.reshape(8, 5, 20)[0, :, by_coarse[0].argmax()] > 0).sum() >= 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coarse": False}, "split 'train' of data set 'cifar100' has no coarse label column 'coarse_label'; it has"),
        (
            {"contradict": True},
            "split 'train' of data set 'cifar100': label .* has the coarse labels .*; allowed: one a",
        ),
    ],
)
def test_files_without_clear_coarse_labels_are_refused_before_any_work(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool], message: str
) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "data"))
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(workplace, **cifar100(workplace, **options)))
    assert not (workplace / "artifacts").exists()


def test_data_without_coarse_labels_are_refused_by_name(workplace: Path) -> None:
    with pytest.raises(InputError, match=r"partition\.scheme=pachinko: tiny has no coarse labels; allowed: cifar100"):
        check_federations(tiny.tiny_settings(workplace, partition=PACHINKO))


def test_digits_are_split_by_their_domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for name, size, count in (("mnist", 28, 60), ("usps", 16, 30)):
        for split in ("train", "test"):
            images = [tiny.png(one) for one in rng.integers(0, 256, (count, size, size)).astype(np.uint8)]
            columns = {"image": images, "label": [row % 10 for row in range(count)]}
            tiny.write_split(tmp_path / "data" / name / f"{split}.parquet", columns)
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    chosen = {"data": {"dataset": "digits"}, "model": {"name": "linear"}, "train": {"epochs": 1}}
    split = {"scheme": "domain", "column": "domain", "clients": [6], "min_size": 5}
    done = walk_tiny(tmp_path, {"fedavg": {}, "centralised": {}}, partition=split, **chosen)
    assert maker_names(done.partition) == [["mnist"]] * 3 + [["usps"]] * 3
    assert [len(held_by(done.partition, client)) for client in range(6)] == [20] * 3 + [10] * 3
    assert own_test_sizes(done.partition) == [60] * 3 + [30] * 3
    found = right(done, select(load_data(done.data).test, datasets.get("digits")).inputs)
    domains = (found[:60].double().mean(), found[60:].double().mean())
    assert done.rows["fedavg"].worst_client_accuracy == pytest.approx(float(min(domains)))
    refused = tiny.tiny_settings(tmp_path, partition=split | {"clients": [5]}, **chosen)
    with pytest.raises(InputError, match=r"partition\.clients=5 with partition\.scheme=domain: .* multiples of 2"):
        check_federations(refused)
