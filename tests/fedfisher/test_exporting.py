"""The network of a finished benchmark, in files that torch alone loads."""

import json
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from onnxruntime import InferenceSession
from safetensors.torch import load_file, save_file

from fedfisher.client import digest_of
from fedfisher.exporting import GlobalNetwork, choose_row, export
from fedfisher_core.data.importing import import_table
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import select
from fedfisher_core.engine import installed
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.failures import FailedJob, failed_json
from fedfisher_core.engine.store import Store, open_store
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.federation.data import load_data
from fedfisher_core.reporting.rows import FAILED, write_rows
from tests import arranged, tiny
from tests.fedfisher.benchmarked import Benchmarked, benchmarked

LOADING = """
import runpy, sys
from pathlib import Path
loaded = runpy.run_path(sys.argv[1])
import torch
from safetensors.torch import load_file, save_file
given = load_file(sys.argv[2])
inputs = given["inputs"] if "inputs" in given else given["examples"]
print(*loaded["predict"](given["examples"]), sep="\\n")
save_file({"outputs": loaded["network"](inputs).detach()}, sys.argv[3])
assert not [name for name in sys.modules if name.startswith("fedfisher")]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Iterator[tuple[Benchmarked, Path]]:
    """A benchmark of two seeds, and its report."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        made = benchmarked(
            folder, {"fedavg": {}, "pfnm": {}, "ensemble": {}, "fafi": {}, "fens": {"rounds": 1}}, seeds=[0, 1]
        )
        report = folder / "results/tiny"
        write_rows(make_rows(made.done.plan, made.done.outcome), report)
        (report / FAILED).write_bytes(
            failed_json(
                [FailedJob("aggregate dense of tiny", "RuntimeError: no room\nat all", ("evaluate dense of tiny",))]
            )
        )
        yield made, report
        torch.set_num_threads(threads)


def stored(report: Path) -> Store:
    return open_store(report.parents[1] / "artifacts")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("method", ["fedavg", "pfnm"])
def test_a_script_loads_the_network_with_torch_alone(
    run: tuple[Benchmarked, Path], tmp_path: Path, method: str
) -> None:
    done, report = run
    row = choose_row(report, method=method, settings={"seed": 1})
    export(row, stored(report), tmp_path / "out")
    about = json.loads((tmp_path / "out/network.json").read_text())
    test = done.test
    pixels = test.inputs * tiny.TINY_DATA.std[0] + tiny.TINY_DATA.mean[0]
    save_file({"examples": pixels, "inputs": test.inputs}, tmp_path / "examples")
    ended = subprocess.run(
        [sys.executable, "-c", LOADING, tmp_path / "out/load.py", tmp_path / "examples", tmp_path / "found"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    (place,) = (one for one in done.done.plan.federations.all if one.setting.seed == 1)
    model = done.model(method, place)
    assert model.spec is not None
    expected = model.spec.load(model.networks[0]).eval()(test.inputs)
    assert torch.equal(load_file(tmp_path / "found")["outputs"], expected)
    named = ended.stdout.split("\n")[: len(test)]
    assert named == [about["class_names"][label] for label in expected.argmax(1).tolist()]
    right = sum(name == about["class_names"][label] for name, label in zip(named, test.labels.tolist(), strict=True))
    assert right / len(test) == about["accuracy"] == row.accuracy
    weights = load_file(tmp_path / "out/weights.safetensors")
    assert about["weights_digest"] == digest_of(weights) == digest_of(model.networks[0])
    assert (about["class_names"], about["normalisation"]) == (tiny.CLASS_NAMES, {"mean": [0.4], "std": [0.3]})
    assert (about["network"], about["seed"], about["widths"]) == ("tiny", 1, list(model.spec.widths))


def test_no_file_names_a_folder_of_this_machine(run: tuple[Benchmarked, Path], tmp_path: Path) -> None:
    _, report = run
    export(choose_row(report, method="fedavg", settings={"seed": 1}), stored(report), tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "out/network.pt2") as program:
        told = b"".join(program.read(name) for name in program.namelist())
    for path in (Path(tiny.__file__).parent, Path(torch.__file__).parent):
        assert str(path).encode() not in told


def test_onnx_runtime_predicts_what_the_row_says(run: tuple[Benchmarked, Path], tmp_path: Path) -> None:
    done, report = run
    # Its layers are wider than those that the clients trained.
    row = choose_row(report, method="pfnm", settings={"seed": 1})
    export(row, stored(report), tmp_path / "out", onnx=True)
    session = InferenceSession(tmp_path / "out/network.onnx", providers=["CPUExecutionProvider"])
    (outputs,) = session.run(None, {"examples": done.test.inputs.numpy()})
    right = outputs.argmax(1) == done.test.labels.numpy()
    assert right.sum() / len(right) == row.accuracy


def test_onnx_without_its_packages_is_refused_and_writes_nothing(
    run: tuple[Benchmarked, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "_is_installed", lambda name: name != "onnxscript")
    row = choose_row(run[1], method="fedavg", settings={"seed": 0})
    with pytest.raises(InputError, match=r"^--onnx needs onnxscript, not installed; allowed: .*'fedfisher\[onnx\]'$"):
        export(row, stored(run[1]), tmp_path / "out", onnx=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("dataset", "model"), [("texts", "small_gru"), ("table", "mlp"), ("banners", "tiny")])
def test_numbers_and_tokens_are_predicted_as_they_were_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, model: str
) -> None:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(arranged.write(tmp_path / "data")))
    done = benchmarked(tmp_path, {"fedavg": {}}, data={"dataset": dataset}, model={"name": model, "bias": True}).done
    export(done.rows["fedavg"], done.store, tmp_path / "out")
    data = load_data(done.data)
    inputs = data.test.inputs
    examples = inputs.float() / 255 if isinstance(data.spec.inputs, Images) else inputs
    named = runpy.run_path(str(tmp_path / "out/load.py"))["predict"](examples)
    right = sum(one == data.class_names[label] for one, label in zip(named, data.test.labels.tolist(), strict=True))
    assert right / len(named) == done.rows["fedavg"].accuracy


def test_large_numbers_stay_distinct_in_what_is_exported(workplace: Path) -> None:
    rows = [f"{1_700_000_000 + 40 * number + 3 * (number % 2)},{'ab'[number % 2]}" for number in range(200)]
    Path("times.csv").write_text("\n".join(["time,label", *rows]) + "\n")
    import_table(Path("times.csv"), Path("times.parquet"), label="label", test=0.25)
    done = benchmarked(
        workplace,
        {"fedavg": {}},
        data={"dataset": "times.parquet", "validation_size": 0},
        partition={"scheme": "iid"},
        model={"name": "linear", "bias": True},
    ).done
    export(done.rows["fedavg"], done.store, Path("out"))
    inputs = load_data(done.data).test.inputs
    found = runpy.run_path("out/load.py")
    scaled = (inputs - found["mean"]) / found["std"]
    assert torch.allclose(scaled[:, 0].diff(), inputs[:, 0].diff() / found["std"].item(), rtol=1e-9)
    raw, _ = GlobalNetwork.of(done.rows["fedavg"], done.store).of_raw_examples()
    own = raw.network(select(load_data(done.data).test, load_data(done.data).spec).inputs)
    assert torch.allclose(raw(inputs), own, atol=1e-5)


def test_a_place_that_can_not_be_written_is_refused(run: tuple[Benchmarked, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    row = choose_row(run[1], method="fedavg", settings={"seed": 0})
    with pytest.raises(InputError, match=r"file/out can't be written: "):
        export(row, stored(run[1]), tmp_path / "file/out")


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedavg", {}, r"^'tiny' has 2 rows of method 'fedavg'; allowed: --setting with one seed of \[0, 1\]$"),
        ("fedavg", {"seed": 7}, r"^'tiny' has no row of method 'fedavg', seed=7; allowed: one seed of \[0, 1\]$"),
        ("fedprox", {}, "^'tiny' has no row of method 'fedprox'; .*allowed: ensemble, fafi, fedavg, fens, pfnm$"),
        ("fedavg", {"sed": 1}, "^--setting 'sed' is none of a row; did you mean 'seed'"),
        ("dense", {}, "^'tiny' has no row of method 'dense': aggregate dense of tiny failed: RuntimeError: no room"),
    ],
)
def test_a_row_that_is_missing_or_failed_is_refused(
    run: tuple[Benchmarked, Path], method: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        choose_row(run[1], method=method, settings=settings)
    assert "\n" not in str(caught.value)


def test_several_networks_another_store_and_a_folder_that_is_there_are_refused(
    run: tuple[Benchmarked, Path], tmp_path: Path
) -> None:
    report = run[1]
    one, several = (choose_row(report, method=name, settings={"seed": 0}) for name in ("fedavg", "ensemble"))
    with pytest.raises(InputError, match=r"^method 'ensemble' keeps 3 networks; allowed: methods that leave one"):
        export(several, stored(report), tmp_path / "out")
    with pytest.raises(InputError, match=r"has no aggregates/.* of benchmark 'tiny'; allowed: to run it again"):
        export(one, open_store(tmp_path / "elsewhere"), tmp_path / "out")
    for method in ("fafi", "fens"):
        combined = choose_row(report, method=method, settings={"seed": 0})
        with pytest.raises(
            InputError, match=f"^method '{method}' keeps 3 networks and a combiner; allowed: methods that"
        ):
            export(combined, stored(report), tmp_path / "out")
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="out is there; allowed: a new folder"):
        export(one, stored(report), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_reports_of_other_experiments_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('[{"experiment": "two_layer"}]')
    with pytest.raises(InputError, match="is of the experiment 'two_layer'; allowed: benchmarks"):
        choose_row(tmp_path, method="fedavg", settings={})
