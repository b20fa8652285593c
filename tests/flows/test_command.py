"""The command on a file of the two-layer experiment, where it needs no server."""

from pathlib import Path

import pytest

from fedfisher_core.configuration import parse_settings
from fedfisher_core.experiments.two_layer.rows import make_rows
from fedfisher_core.reporting.rows import write_rows
from fedfisher_core.store import Content, Step, Store
from fedfisher_core.theory.measuring import Errors, SeedErrors, TwoLayerSettings
from flows import cli
from flows.cli import main
from flows.pruning import prune


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a settings file, and with a report whose one artifact is in the store beside another."""
    # The command sets these for its own process, which here is that of all tests.
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    (workplace / "theory.yaml").write_text("experiment: two_layer\nname: theory\n")
    store = Store(workplace / "artifacts")
    kept, _ = (
        store.write(Step(kind="two_layer", version=1, settings={"seed": seed}), Content(documents={"a.json": {}}))
        for seed in range(2)
    )
    settings = TwoLayerSettings(widths=(8,), steps=(1,))
    point = Errors(fedfisher=0.5, fedavg=1.0, local=0.25)
    write_rows(
        make_rows("theory", settings, 0, SeedErrors(widths=(point,), steps=(point,)), kept.key),
        workplace / "reports/theory",
    )
    return workplace


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "theory.yaml", "--set", "two_layer.widht=3"], ["two_layer.widht", "'widths'"]),
        (["run", "theory.yaml", "--set", "run.store=/proc/nowhere"], ["run.store='/proc/nowhere'"]),
        (["run", "theory.yaml", "--set", "tracking.mlflow=http://127.0.0.1:9"], ["tracking.mlflow", "can't be"]),
        (["stage", "clients", "theory.yaml"], ["experiment='two_layer'", "allowed here: benchmark"]),
        (["doctor", "theory.yaml"], ["experiment='two_layer'", "allowed here: benchmark"]),
        (["run", "theory.yaml", "--set", "name=demo"], ["name='demo'", "params.yaml", "allowed: others"]),
        (["run", "odd.yaml"], ["experiment='tow_layer'", "did you mean 'two_layer'?"]),
    ],
)
def test_what_can_not_be_run_is_refused_by_name(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    (project / "odd.yaml").write_text("experiment: tow_layer\n")
    (project / "params.yaml").write_text("name: demo\n")
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("fedfisher: ")
    for word in words:
        assert word in err


def test_a_finished_report_is_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", "theory"])
    out = capsys.readouterr().out
    assert "mean training error by width (1 seed); as predicted: too few points" in out
    assert "reports/theory/index.html" in out


def test_the_runs_of_such_a_file_can_be_browsed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ui", "theory.yaml", "--set", "tracking.mlflow=http://127.0.0.1:9"])
    assert "http://127.0.0.1:9: open it in a browser" in capsys.readouterr().out


def test_pruning_keeps_what_such_a_report_rests_on(project: Path) -> None:
    before = set((project / "artifacts/two_layer").iterdir())
    lines = prune(parse_settings({}), dry_run=False)
    assert lines[-1].startswith("removed 1 artifacts")
    after = set((project / "artifacts/two_layer").iterdir())
    assert len(before) == 2
    assert len(after) == 1
    assert after < before
