"""Whole tiny benchmarks on a table with gaps, whose clients fill and scale their numbers each by its own."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.specs import DatasetSpec, Impute, datasets
from fedfisher_core.data.tensors import select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import read_tensors
from fedfisher_core.experiments.benchmark.page import report_files, shown_of
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.federation.aggregating import server_of
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import POOLED, PartitionInputs, StartInputs
from fedfisher_core.federation.partition import describe_view, examples_of, held_by, unscaled_features, validation_set
from tests import arranged, tiny
from tests.experiments.benchmark.samples import make_page
from tests.reporting.pages import Page
from tests.walked import Walked, walk_tiny

COLUMNS = ("a", "b", "c", "d", "e", "f")
WARDS = ("east", "north", "west")
DATASETS: dict[Impute, str] = {"mean": "wards_mean", "median": "wards_median"}
for _impute, _name in DATASETS.items():
    datasets.add(
        _name,
        DatasetSpec(_name, None, 3, Vectors(6), feature_columns=COLUMNS, impute=_impute, client_column="ward"),
    )
REAL = Path(os.environ.get("FEDFISHER_DATA_DIR", "data")).absolute()

Rows = NDArray[np.float64]


def rows_of(count: int, *, seed: int) -> tuple[Rows, list[int], list[str]]:
    """Draw rows with gaps: each ward measures in a unit of its own, west never measures f, and north's e is all 4."""
    rows, labels = arranged.numbers(count, seed=seed)
    wards = [WARDS[row % 3] for row in range(count)]
    rng = np.random.default_rng(seed + 10)
    for row, ward in enumerate(wards):
        rows[row] = rows[row] * (1 + 20 * WARDS.index(ward)) + 100 * WARDS.index(ward)
        rows[row, rng.random(6) < 0.2] = np.nan
        if ward == "west" and seed == 1:
            rows[row, 5] = np.nan
        if ward == "north" and seed == 1:
            rows[row, 4] = 4
    return rows, labels, wards


def write(root: Path, train: Rows | None = None) -> Path:
    for name in DATASETS.values():
        for split, count, seed in (("train", tiny.TRAIN, 1), ("test", tiny.TEST, 2)):
            rows, labels, wards = rows_of(count, seed=seed)
            rows = train if train is not None and split == "train" else rows
            columns = {
                column: [None if np.isnan(number) else float(number) for number in rows[:, place]]
                for place, column in enumerate(COLUMNS)
            }
            tiny.write_split(root / name / f"{split}.parquet", columns | {"label": labels, "ward": wards})
    return root


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that finds the data sets and no server."""
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(write(arranged.write(tmp_path / "data"))))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_of(impute: Impute, **changes: Any) -> dict[str, Any]:
    partition = {"scheme": "column", "column": "ward", "clients": [3]} | changes.pop("partition", {})
    return {"data": {"dataset": DATASETS[impute]}, "model": {"name": "mlp"}, "partition": partition, **changes}


def walked(folder: Path, *methods: str, impute: Impute = "median", **changes: Any) -> Walked:
    return walk_tiny(folder, {name: {} for name in methods}, **settings_of(impute, **changes))


def scaled(rows: Rows, wards: Sequence[str], impute: Impute, train: Rows | None = None) -> Tensor:
    """Fill and scale each row by what its ward's training rows hold, row by row with NumPy."""
    known, _, owners = rows_of(tiny.TRAIN, seed=1)
    known = (known if train is None else train).astype(np.float32).astype(float)
    made = np.zeros_like(rows)
    for row, ward in enumerate(wards):
        own = known[[place for place, owner in enumerate(owners) if owner == ward]]
        for feature in range(6):
            observed = own[~np.isnan(own[:, feature]), feature]
            if len(set(observed)) < 2:
                continue
            number = rows.astype(np.float32)[row, feature]
            fill = observed.mean() if impute == "mean" else np.median(observed)
            made[row, feature] = ((fill if np.isnan(number) else number) - observed.mean()) / observed.std()
    return torch.from_numpy(made).float()


def examples(done: Walked, client: int) -> Tensor:
    return examples_of(done.federation, PartitionInputs(done.data, done.partition), client).inputs


def close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("impute", ["mean", "median"])
def test_each_client_trains_on_numbers_scaled_by_its_own(place: Path, impute: Impute) -> None:
    done = walked(place, "fedavg", "centralised", impute=impute)
    rows, labels, wards = rows_of(tiny.TRAIN, seed=1)
    for client, ward in enumerate(WARDS):
        held = held_by(done.partition, client)
        assert {wards[row] for row in held} == {ward}
        assert close(examples(done, client), scaled(rows[held], [ward] * len(held), impute))
    # The pooled client has each row as the client has it that holds it.
    pooled = held_by(done.partition, POOLED)
    assert close(examples(done, POOLED), scaled(rows[pooled], [wards[row] for row in pooled], impute))
    assert [labels[row] for row in pooled] == load_data(done.data).train.labels[torch.from_numpy(pooled)].tolist()


def test_the_server_gets_validation_rows_as_their_clients_scale_them(place: Path) -> None:
    done = walked(place, "fedavg")
    federations = done.plan.federations
    start = done.made(federations.start(done.federation))
    server = server_of(done.federation, StartInputs(done.data, done.partition, start))
    held = validation_set(done.partition)
    rows, labels, wards = rows_of(tiny.TRAIN, seed=1)
    assert close(server.validation.inputs, scaled(rows[held], [wards[row] for row in held], "median"))
    assert server.validation.labels.tolist() == [labels[row] for row in held]


def test_every_test_row_is_scaled_by_its_own_client_for_every_network(place: Path) -> None:
    done = walked(place, "fedavg", "ensemble", "local_mean")
    rows, labels, wards = rows_of(tiny.TEST, seed=2)
    inputs, truth = scaled(rows, wards, "median"), torch.tensor(labels)

    def probabilities(method: str, network: int = 0) -> Tensor:
        model = done.federation.spec.load(read_tensors(done.aggregate(method), f"network_{network}.safetensors")).eval()
        with torch.no_grad():
            return model(inputs).double().softmax(1)

    def measures(predicted: Tensor) -> tuple[float, float]:
        right = predicted.argmax(1) == truth
        own = [right[[ward == one for one in wards]].double().mean() for ward in WARDS]
        return float(right.double().mean()), float(min(own))

    def reported(method: str) -> tuple[float, float]:
        return done.rows[method].accuracy, done.rows[method].worst_client_accuracy

    each = [probabilities("local_mean", client) for client in range(3)]
    assert reported("fedavg") == pytest.approx(measures(probabilities("fedavg")))
    assert reported("ensemble") == pytest.approx(measures(torch.stack(each).mean(0)))
    assert reported("local_mean") == pytest.approx(tuple(np.mean([measures(one) for one in each], 0)))
    # Every client's scale fits its own rows only: a third would be chance.
    assert done.rows["fedavg"].accuracy > 0.5


def test_a_client_sends_what_no_other_clients_numbers_can_change(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = walked(place / "one", "regmean")
    rows, _, wards = rows_of(tiny.TRAIN, seed=1)
    rows[[ward == "east" for ward in wards]] *= 7
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(write(place / "other", rows)))
    second = walked(place / "two", "regmean")

    def sent(done: Walked, client: int) -> dict[str, Tensor]:
        return {
            f"{statistic} {name}": tensor
            for statistic, artifact in done.client(client, "regmean").items()
            for name, tensor in read_tensors(artifact, "tensors.safetensors").items()
        }

    for client in (1, 2):
        one, two = sent(first, client), sent(second, client)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
    # East's own unit is no matter to east either, but for rounding.
    assert close(examples(first, 0), examples(second, 0))


def test_scaling_costs_no_bits(place: Path) -> None:
    plain = walk_tiny(place, {"fedavg": {}}, data={"dataset": "table"}, model={"name": "mlp"}).rows["fedavg"]
    own = walked(place, "fedavg").rows["fedavg"]
    assert (own.upload_bits, own.download_bits) == (plain.upload_bits, plain.download_bits)


def test_features_without_a_scale_are_named_on_the_page(place: Path) -> None:
    done = walked(place, "fedavg")
    assert unscaled_features(done.partition) == [[], ["e"], ["f"]]
    rows = make_rows(done.plan, done.outcome)
    text = Page(report_files(rows, make_page(shown=shown_of(done.plan, done.outcome)))["index.html"].decode()).text
    for part in (
        "0 (east)",
        "2 (west)",
        "The worst client’s accuracy is of each client’s own test examples: 20, 20, 20.",
        "Each client fills missing numbers and scales all by statistics of its own training examples, which stay",
        "A feature that a client never observed, or observed to be one and the same number, is 0 for it (north: e; "
        "west: f).",
    ):
        assert part in text, part


def test_what_the_pooled_client_trains_on_is_named_by_who_holds_what(place: Path) -> None:
    done = walked(place, "centralised")
    assert describe_view(done.partition, POOLED) == {"sizes": [40, 40, 40]}
    assert describe_view(done.partition, 1) == {}


def test_exchanged_labels_and_scales_of_their_own_go_together(place: Path) -> None:
    shift = {"kind": "labels", "strength": 0.7}
    plain, done = walked(place, "fedavg"), walked(place, "fedavg", "centralised", partition={"shift": shift})
    for client in range(3):
        assert torch.equal(examples(plain, client), examples(done, client))
    assert torch.equal(examples(done, POOLED), torch.cat([examples(done, client) for client in range(3)]))


def test_fewer_clients_than_wards_share_a_scale(place: Path) -> None:
    done = walked(place, "fedavg", partition={"clients": [1]})
    own, data = examples(done, 0), load_data(done.data)
    assert torch.allclose(own.mean(0)[:4], torch.zeros(4), atol=0.5)
    observed = ~data.train.inputs[torch.from_numpy(held_by(done.partition, 0))].isnan()
    for feature in range(6):
        seen = own[observed[:, feature], feature]
        assert seen.mean().item() == pytest.approx(0, abs=1e-4)
        assert seen.std(correction=0).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"partition": {"scheme": ["column", "iid"]}},
            r"partition\.scheme=iid: each client fills and scales the numbers of wards_mean by its own statistics, so "
            r"that each test example must be one client's; allowed: column with partition\.column=ward",
        ),
        ({"partition": {"scheme": "domain"}}, r"partition\.scheme=domain: each client fills and scales"),
        (
            {"privacy": {"epsilon": 8.0}},
            r"data\.dataset=wards_mean with privacy: each client scales its numbers by statistics of its own",
        ),
        (
            {"partition": {"column": "city"}},
            "partition.column='city': split 'train' of data set 'wards_mean' has no such column; allowed: ",
        ),
        ({"partition": {"clients": [4]}}, r"partition\.clients=4 exceeds the 3 values of partition\.column='ward'"),
        ({"partition": {"min_size": 40 + 1}}, "needs 123 training examples; there are 120"),
    ],
)
def test_what_own_scales_can_not_serve_is_refused_before_any_work(
    place: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(place, **settings_of("mean", **changes)))
    assert not (place / "artifacts").exists()


def test_numbers_that_clients_scale_are_not_selected_without_a_scale(place: Path) -> None:
    data = load_data(walked(place, "fedavg").data)
    with pytest.raises(ValueError, match="the numbers of 'wards_median' are scaled by each client; no scale was given"):
        select(data.train, data.spec)


@pytest.mark.skipif(
    not (REAL / "heart_disease").is_dir(), reason="the heart disease data are not below FEDFISHER_DATA_DIR"
)
def test_real_hospitals_are_clients_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(REAL))
    monkeypatch.chdir(tmp_path)
    chosen = {"data": {"dataset": "heart_disease"}, "model": {"name": "mlp"}}
    split = {"scheme": "column", "column": "client", "clients": [4]}
    done = walk_tiny(tmp_path, {"fedavg": {}, "ensemble": {}}, partition=split, train={"epochs": 10}, **chosen)
    assert unscaled_features(done.partition) == [[], ["ca"], ["chol"], ["ca"]]
    assert [len(held_by(done.partition, client)) for client in range(4)] == [227, 220, 92, 150]
    for client in range(4):
        assert examples(done, client).isfinite().all()
    # To call every patient ill, or none, is right for fewer.
    assert {name: row.accuracy for name, row in done.rows.items() if row.accuracy < 0.7} == {}
