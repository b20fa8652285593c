"""The commands that merge networks of one's own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import fedfisher
from fedfisher_core.data.layouts import Images
from fedfisher_core.federation.global_models import read_model
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.reporting.rows import write_rows
from flows import cli
from flows.cli import main
from tests.experiments.benchmark.samples import make_row
from tests.fedfisher import own
from tests.walked import walk_tiny


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the weights and the data of two clients of `own.network`."""
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        save_file(own.network(number).state_dict(), f"weights{number}.safetensors")
        write_data(Path(f"data{number}"), *own.examples(10 + number, number))
    return tmp_path


def write_data(folder: Path, inputs: Tensor, labels: Tensor) -> None:
    folder.mkdir()
    np.save(folder / "inputs.npy", inputs.numpy())
    np.save(folder / "labels.npy", labels.numpy())


BUILDER = "tests.fedfisher.own:network"


def statistics(number: int, *more: str) -> list[str]:
    given = ["statistics", f"weights{number}.safetensors", "--network", BUILDER, "--data", f"data{number}"]
    return [*given, "--of", "kfac,gram", "-o", f"client{number}.safetensors", *more]


def merging(*more: str) -> list[str]:
    return ["merge", "client0.safetensors", "client1.safetensors", "-o", "merged.safetensors", *more]


def prepared() -> None:
    for number in range(2):
        main(statistics(number))


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters())


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        (["--method", "fedfisher_kfac"], {"method": "fedfisher_kfac"}),
        (["--method", "fedfisher_kfac", "--budget", "fedavg"], {"method": "fedfisher_kfac", "budget": "fedavg"}),
        (
            ["--method", "regmean", "--set", "off_diagonal=[0.5,0.9]", "--validation", "data1"],
            {"method": "regmean", "off_diagonal": [0.5, 0.9], "validation": own.examples(11, 1)},
        ),
        (
            ["--method", "ties", "--initial", "weights1.safetensors"],
            {"method": "ties", "initial": own.network(1)},
        ),
    ],
)
def test_commands_make_what_the_package_makes(folder: Path, asked: list[str], settings: dict[str, Any]) -> None:
    prepared()
    main(merging("--network", BUILDER, *asked))
    expected = weights_of(fedfisher.merge(own.clients(2), **settings))
    found = load_file("merged.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    with safe_open("merged.safetensors", "pt") as file:
        said = json.loads(file.metadata()["fedfisher_merged"])
    assert said["method"] == settings["method"]
    assert len(said["clients"]) == 2


def test_a_client_counts_once_and_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared()
    before = Path("client1.safetensors").read_bytes()
    for asked, said in (
        (
            ["client0.safetensors", "./client0.safetensors", "-o", "merged"],
            "client0.safetensors is named twice; allowed",
        ),
        (
            ["client0.safetensors", "client1.safetensors", "-o", "client1.safetensors"],
            "--out=client1.safetensors is read by the command, which would replace it; allowed: another path",
        ),
        (
            ["client0.safetensors", "--initial", "client1.safetensors", "-o", "./client1.safetensors"],
            "--out=client1.safetensors is read by the command",
        ),
    ):
        with pytest.raises(SystemExit):
            main(["merge", *asked, "--network", BUILDER, "--method", "fedavg"])
        assert said in capsys.readouterr().err
    assert Path("client1.safetensors").read_bytes() == before


def test_statistics_do_not_replace_what_they_are_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for read in ("weights0.safetensors", "data0/labels.npy"):
        before = Path(read).read_bytes()
        with pytest.raises(SystemExit):
            main(statistics(0, "-o", read))
        assert f"--out={read} is read by the command" in capsys.readouterr().err
        assert Path(read).read_bytes() == before


@pytest.mark.parametrize("bias", [False, True])
def test_a_registered_network_is_known_by_its_name(folder: Path, bias: bool) -> None:
    spec = ModelSpec("lenet", Images(1, 28, 28), classes=3, bias=bias)
    modules = []
    for number in range(2):
        weights = spec.initialise(torch.Generator().manual_seed(number))
        modules.append(spec.load(weights))
        save_file(weights, f"lenet{number}.safetensors")
        write_data(Path(f"digits{number}"), *own.examples(6, number, 1, 28, 28))
        given = ["statistics", f"lenet{number}.safetensors", "--network", "lenet", "--classes", "3", "--of", "gram"]
        main([*given, "--data", f"digits{number}", "-o", f"client{number}.safetensors"])
    main(merging("--method", "regmean", "--set", "off_diagonal=[0.9]"))
    clients = [fedfisher.Client(one, own.examples(6, number, 1, 28, 28)) for number, one in enumerate(modules)]
    expected = weights_of(fedfisher.merge(clients, method="regmean", off_diagonal=[0.9]))
    found = load_file("merged.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_settings_of_fishers_and_statistics_reach_the_file(folder: Path) -> None:
    chosen = ("--set", "fisher.estimator=empirical", "--set", "statistics.class_moments.directions=1")
    for number in range(2):
        main(statistics(number, "--of", "kfac,class_moments", *chosen))
    main(merging("--network", BUILDER, "--method", "mixture_distillation", "--set", "steps=2", "--set", "samples=4"))
    clients = [
        fedfisher.Client(own.network(number), own.examples(10 + number, number), fisher={"estimator": "empirical"})
        for number in range(2)
    ]
    expected = weights_of(
        fedfisher.merge(
            clients,
            method="mixture_distillation",
            statistics={"class_moments": {"directions": 1}},
            steps=2,
            samples=4,
        )
    )
    found = load_file("merged.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_label_prior_moves_what_files_with_label_counts_make(folder: Path) -> None:
    for number in range(2):
        main(statistics(number, "--of", "weights,label_counts"))
    main(merging("--network", BUILDER, "--method", "fedavg", "--set", "label_prior=-1"))
    expected = weights_of(fedfisher.merge(own.clients(2), method="fedavg", label_prior=-1))
    plain = weights_of(fedfisher.merge(own.clients(2), method="fedavg"))
    found = load_file("merged.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not all(torch.equal(found[name], plain[name]) for name in plain)


def without_labels() -> None:
    Path("data0/labels.npy").unlink()


def pickled() -> None:
    np.save("data0/labels.npy", np.array([{}], dtype=object), allow_pickle=True)


def other_classes() -> None:
    np.save("data0/labels.npy", np.full(10, 3))


@pytest.mark.parametrize(
    ("before", "arguments", "words"),
    [
        (None, statistics(0, "--network", "lenett"), "unknown model 'lenett'; did you mean 'lenet'?"),
        (
            None,
            statistics(0, "--network", "lenet"),
            "--network=lenet is of any number of classes; allowed: with --classes",
        ),
        (None, statistics(0, "--network", "absent:f"), "--network=absent:f can't be called: ModuleNotFoundError"),
        (None, statistics(0, "--network", "pathlib:Path"), "--network=pathlib:Path returns "),
        (
            prepared,
            merging("--method", "fedavg", "-o", "merged.pt"),
            "merged.pt ends in .pt; allowed: NAME.safetensors",
        ),
        (prepared, merging("--method", "fedavg", "-o", "merged"), "merged ends in nothing; allowed: NAME.safetensors"),
        (
            None,
            statistics(0, "--classes", "7"),
            "a function that knows how many; allowed: without, or with the name of",
        ),
        (None, statistics(0, "--of", "kfca"), "unknown statistic 'kfca'; did you mean 'kfac'?"),
        (None, statistics(0, "--set", "fishers.samples=3"), "--set 'fishers'; allowed: keys that begin with fisher."),
        (None, statistics(0, "--set", "fisher.samples=0"), "fisher.samples=0"),
        (None, statistics(0, "--set", "statistics.kfca.a=0"), "unknown statistic 'kfca'"),
        (None, [*statistics(0), "--data", "nowhere"], "nowhere/inputs.npy: there is no such file"),
        (without_labels, statistics(0), "data0/labels.npy: there is no such file"),
        (pickled, statistics(0), "data0/labels.npy can't be read: ValueError"),
        (other_classes, statistics(0), "the client's data has the label 3; allowed: 0 to 2"),
        (
            prepared,
            merging("--method", "fedfisher_kfac"),
            f"names the function '{BUILDER}', which is not called unasked",
        ),
        (prepared, merging("--network", BUILDER, "--method", "fedfisher_diag"), "has no 'diagonal_fisher'; its"),
        (prepared, merging("--network", BUILDER, "--method", "ensemble"), "keeps the networks of all clients"),
        (prepared, merging("--network", BUILDER, "--method", "ties"), "needs the network that all clients"),
        (prepared, merging("--network", BUILDER, "--method", "fedavg", "--set", "method=x"), "'methods.fedavg.method'"),
        (
            prepared,
            merging("--network", BUILDER, "--method", "fedavg", "--set", "label_prior=-1"),
            "client0.safetensors has no 'label_counts'; its statistics are",
        ),
        (
            None,
            merging("--network", BUILDER, "--method", "fedavg", "--set", "label_prior=-11"),
            "methods.fedavg.label_prior=-11",
        ),
        (prepared, merging("--network", "lenet", "--method", "fedavg"), "model 'lenet' needs images of at least"),
        (None, merging("--network", BUILDER, "--method", "fedavg"), "client0.safetensors: there is no such file"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    before: Callable[[], None] | None,
    arguments: list[str],
    words: str,
) -> None:
    if before is not None:
        before()
    found = set(folder.iterdir())
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert set(folder.iterdir()) == found


def test_the_commands_start_no_orchestration_tracking_or_versioning(folder: Path) -> None:
    prepared()
    code = (
        "import sys\n"
        "from flows.cli import main\n"
        f"main({statistics(0)!r})\n"
        f"main({merging('--network', BUILDER, '--method', 'fedfisher_kfac')!r})\n"
        "print(*sys.modules)"
    )
    root = str(Path(__file__).parents[3])
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = ended.stdout.split()
    assert "fedfisher" in loaded
    assert not {"prefect", "mlflow", "dvc"} & set(loaded)


def test_a_function_beside_the_files_is_found(folder: Path) -> None:
    (folder / "mine.py").write_text("from tests.fedfisher.own import network\n\n\ndef build():\n    return network()\n")
    main(statistics(0, "--network", "mine:build"))
    with safe_open("client0.safetensors", "pt") as file:
        assert json.loads(file.metadata()["fedfisher_client"])["network"]["builder"] == "mine:build"


@pytest.mark.parametrize(("options", "more"), [([], set()), (["--onnx"], {"network.onnx"})])
def test_the_network_of_a_finished_benchmark_is_exported(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], more: set[str]
) -> None:
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    done = walk_tiny(workplace, {"fedavg": {}})
    write_rows(list(done.rows.values()), workplace / "results/tiny")
    (workplace / "mine.yaml").write_text("name: mine\nrun: {store: elsewhere}\n")
    asked = ["export", "tiny", "mine.yaml", "--method", "fedavg", "--seed", "0", "--setting", "alpha=0.5", "-o", "out"]
    main([*asked, *options, "--set", "run.store=artifacts"])
    made = {path.name for path in (workplace / "out").iterdir()}
    assert made == {"network.pt2", "weights.safetensors", "network.json", "load.py"} | more
    assert json.loads((workplace / "out/network.json").read_text())["accuracy"] == done.rows["fedavg"].accuracy
    network = torch.export.load(workplace / "out/network.pt2").module()
    expected = read_model(done.aggregate("fedavg"), done.federation).networks[0]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in network.named_parameters())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tinny", "--method", "fedavg"], "no report 'tinny' in results and reports; did you mean 'tiny'?"),
        (["tiny", "--method", "pfnm"], "'tiny' has no row of method 'pfnm'; allowed: fedavg"),
        (["tiny", "--method", "fedavg", "--setting", "alpha=0.7"], "has no row of method 'fedavg', alpha=0.7"),
        (["tiny", "--method", "fedavg"], "run.store='elsewhere' has no aggregates/"),
    ],
)
def test_an_export_that_cannot_be_made_is_one_line_and_writes_nothing(
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    write_rows([make_row(benchmark="tiny", method="fedavg", alpha=0.5)], workplace / "results/tiny")
    (workplace / "params.yaml").write_text("name: mine\nrun: {store: elsewhere}\n")
    with pytest.raises(SystemExit) as stop:
        main(["export", *arguments, "-o", "out"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (workplace / "out").exists()
