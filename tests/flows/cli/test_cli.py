"""The command, where it needs no server."""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_API_URL, temporary_settings

from fedfisher_core.engine.store import Content, Recipe, Store
from fedfisher_core.experiments.benchmark.rows import sorted_rows
from fedfisher_core.experiments.two_layer.plan import Errors, SeedErrors
from fedfisher_core.experiments.two_layer.rows import rows_of
from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid
from fedfisher_core.reporting.rows import write_rows
from flows import cli
from flows.cli import main
from flows.cli.options import EXAMPLES
from tests.experiments.benchmark.samples import make_row
from tests.flows.test_work import do, prepared, publish
from tests.plugins.installed import environment, install
from tests.tiny import tiny_settings


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a settings file, and with a report; the store has its one artifact and another."""
    # The command sets these for its own process, which here is that of all tests.
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    (workplace / "theory.yaml").write_text("experiment: two_layer\nname: theory\n")
    store = Store(workplace / "artifacts")
    kept, _ = (
        store.write(Recipe(kind="two_layer", version=1, settings={"seed": seed}), Content(documents={"a.json": {}}))
        for seed in range(2)
    )
    settings = TwoLayerGrid(widths=(8,), steps=(1,))
    point = Errors(fedfisher=0.5, fedavg=1.0, local=0.25)
    write_rows(
        rows_of("theory", settings, 0, SeedErrors(widths=(point,), steps=(point,)), kept.key),
        workplace / "results/theory",
    )
    return workplace


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["run", "theory.yaml", "--set", "two_layer.widht=3"],
            ["config 'theory.yaml' with --set: ", "two_layer.widht", "'widths'"],
        ),
        (["run", "theory.yaml", "--set", "run.store=/proc/nowhere"], ["run.store='/proc/nowhere'"]),
        (["run", "theory.yaml", "--set", "tracking.mlflow=http://127.0.0.1:9"], ["tracking.mlflow", "can't be"]),
        (["ui", "theory.yaml", "--set", "tracking.mlflow=http://127.0.0.1:9"], ["tracking.mlflow", "can't be reached"]),
        *(
            (arguments, ["--set 'seeds", "has no value, and '5' stands apart", "as in --set seeds=5"])
            for arguments in (
                ["run", "--set", "seeds", "5"],
                ["run", "--set", "seeds=", "5"],
                ["run", "--set", "seeds", "=5"],
                ["run", "--set", "seeds", "=", "5"],
                ["run", "theory.yaml", "--set", "seeds", "5"],
                ["doctor", "--set", "seeds", "5"],
                ["doctor", "theory.yaml", "--set", "seeds", "5"],
            )
        ),
        (["run", "theory.yaml", "--set", "seeds"], ["--set 'seeds' must have the form key=value"]),
        (["run", "absent.yaml", "--set", "seeds=5"], ["config 'absent.yaml' does not exist"]),
        (["stage", "absent.yaml"], ["config 'absent.yaml' does not exist"]),
        (["stage", "odd.yaml"], ["config 'odd.yaml': unknown experiment 'tow_layer'"]),
        (
            ["run", "theory.yaml", "same.yaml"],
            ["same.yaml and theory.yaml: name='theory' in both", "allowed in one command: names that differ"],
        ),
        (["report", "nothing"], ["no report 'nothing' in results", "allowed: theory"]),
        (["run", "theory.yaml", "--set", "name=demo"], ["name='demo'", "params.yaml", "allowed: others"]),
        (["run", "odd.yaml"], ["config 'odd.yaml': unknown experiment 'tow_layer'", "did you mean 'two_layer'?"]),
        (
            ["run", "theory.yaml", "none.yaml"],
            ["config 'none.yaml': methods.gaussian_distillation.samples=0: Input should be greater than 0"],
        ),
        (
            ["run", "theory.yaml", "far.yaml"],
            ["config 'far.yaml': unknown dataset 'qqq'; allowed: "],
        ),
    ],
)
def test_what_can_not_be_run_is_refused_by_name(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    (project / "odd.yaml").write_text("experiment: tow_layer\n")
    (project / "none.yaml").write_text("name: none\nmethods: {gaussian_distillation: {samples: 0}}\n")
    (project / "far.yaml").write_text("name: far\ndata: {dataset: qqq}\n")
    (project / "same.yaml").write_text("name: theory\n")
    (project / "params.yaml").write_text("name: demo\n")
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("fedfisher: ")
    for word in words:
        assert word in err


@pytest.mark.drawn(1)
@pytest.mark.parametrize("what", ["methods", "datasets"])
def test_whoever_has_read_enough_sees_no_error(what: str) -> None:
    """As in `fedfisher methods | head`: a long list fails while it is printed, a short one when the command ends."""
    command = [sys.executable, "-m", "flows.cli", what]
    path = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    with subprocess.Popen(command, env=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert listing.stderr.read() == ""
    assert listing.returncode == 1


@pytest.mark.drawn(1)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("what", ["methods", "datasets"])
def test_a_full_disk_behind_the_output_is_one_line(what: str) -> None:
    path = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", what], env=path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    said = "fedfisher: standard output can't be written: no space is left on its disk\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_command_that_may_print_nowhere_does_its_work() -> None:
    path = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    done = subprocess.run(f"{sys.executable} -m flows.cli datasets >&-", shell=True, env=path, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_that_may_complain_nowhere_has_somewhere_to_write() -> None:
    """Libraries that write to standard error, as progress bars do, don't expect that it was closed."""
    path = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2])}
    code = "import sys; from flows.cli import main; main(['datasets']); print(sys.stderr.isatty())"
    done = subprocess.run(f'{sys.executable} -c "{code}" 2>&-', shell=True, env=path, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "False"


def test_a_finished_report_is_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", "theory"])
    out = capsys.readouterr().out
    assert "mean training error by width (1 seed); as predicted: too few points" in out
    assert "results/theory/index.html" in out


def test_a_run_without_rows_does_not_hide_the_report_that_was_committed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows([make_row()], project / "reports/sample")
    (project / "results/sample").mkdir(parents=True)
    (project / "results/sample/failed.log").write_text("of a run that made no row")
    main(["report", "sample"])
    assert "reports/sample/index.html" in capsys.readouterr().out


def test_a_benchmark_is_printed_as_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(sorted_rows([make_row(), make_row("kfac", accuracy=0.75)]), project / "elsewhere/sample")
    main(["report", "sample", "--reports", "elsewhere"])
    out = capsys.readouterr().out
    assert out.startswith("mnist, mlp, 5 clients, 1 round\n")
    assert "75.00*" in out


def test_the_doctor_looks_at_any_experiment(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "theory.yaml", "--set", "two_layer.seeds=[0, 1]", "--set", "name=two"])
    out = capsys.readouterr().out
    assert "experiment  two: 2 jobs, 0 of them done" in out
    assert out.rstrip().endswith("ready")
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "theory.yaml", "--set", "tracking.mlflow=http://127.0.0.1:9"])
    assert caught.value.code == 1
    assert "PROBLEM     tracking.mlflow=" in capsys.readouterr().out


def test_the_doctor_finds_a_database_of_prefect_that_can_not_be_used(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "prefect.db").write_bytes(b"no database " * 100)
    own = {PREFECT_API_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{project}/prefect.db"}
    with temporary_settings(own, restore_defaults={PREFECT_API_URL}), pytest.raises(SystemExit):
        main(["doctor", "theory.yaml"])
    assert "PROBLEM     Prefect's database" in capsys.readouterr().out


def test_a_damaged_database_of_runs_is_named_before_it_is_shown(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "mlflow.db").write_bytes(b"no database " * 100)
    with pytest.raises(SystemExit) as caught:
        main(["ui", "theory.yaml", "--set", "tracking.mlflow=sqlite:///mlflow.db"])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedfisher: tracking.mlflow='sqlite:///mlflow.db' can't be opened")


def test_a_program_reads_what_the_doctor_found(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "theory.yaml", "--set", "two_layer.seeds=[0, 1]", "--set", "name=two", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["ready"], found["experiment"], found["problems"]) == (True, "two", [])
    assert found["jobs"] == {"all": 2, "done": 0}
    assert found["packages"]["torch"] == version("torch")
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "theory.yaml", "--set", "tracking.mlflow=http://127.0.0.1:9", "--json"])
    assert caught.value.code == 1
    found = json.loads(capsys.readouterr().out)
    (problem,) = found["problems"]
    assert (found["ready"], found["jobs"]) == (False, None)
    assert problem.startswith("tracking.mlflow='http://127.0.0.1:9' can't be reached")


GROUPS = ("methods", "objectives", "datasets", "models", "experiments")


def test_a_broken_plugin_stands_in_the_way_of_its_users_only(workplace: Path) -> None:
    (workplace / "broken.py").write_text("import sys\nsys.exit('no')\n")
    groups = {f"fedfisher.{group}": "odd = broken" for group in GROUPS}
    site = install(workplace / "site", package="odd", version="1.0", entry_points=groups, sources=workplace)
    (workplace / "theory.yaml").write_text("experiment: two_layer\nname: theory\n")
    (workplace / "user.yaml").write_text("experiment: odd\n")

    def fedfisher(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from flows.cli import main; main()", *arguments]
        return subprocess.run(command, env=environment(site), capture_output=True, text=True)

    warned = "plug-in package 'odd' 1.0 (entry point fedfisher.{}: odd = broken) can't be imported: SystemExit: no"
    listed = fedfisher("datasets")
    assert (listed.returncode, listed.stderr.splitlines()) == (0, [warned.format("datasets")])
    refused = fedfisher("run", "user.yaml")
    warning, refusal = refused.stderr.splitlines()
    assert (refused.returncode, warning) == (2, warned.format("experiments"))
    assert refusal.startswith("fedfisher: config 'user.yaml': unknown experiment 'odd'; allowed: benchmark")
    assert refusal.endswith(warned.format("experiments"))
    examined = fedfisher("doctor", "theory.yaml")
    assert examined.returncode == 1
    assert len(examined.stderr.splitlines()) == 1
    for group in GROUPS:
        assert f"PROBLEM     {warned.format(group)}" in examined.stdout
    assert "experiment  theory: " in examined.stdout


def test_a_run_with_nothing_to_do_starts_neither_prefect_nor_mlflow(workplace: Path) -> None:
    publish(do(prepared(workplace)))
    settings = tiny_settings(workplace, methods={"fedavg": {}, "fedfisher_kfac": {}})
    (workplace / "tiny.yaml").write_text(settings.to_yaml())
    code = """
import json, sys
import tests.tiny
from flows.cli import main

main(["run", "tiny.yaml"])
main(["run", "tiny.yaml"])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    root = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"],
        check=True,
        capture_output=True,
        text=True,
    )
    *printed, loaded = done.stdout.splitlines()
    assert sum(line.startswith("fedfisher_kfac ") for line in printed) == 2
    assert not {"prefect", "mlflow", "dvc", "altair"} & set(json.loads(loaded))


def test_a_program_reads_what_a_run_has_made(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    publish(do(prepared(workplace)))
    settings = tiny_settings(workplace, methods={"fedavg": {}, "fedfisher_kfac": {}})
    (workplace / "tiny.yaml").write_text(settings.to_yaml())
    main(["run", "tiny.yaml", "--json"])
    folder = settings.run.reports / settings.name
    rows = len(json.loads((folder / "results.json").read_text()))
    made = {"name": settings.name, "folder": str(folder), "rows": rows, "failures": []}
    assert json.loads(capsys.readouterr().out) == {"reports": [made], "exit": 0}


def test_explain_counts_the_jobs_and_those_that_the_store_lacks(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "theory.yaml").write_text("experiment: two_layer\nname: theory\ntwo_layer: {seeds: [0, 1]}\n")
    before = set(project.rglob("*"))
    main(["explain", "theory.yaml"])
    steps, expected = capsys.readouterr().out.split("\n\n")
    title, header, _, *lines = steps.splitlines()
    assert title == "theory: 2 jobs, of which a run would compute 2"
    assert header.split() == ["step", "jobs", "to", "compute"]
    assert [line.split()[1:] for line in lines] == [["2", "2"]]
    assert "minutes that a run takes, about          unknown: no seconds are known of 1 step" in expected
    assert set(project.rglob("*")) == before


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for one in action.choices.values():
            yield one
            yield from parsers_of(one)


def test_every_help_ends_with_examples_that_the_command_takes() -> None:
    parser = cli._parser()
    for one in parsers_of(parser):
        title, *examples = (one.epilog or "").split("\n")
        assert title == EXAMPLES, one.prog
        assert examples, one.prog
        for example in examples:
            program, *arguments = shlex.split(example.partition(" > ")[0])
            assert program == "fedfisher"
            options, unknown = parser.parse_known_args(arguments)
            assert not unknown
            assert callable(options.command)


def test_a_report_is_printed_as_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(sorted_rows([make_row(), make_row("kfac", accuracy=0.75)]), project / "results/sample")
    main(["report", "sample", "--json"])
    (table,) = json.loads(capsys.readouterr().out)
    assert table["title"] == "mnist, mlp, 5 clients, 1 round"
    assert [(line["method"], line["alpha=0.1"]) for line in table["lines"]] == [("kfac", "75.00*"), ("fedavg", "50.00")]


def test_two_methods_are_compared(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(sorted_rows([make_row(), make_row("kfac", accuracy=0.75)]), project / "reports/sample")
    for reports in ([], ["sample"]):
        main(["compare", "kfac", "fedavg", *reports, "--json"])
        settings, together = json.loads(capsys.readouterr().out)
        assert [line["difference"] for line in settings["lines"]] == ["+25.00"]
        assert together["lines"][0] == {"": "mean difference, points", "all": "+25.00"}
    with pytest.raises(SystemExit) as caught:
        main(["compare", "kfac", "fedavg", "theory"])
    assert caught.value.code == 2
    assert "results/theory is a report of two layer; allowed: benchmarks" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_what_it_needs_to_complete_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])
    out = capsys.readouterr().out
    assert "leaderboard" in out
    assert "--json" in out or "-l json" in out


def test_a_config_that_is_not_there_is_answered_with_what_helps(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "configs").mkdir()
    (project / "configs/mnist_methods.yaml").write_text("name: mnist_methods\n")
    for asked, answer in (
        ("mnist_methods", "did you mean 'configs/mnist_methods.yaml'?"),
        ("theroy.yaml", "did you mean 'theory.yaml'?"),
        ("params.yaml", "`fedfisher init config NAME` writes one"),
    ):
        with pytest.raises(SystemExit):
            main(["explain", asked])
        assert capsys.readouterr().err == f"fedfisher: config {asked!r} does not exist; {answer}\n"


def test_the_version_is_that_of_the_package(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"fedfisher {version('fedfisher')}\n"
