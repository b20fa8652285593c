"""A whole tiny benchmark, without orchestration."""

import dataclasses
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.data.sampling import ALL
from fedfisher_core.data.specs import datasets
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.engine.performing import divergence, execute
from fedfisher_core.engine.store import open_store, read_tensors
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.decoding import DecodeData
from fedfisher_core.federation.federation import POOLED
from fedfisher_core.federation.partition import class_names, held_by, label_counts, validation_set
from fedfisher_core.federation.statistics import ComputeStatistic
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.settings import fishers
from tests import tiny
from tests.walked import walk_tiny


def run(folder: Path, methods: Mapping[str, Mapping[str, Any]], **changes: Any) -> dict[str, Row]:
    return walk_tiny(folder, methods, **changes).rows


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
    assert sorted(key.partition("/")[0] for key in new) == ["aggregates", "measures"]
    assert {key: time for key, time in written(workplace).items() if key in before} == before


def test_the_same_seed_gives_the_same_bits_in_another_store(workplace: Path) -> None:
    one = run(workplace / "one", {"fedavg": {}, "ensemble": {}})
    two = run(workplace / "two", {"fedavg": {}, "ensemble": {}})
    assert {label: (row.accuracy, row.loss, row.artifact) for label, row in one.items()} == {
        label: (row.accuracy, row.loss, row.artifact) for label, row in two.items()
    }
    assert run(workplace / "two", {"fedavg": {}}, seeds=[1])["fedavg"].loss != one["fedavg"].loss


@pytest.mark.drawn(6)
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


ALL_FISHERS = {"fisher_merge": {}, "fedfisher_kfac": {}, "fedfisher_full": {}}


def statistics(folder: Path) -> dict[str, set[str]]:
    """Digest of every stored statistic's tensors, by its name."""
    found: dict[str, set[str]] = {}
    for path in (folder / "artifacts/statistics").iterdir():
        manifest = json.loads((path / "manifest.json").read_text())
        content = hashlib.sha256((path / "tensors.safetensors").read_bytes()).hexdigest()
        found.setdefault(manifest["settings"]["statistic"], set()).add(content)
    return found


@pytest.mark.parametrize("estimator", ["exact", "monte_carlo"])
def test_fishers_do_not_depend_on_which_others_shared_their_pass(workplace: Path, estimator: str) -> None:
    run(workplace / "together", ALL_FISHERS, fisher={"estimator": estimator})
    for label in ALL_FISHERS:
        run(workplace / "one_by_one", {label: {}}, fisher={"estimator": estimator})
    run(workplace / "separate", ALL_FISHERS, fisher={"estimator": estimator, "passes": "separate"})
    together = statistics(workplace / "together")
    assert {name: len(digests) for name, digests in together.items()} == {
        "diagonal_fisher": 3,
        "kfac": 3,
        "dense_fisher": 3,
    }
    assert statistics(workplace / "one_by_one") == together
    assert statistics(workplace / "separate") == together


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "fisher",
    [
        {"estimator": "truncated"},
        {"estimator": "empirical"},
        {"estimator": "monte_carlo"},
        {"backend": "nngeometry"},
        {"memory_mib": 64},
    ],
)
def test_another_fisher_is_computed_anew_by_the_same_clients(workplace: Path, fisher: dict[str, Any]) -> None:
    run(workplace, {"fisher_merge": {}, "regmean": {}})
    before = written(workplace)
    run(workplace, {"fisher_merge": {}, "regmean": {}}, fisher=fisher)
    new = [key.partition("/")[0] for key in set(written(workplace)) - set(before)]
    # The Gram matrices are no Fishers, and a Fisher of the same bits makes the same aggregate.
    assert new.count("statistics") == 3
    assert set(new) <= {"statistics", "payloads", "aggregates", "measures"}
    assert new.count("payloads") <= 3
    assert new.count("aggregates") <= 1


def test_fishers_of_many_classes_are_truncated_by_default(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = run(workplace / "few", {"fisher_merge": {}, "fedavg": {}})
    assert (few["fisher_merge"].fisher, few["fedavg"].fisher) == ("exact", None)
    monkeypatch.setattr(fishers, "FEW_CLASSES", 2)
    many = run(workplace / "many", {"fisher_merge": {}})
    named = run(workplace / "named", {"fisher_merge": {}}, fisher={"estimator": "truncated"})
    estimate = "truncated (0.01, 16 at most)"
    assert many["fisher_merge"].fisher == named["fisher_merge"].fisher == estimate
    assert statistics(workplace / "many") == statistics(workplace / "named") != statistics(workplace / "few")


def test_a_monte_carlo_fisher_is_drawn_from_the_seed(workplace: Path) -> None:
    chosen = {"estimator": "monte_carlo", "samples": 2}
    run(workplace / "one", {"fisher_merge": {}}, fisher=chosen)
    run(workplace / "two", {"fisher_merge": {}}, fisher=chosen)
    assert statistics(workplace / "one") == statistics(workplace / "two")


def test_rows_say_how_much_fishers_scatter_where_they_may(workplace: Path) -> None:
    methods = {"fedavg": {}, "fisher_merge": {}, "fedfisher_kfac": {}}
    assert {row.fisher_scatter for row in run(workplace, methods).values()} == {None}
    once = run(workplace, methods, fisher={"estimator": "monte_carlo"})
    often = run(workplace, methods, fisher={"estimator": "monte_carlo", "samples": 4})
    assert once["fedavg"].fisher_scatter is None
    assert once["fisher_merge"].fisher_scatter == once["fedfisher_kfac"].fisher_scatter > 0
    assert often["fisher_merge"].fisher_scatter == pytest.approx(once["fisher_merge"].fisher_scatter / 2)
    (row,) = run(workplace, {"fisher_merge": {}}, fisher={"estimator": "truncated", "directions": 1}).values()
    assert row.fisher == "truncated (0.01, 1 at most)"
    assert 0 < row.fisher_scatter <= once["fisher_merge"].fisher_scatter


def test_other_constants_of_normalisation_make_other_data(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded() -> str:
        job = DecodeData("tiny", None, ALL, name="decode tiny")
        return execute([job], open_store(workplace / "artifacts")).artifacts[job.name].digest

    first = decoded()
    shifted = dataclasses.replace(tiny.TINY_DATA, mean=(0.5,))
    monkeypatch.setattr(datasets, "get", lambda name: shifted)
    assert decoded() != first


def test_held_out_images_take_the_place_of_the_test_images(workplace: Path, tiny_folder: Path) -> None:
    rows = [run(workplace / "one", {"fedavg": {}}, data={"held_out": 30})["fedavg"]]
    other = workplace / "other"
    shutil.copytree(tiny_folder, other)
    # Other test images, such as these, change nothing.
    shutil.copy(other / "tiny/train.parquet", other / "tiny/test.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(other))
        rows += [
            run(workplace / "two", {"fedavg": {}}, data={"held_out": 30})["fedavg"],
            run(workplace / "three", {"fedavg": {}})["fedavg"],
        ]
    held_out, again, tested = rows
    assert held_out.held_out == 30
    assert (held_out.accuracy, held_out.loss) == (again.accuracy, again.loss)
    assert tested.held_out is None
    assert tested.loss != held_out.loss


def test_a_part_of_the_training_images_is_split(workplace: Path) -> None:
    walked = walk_tiny(workplace, {"fedavg": {}}, data={"examples": 70})
    partition = walked.plan.federations.partition(walked.federation)
    assert sum(map(sum, label_counts(walked.made(partition)))) == 70
    assert walked.rows["fedavg"].train_size == 70


def test_images_of_several_sizes_need_a_setting(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(workplace / "mixed"))
    for seed, split in enumerate(("train", "test")):
        pixels, labels = tiny.images(70, seed=seed)
        pixels[3] = pixels[3][:, :-1]
        columns = {"image": list(map(tiny.png, pixels)), "label": labels}
        tiny.write_split(workplace / f"mixed/tiny/{split}.parquet", columns)
    with pytest.raises(
        InputError, match=r"'tiny' has images of 2 sizes: 6x6 \(138\), 6x5 \(2\); allowed: .*image_sizes=any"
    ):
        walk_tiny(workplace, {"fedavg": {}})
    assert run(workplace, {"fedavg": {}}, data={"image_sizes": "any"})["fedavg"].accuracy > 0


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


def test_a_diverged_client_is_named_and_no_network_of_it_is_stored(workplace: Path) -> None:
    plan = make_plan(tiny.tiny_settings(workplace, train={"learning_rate": 1e30}))
    (federation,) = plan.federations.all
    store, job = open_store(plan.settings.run.store), plan.federations.training(federation, 1)
    artifact = execute([job], store).artifacts[job.name]
    error = divergence([artifact])
    assert re.match(r"client 1 of tiny tiny dirichlet_client alpha=0\.5 clients=3 seed=0: training loss is", str(error))
    with pytest.raises(DivergedClientError, match=r"client \d of tiny tiny dirichlet_client"):
        execute(plan.jobs, store)
    assert not list(workplace.glob("artifacts/clients/*/*.safetensors"))


@pytest.fixture
def one_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the training of the second client fail."""
    train = TrainClient.train

    def failing(self: TrainClient, *given: Any) -> Any:
        if self.client == 1:
            raise DivergedClientError("the loss is not finite")
        return train(self, *given)

    monkeypatch.setattr(TrainClient, "train", failing)


LOST = "client 1 of tiny tiny dirichlet_client alpha=0.5 clients=3 seed=0: the loss is not finite"
SECURELY = {"method": "fedavg", "wire": {"budget": "none", "server_view": "secure_sum"}}


@pytest.mark.parametrize("methods", [{"fisher_merge": {}}, {"securely": SECURELY}])
def test_without_leave_to_go_on_a_diverged_client_ends_the_work(
    one_diverges: None, workplace: Path, methods: dict[str, Any]
) -> None:
    with pytest.raises(DivergedClientError) as caught:
        walk_tiny(workplace, methods)
    assert str(caught.value) == (
        "client 1 of tiny tiny dirichlet_client alpha=0.5 clients=3 seed=0: the loss is not finite; "
        "run.min_clients asks for all clients, 2 are left"
    )
    with pytest.raises(DivergedClientError, match=r"run\.min_clients asks for 3 clients, 2 are left"):
        walk_tiny(workplace, methods, run={"min_clients": 3})


def test_the_others_go_on_without_a_diverged_client(one_diverges: None, workplace: Path) -> None:
    methods = {"fedavg": {}, "fisher_merge": {}, "centralised": {}, "securely": SECURELY}
    done = walk_tiny(workplace, methods, run={"min_clients": 2}, wire={"budget": "none"})
    federations, federation = done.plan.federations, done.federation
    for client in (0, 1, 2):
        jobs = [
            federations.training(federation, client),
            *federations.statistics_jobs(federation, client).values(),
            *(federations.sending(federation, client, federations.methods[one]) for one in ("fedavg", "fisher_merge")),
        ]
        assert {done.divergence(job) for job in jobs} == {LOST if client == 1 else None}
    rows = done.rows
    assert {label: row.failed_clients for label, row in rows.items()} == {
        "fedavg": [1],
        "fisher_merge": [1],
        "centralised": [],
        "securely": [1],
    }
    # What two clients sent; the global model goes to all three.
    size = sum(parameter.numel() for parameter in tiny.TINY.skeleton().parameters())
    assert rows["fedavg"].upload_bits_formula == 2 * 32 * size
    assert rows["fedavg"].download_bits == 3 * (64 + 256 + 32 * size)
    assert rows["securely"].loss == pytest.approx(rows["fedavg"].loss, rel=1e-4)


def test_a_client_that_lost_a_statistic_is_missing_in_all_methods(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = ComputeStatistic._compute

    def one_is_not_finite(self: ComputeStatistic, local: Any, group: Any) -> Any:
        if self.client == 2:
            raise DivergedClientError("client 2: statistic 'gram' is not finite")
        return compute(self, local, group)

    monkeypatch.setattr(ComputeStatistic, "_compute", one_is_not_finite)
    rows = walk_tiny(workplace, {"fedavg": {}, "regmean": {}}, run={"min_clients": 2}).rows
    assert {label: row.failed_clients for label, row in rows.items()} == {"fedavg": [2], "regmean": [2]}
    size = sum(parameter.numel() for parameter in tiny.TINY.skeleton().parameters())
    assert rows["fedavg"].upload_bits_formula == 2 * 32 * size


def test_a_client_that_diverged_is_not_trained_again(
    one_diverges: None, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(workplace, {"fedavg": {}}, run={"min_clients": 2})["fedavg"]
    before = written(workplace)
    monkeypatch.setattr(TrainClient, "train", None)
    again = run(workplace, {"fedavg": {}}, run={"min_clients": 2})["fedavg"]
    assert (again.failed_clients, again.artifact) == ([1], first.artifact)
    assert written(workplace) == before


def test_a_diverged_pooled_client_ends_the_work_whatever_is_left(workplace: Path) -> None:
    with pytest.raises(DivergedClientError, match=r"^pooled client of tiny tiny"):
        walk_tiny(workplace, {"centralised": {}}, train={"learning_rate": 1e30}, run={"min_clients": 1})


def test_a_partition_is_read_as_it_was_split(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}})
    labels = load_data(done.data).train.labels
    clients = [held_by(done.partition, client) for client in range(3)]
    validation = validation_set(done.partition)
    assert sorted(int(one) for held in clients for one in held) == list(range(tiny.TRAIN))
    assert sorted(held_by(done.partition, POOLED)) == list(range(tiny.TRAIN))
    counted = [torch.bincount(labels[torch.from_numpy(held)], minlength=tiny.CLASSES).tolist() for held in clients]
    assert label_counts(done.partition) == counted
    assert len(set(validation.tolist())) == 20
    assert class_names(done.partition) == tuple(tiny.CLASS_NAMES)


def test_bits_are_those_of_the_payloads(workplace: Path) -> None:
    methods = {"fedavg": {}, "fisher_merge": {}, "centralised": {}, "ensemble": {}}
    rows = run(workplace, methods, wire={"budget": "none"})
    size = sum(parameter.numel() for parameter in tiny.TINY.skeleton().parameters())
    assert rows["fedavg"].upload_bits_formula == 3 * 32 * size
    assert rows["fisher_merge"].upload_bits_formula == 3 * 64 * size
    for label in ("fedavg", "fisher_merge"):
        assert 0 < rows[label].upload_bits - rows[label].upload_bits_formula <= 3 * 8 * 64
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
    done = walk_tiny(workplace, {"fedavg": {}})
    artifact = done.aggregate("fedavg")
    parameters = read_tensors(artifact, "network_0.safetensors")
    test = tiny.TINY_DATA
    dataset = load_data(done.data)
    inputs = (dataset.test.inputs.float() / 255 - test.mean[0]) / test.std[0]
    with torch.no_grad():
        predicted = done.federation.spec.load(parameters)(inputs).argmax(1)
    right = float((predicted == dataset.test.labels).double().mean())
    assert done.measures("fedavg").accuracy == pytest.approx(right)
