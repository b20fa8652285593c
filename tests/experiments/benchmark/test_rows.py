import csv
import json
import math
from dataclasses import fields
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Role, Row, is_local_mean, networks_of, role_of, sorted_rows
from fedfisher_core.methods.method import methods
from fedfisher_core.reporting.rows import read_rows, write_rows
from tests.experiments.benchmark.samples import make_row


def sample_rows() -> list[Row]:
    return [
        make_row("kfac", seed=1, client_statistics_seconds={"kfac": 0.25}, method_settings={"steps": 3}),
        make_row("kfac", seed=0, accuracy=0.1 + 0.2, failed_clients=[1, 3]),
        make_row("fedavg", seed=0, alpha=None, partition="iid"),
        make_row("ensemble", seed=0, reference=True),
        make_row("fedavg", seed=0, method_settings={"a": {"b": [1, "ü"]}}),
    ]


def test_rows_survive_the_json_file(tmp_path: Path) -> None:
    path, _ = write_rows(sorted_rows(sample_rows()), tmp_path)
    read = read_rows(path, Row)
    assert len(read) == 5
    assert all(row in read for row in sample_rows())
    assert [(row.method, row.alpha, row.seed) for row in read] == [
        ("fedavg", 0.1, 0),
        ("kfac", 0.1, 0),
        ("kfac", 0.1, 1),
        ("ensemble", 0.1, 0),
        ("fedavg", None, 0),
    ]


def test_the_files_do_not_depend_on_the_order_of_the_rows(tmp_path: Path) -> None:
    first = write_rows(sorted_rows(sample_rows()), tmp_path / "a")
    second = write_rows(sorted_rows(sample_rows()[::-1]), tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.read_bytes().endswith(b"\n")
        assert not one.read_bytes().endswith(b"\n\n")


def test_only_the_results_remain_in_the_folder(tmp_path: Path) -> None:
    write_rows(sorted_rows(sample_rows()), tmp_path)
    write_rows(sorted_rows(sample_rows()[:2]), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.csv", "results.json"]
    assert len(read_rows(tmp_path / "results.json", Row)) == 2


def test_csv_holds_every_field(tmp_path: Path) -> None:
    _, path = write_rows(sorted_rows(sample_rows()), tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    assert list(records[0]) == [field.name for field in fields(Row)]
    assert json.loads(records[0]["method_settings"]) == {"a": {"b": [1, "ü"]}}
    assert json.loads(records[1]["failed_clients"]) == [1, 3]
    assert float(records[1]["accuracy"]) == 0.1 + 0.2
    assert records[-1]["alpha"] == ""
    assert records[-2]["reference"] == "true"


def test_json_keys_are_the_contract(tmp_path: Path) -> None:
    path, _ = write_rows(sorted_rows([make_row()]), tmp_path)
    (record,) = json.loads(path.read_text())
    assert ", ".join(record) == (
        "benchmark, dataset, model, partition, alpha, num_clients, num_rounds, seed, method, "
        "method_settings, uploads, accuracy, loss, worst_client_accuracy, worst_class_accuracy, client_train_seconds, "
        "client_statistics_seconds, server_seconds, upload_bits, upload_bits_formula, download_bits, "
        "peak_memory_bytes, uses_validation, reference, failed_clients, artifact, client_encode_seconds, start_sent, "
        "epsilon, audited_epsilon, track, training, num_networks, train_size, held_out, shift, "
        "shift_strength, shift_classes, objective, server_optimiser, cohort, curve, unseen_clients, barrier_accuracy, "
        "barrier_loss, unseen_accuracy, unseen_loss, personalised_accuracy, personalised_loss, fisher, "
        "fisher_scatter, least_trace, client_processor_seconds, server_processor_seconds, secure_rounding, "
        "secure_clipped, canary_times, canary_exposure, canary_client_exposure"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_measure_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="loss of method 'kfac', seed 4"):
        make_row("kfac", seed=4, loss=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"acuracy": 0.5},
            "row 1 has the unknown field 'acuracy'; did you mean 'accuracy'\\? allowed: accuracy, alpha",
        ),
        ({"accuracy": None}, "row 1, accuracy=None: Input should be a valid number"),
        ({"num_clients": "5"}, "row 1, num_clients='5': Input should be a valid integer"),
        ({"uploads": {"weights": 3}}, "row 1, uploads.weights=3: Input should be a valid string"),
        ({"accuracy": 61.2}, "row 1: accuracy of method 'fedavg', seed 0 is 61.2; allowed: from 0 to 1"),
        ({"unseen_accuracy": -0.1}, "row 1: unseen_accuracy of method 'fedavg', seed 0 is -0.1; allowed: from 0 to 1"),
        ({"upload_bits": -8}, "row 1: upload_bits of method 'fedavg', seed 0 is -8; allowed: 0 or more"),
        ({"server_seconds": -0.5}, "row 1: server_seconds of method 'fedavg', seed 0 is -0.5; allowed: 0 or more"),
        ({"accuracy": math.nan}, "row 1: accuracy of method 'fedavg', seed 0 is nan; it must be finite"),
    ],
)
def test_a_file_with_other_fields_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path, _ = write_rows(sorted_rows([make_row()]), tmp_path)
    records = json.loads(path.read_text())
    records[0] |= change
    path.write_text(json.dumps(records))
    with pytest.raises(InputError, match=message):
        read_rows(path, Row)


def test_a_file_that_lacks_a_field_is_refused(tmp_path: Path) -> None:
    path, _ = write_rows(sorted_rows([make_row()]), tmp_path)
    records = json.loads(path.read_text())
    del records[0]["artifact"]
    path.write_text(json.dumps(records))
    lacks = (
        f"{path} is no list of result rows: row 1 lacks the field 'artifact'; allowed: rows with the fields benchmark, "
    )
    with pytest.raises(InputError, match=lacks) as caught:
        read_rows(path, Row)
    assert "\n" not in str(caught.value)
    assert "artifact" in str(caught.value).partition("allowed")[2]
    assert "epsilon" not in str(caught.value)


def test_missing_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results at"):
        read_rows(tmp_path / "results.json", Row)
    for text in ("[{", "{}", "[1]"):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(InputError, match="no list of result rows"):
            read_rows(tmp_path / "results.json", Row)


def test_rows_that_were_written_before_encoding_was_counted_are_read(tmp_path: Path) -> None:
    path, _ = write_rows(sorted_rows([make_row(client_encode_seconds=0.5, start_sent="seed")]), tmp_path)
    records = json.loads(path.read_text())
    for name in ("client_encode_seconds", "start_sent"):
        del records[0][name]
    path.write_text(json.dumps(records))
    assert read_rows(path, Row) == [make_row()]


def test_rows_that_were_written_before_processors_were_counted_are_read(tmp_path: Path) -> None:
    path, _ = write_rows(sorted_rows([make_row(client_processor_seconds=0.5, server_processor_seconds=0.25)]), tmp_path)
    records = json.loads(path.read_text())
    assert (records[0].pop("client_processor_seconds"), records[0].pop("server_processor_seconds")) == (0.5, 0.25)
    path.write_text(json.dumps(records))
    assert read_rows(path, Row) == [make_row()]
    with pytest.raises(InputError, match="server_processor_seconds of method 'fedavg', seed 0 is -1; allowed: 0 or"):
        make_row(server_processor_seconds=-1)


def test_what_a_client_spends_is_training_statistics_and_encoding() -> None:
    row = make_row(client_train_seconds=10.0, client_statistics_seconds={"kfac": 2.0, "gram": 0.5})
    assert row.client_seconds == 12.5
    assert make_row(client_train_seconds=10.0, client_encode_seconds=0.25).client_seconds == 10.25


def test_a_file_from_before_shifts_is_read(tmp_path: Path) -> None:
    path, _ = write_rows(sorted_rows([make_row()]), tmp_path)
    (record,) = json.loads(path.read_text())
    path.write_text(json.dumps([{key: value for key, value in record.items() if not key.startswith("shift")}]))
    (row,) = read_rows(path, Row)
    assert (row, row.shift_name) == (make_row(), None)
    assert make_row(shift="noise", shift_strength=0.25).shift_name == "noise 0.25"


REFERENCES = {"local_mean", "centralised"}


def test_every_method_of_the_project_has_its_role() -> None:
    rows = {name: make_row(name, reference=not methods.get(name).ranked) for name in methods}
    found = {name: role_of(row) for name, row in rows.items()}
    assert all((role is Role.ONE_NETWORK) == methods.get(name).ranked for name, role in found.items())
    ensembles = {name for name in found if "ensemble" in name} | {"fafi"}
    assert ensembles == {name for name, role in found.items() if role is Role.ENSEMBLE}
    assert {name for name, role in found.items() if role is Role.REFERENCE} >= REFERENCES


def test_a_label_does_not_hide_the_method() -> None:
    row = make_row("all of them", reference=True, method_settings={"method": "ensemble_logits"})
    assert role_of(row) is Role.ENSEMBLE
    assert is_local_mean(make_row("mine", reference=True, method_settings={"method": "local_mean"}))
    assert role_of(make_row("ensemble", method_settings={"method": "fedavg"})) is Role.ONE_NETWORK


def test_networks_that_were_counted_tell_an_ensemble() -> None:
    several = make_row("fedbens_mixture", reference=True, num_networks=3)
    assert (role_of(several), networks_of(several)) == (Role.ENSEMBLE, 3)
    alone = make_row("local_mean", reference=True, num_networks=5)
    assert (role_of(alone), networks_of(alone)) == (Role.REFERENCE, 1)


@pytest.mark.parametrize(
    ("method", "reference", "failed", "networks"),
    [("ensemble", True, [], 5), ("ensemble", True, [3], 4), ("local_mean", True, [], 1), ("fedavg", False, [], 1)],
)
def test_an_ensemble_predicts_with_the_networks_of_all_clients_that_are_left(
    method: str, reference: bool, failed: list[int], networks: int
) -> None:
    assert networks_of(make_row(method, reference=reference, failed_clients=failed)) == networks
