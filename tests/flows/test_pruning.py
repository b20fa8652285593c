"""Pruning: what anything rests on stays, and so does what may be needed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfisher_core.engine.errors import InputError, LockedError
from fedfisher_core.engine.store import Artifact, Content, Recipe, Store
from fedfisher_core.engine.store import folder_store as implementation
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.reporting.rows import artifacts_json
from fedfisher_core.settings import ExperimentSettings
from fedfisher_core.settings.reading import validate
from flows import cli, pruning
from flows.cli import main
from flows.pruning import find_unused, remove_unused
from flows.work import prepare
from tests.tiny import tiny_settings

SETTINGS: ExperimentSettings = validate(BenchmarkSettings, {})


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the default settings' places."""
    monkeypatch.setattr(cli, "_ENVIRONMENT", {})
    monkeypatch.setattr(implementation, "_ALONE_SECONDS", 0.2)
    (workplace / "params.yaml").write_text("{}\n")
    return workplace


def artifacts(project: Path, *, used: int, unused: int, where: str = "results") -> list[Artifact]:
    """Store artifacts, and a report that rests on the first of them."""
    store = Store(project / "artifacts")
    made = [
        store.write(Recipe("two_layer", 1, {"seed": seed}), Content(documents={"a.json": {}}))
        for seed in range(used + unused)
    ]
    folder = project / where / "theory"
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps([{"artifact": one.key} for one in made[:used]]))
    return made


def prune(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the command: its exit code, and the last line that it printed."""
    code: object = 0
    try:
        main(["store", "prune", *arguments])
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    assert isinstance(code, int)
    if code:
        assert captured.err.count("\n") == 1
        assert captured.out == ""
    return code, (captured.err if code else captured.out).splitlines()[-1]


@pytest.mark.parametrize("where", ["results", "reports"])
def test_what_a_report_rests_on_stays(project: Path, capsys: pytest.CaptureFixture[str], where: str) -> None:
    made = artifacts(project, used=2, unused=1, where=where)
    (project / "results").mkdir(exist_ok=True)
    assert prune(capsys) == (0, "deleted 1 artifacts, 0 MiB; 2 stay, 0 MiB")
    assert [one.path.exists() for one in made] == [True, True, False]


def test_what_a_report_names_beside_its_rows_stays(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = artifacts(project, used=1, unused=3)
    beside = project / "results" / "theory" / "artifacts.json"
    beside.write_bytes(artifacts_json([made[1].key, made[2].key]))
    assert prune(capsys, "--dry-run") == (0, "would delete 1 artifacts, 0 MiB; 3 stay, 0 MiB")
    beside.write_text('{"a": 1}')
    code, message = prune(capsys)
    assert (code, "theory/artifacts.json is no list of artifacts' keys" in message) == (2, True)
    assert all(one.path.exists() for one in made)


def test_it_can_only_be_said_what_would_be_removed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = artifacts(project, used=1, unused=2)
    assert prune(capsys, "--dry-run") == (0, "would delete 2 artifacts, 0 MiB; 1 stay, 0 MiB")
    assert all(one.path.exists() for one in made)


def test_removing_most_needs_a_word(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = artifacts(project, used=1, unused=2)
    code, message = prune(capsys)
    assert code == 2
    assert "most of artifacts would be deleted: 2 artifacts, 0 MiB; 1 stay, 0 MiB; confirm with --yes" in message
    assert all(one.path.exists() for one in made)
    assert prune(capsys, "--yes") == (0, "deleted 2 artifacts, 0 MiB; 1 stay, 0 MiB")
    assert [one.path.exists() for one in made] == [True, False, False]


def test_a_program_reads_what_was_deleted_and_is_never_asked(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = artifacts(project, used=1, unused=2)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    sizes = {
        str(one.path.relative_to(project)): sum(file.stat().st_size for file in one.path.iterdir()) for one in made
    }
    kept, *unused = sizes
    expected = {
        "would_delete": [{"folder": folder, "bytes": sizes[folder]} for folder in sorted(unused)],
        "kept": {"artifacts": 1, "bytes": sizes[kept]},
    }
    for options, key in (["--dry-run"], "would_delete"), (["--yes"], "deleted"):
        main(["store", "prune", "--json", *options])
        found = json.loads(capsys.readouterr().out)
        found["would_delete"] = sorted(found.pop(key), key=lambda one: one["folder"])
        assert found == expected
    assert [one.path.exists() for one in made] == [True, False, False]


def test_a_program_must_say_that_most_may_be_deleted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = artifacts(project, used=1, unused=2)
    code, message = prune(capsys, "--json")
    assert code == 2
    assert message.endswith("confirm with --yes")
    assert all(one.path.exists() for one in made)


@pytest.mark.parametrize(("answer", "stay"), [("", True), ("n", True), ("y", False), ("Yes", False)])
def test_a_terminal_is_asked(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str, stay: bool
) -> None:
    made = artifacts(project, used=1, unused=2)
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    code, last = prune(capsys)
    assert code == 0
    assert last == ("nothing was deleted" if stay else "deleted 2 artifacts, 0 MiB; 1 stay, 0 MiB")
    assert asked == ["most of artifacts would be deleted: 2 artifacts, 0 MiB; 1 stay, 0 MiB. Delete? [y/N] "]
    assert made[1].path.exists() == stay


def test_many_bytes_are_most_as_well(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifacts(project, used=3, unused=0)
    large = Store(project / "artifacts").write(Recipe("data", 1, {}), Content(files={"a": bytes(2**20)}))
    code, message = prune(capsys)
    assert code == 2
    assert "1 artifacts, 1 MiB; 3 stay, 0 MiB" in message
    assert large.path.exists()


def _no_results(project: Path) -> None:
    (project / "results").rename(project / "elsewhere")


def _a_file(project: Path) -> None:
    _no_results(project)
    (project / "results").write_text("")


def _no_report(project: Path) -> None:
    (project / "results/theory/results.json").unlink()


def _no_rows(project: Path) -> None:
    (project / "results/theory/results.json").write_text('[{"key": "abc"}]')


def _a_pipe(project: Path) -> None:
    _no_report(project)
    os.mkfifo(project / "results/theory/results.json")


def _a_dangling_link(project: Path) -> None:
    _no_report(project)
    (project / "results/theory/results.json").symlink_to("nowhere")


def _no_store(project: Path) -> None:
    (project / "artifacts").rename(project / "elsewhere")


@pytest.mark.timeout(120)
def _damage_what_is_used(project: Path) -> None:
    (row,) = json.loads((project / "results/theory/results.json").read_text())
    (manifest,) = (project / "artifacts").glob(f"*/{row['artifact']}/manifest.json")
    manifest.write_text("{}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_no_results, "run.reports='results' is no folder, so nothing was deleted"),
        (_a_file, "run.reports='results' is no folder"),
        (_no_report, "run.reports='results' holds no report"),
        (_no_rows, "results/theory/results.json is no list of result rows"),
        (_a_pipe, "no results at results/theory/results.json"),
        (_a_dangling_link, "no results at results/theory/results.json"),
        (_no_store, "run.store='artifacts' is no folder"),
        (_damage_what_is_used, "is damaged, and reports rest on it"),
    ],
)
def test_where_nobody_knows_what_rests_on_what_nothing_is_removed(
    project: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None], words: str
) -> None:
    made = artifacts(project, used=1, unused=1)
    change(project)
    code, message = prune(capsys, "--yes")
    assert code == 2
    assert words in message
    assert change is _no_store or all(one.path.exists() for one in made)


def test_a_mistyped_folder_of_reports_is_refused_by_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = artifacts(project, used=2, unused=0)
    (project / "reports/theory").mkdir(parents=True)
    code, message = prune(capsys, "--set", "run.reports=resluts", "--yes")
    assert code == 2
    assert "run.reports='resluts' is no folder" in message
    assert all(one.path.exists() for one in made)


def test_artifacts_of_an_earlier_layout_are_refused_and_pruned(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = artifacts(project, used=2, unused=0)
    old = project / "artifacts/clients/0123456789abcdef01234567"
    old.mkdir(parents=True)
    (old / "manifest.json").write_text('{"kind": "clients", "key": "0123456789abcdef01234567", "code": "fedcba98"}')
    with pytest.raises(InputError, match=r"run\.store='artifacts' holds artifacts of an earlier layout.*store prune"):
        Store(Path("artifacts")).prepare()
    assert prune(capsys) == (0, "deleted 1 artifacts, 0 MiB; 2 stay, 0 MiB")
    assert all(one.path.exists() for one in made)
    Store(Path("artifacts")).prepare()


def test_folders_of_other_programs_stay(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifacts(project, used=1, unused=1)
    foreign = project / "artifacts/extension/1.0"
    foreign.mkdir(parents=True)
    (foreign / "manifest.json").write_text('{"name": "an extension"}')
    assert prune(capsys) == (0, "deleted 1 artifacts, 0 MiB; 1 stay, 0 MiB")
    assert foreign.exists()


def test_what_a_report_came_to_rest_on_meanwhile_stays(project: Path) -> None:
    made = artifacts(project, used=1, unused=2)
    found = find_unused(SETTINGS)
    (project / "results/new").mkdir()
    (project / "results/new/results.json").write_text(json.dumps([{"artifact": made[1].key}]))
    late = Store(project / "artifacts").write(Recipe("late", 1, {}), Content())
    removed = remove_unused(SETTINGS, found)
    assert [one.path.exists() for one in made] == [True, True, False]
    assert late.path.exists()
    assert str(removed) == "1 artifacts, 0 MiB; 3 stay, 0 MiB"


def test_nothing_is_pruned_under_a_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifacts(project, used=1, unused=1)
    monkeypatch.setattr("sys.argv", ["/bin/fedfisher", "run", "tiny.yaml"])
    work = prepare(tiny_settings(project))
    expected = rf"use\.lock is locked by process {os.getpid()} on .* \(fedfisher run tiny\.yaml, since"
    with pytest.raises(LockedError, match=expected):
        remove_unused(SETTINGS, find_unused(SETTINGS))
    assert all(one.path.exists() for one in made)
    del work
    remove_unused(SETTINGS, find_unused(SETTINGS))
    assert [one.path.exists() for one in made] == [True, False]


def test_two_prunes_at_once_are_safe(project: Path) -> None:
    made = artifacts(project, used=1, unused=20)
    root = str(Path(cli.__file__).parents[2])
    command = [sys.executable, "-c", "from flows.cli import main; main(['store', 'prune', '--yes'])"]
    processes = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": root}
        )
        for _ in range(2)
    ]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [errors for _, errors in said] == ["", ""]
    assert sum(out.count("two_layer") for out, _ in said) == 20
    assert [one.path.exists() for one in made] == [True] + [False] * 20


def test_a_report_that_may_not_be_looked_into_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts(project, used=1, unused=1)

    listdir = os.listdir

    def refuse(path: Path) -> list[str]:
        if path.name == "theory":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr("flows.pruning.os.listdir", refuse)
    with pytest.raises(InputError, match="results/theory can't be read: Permission denied"):
        find_unused(SETTINGS)


def test_a_bucket_is_not_pruned(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "params.yaml").write_text("run: {store: 's3://bucket/artifacts'}\n")
    code, said = prune(capsys)
    assert code == 2
    assert "run.store='s3://bucket/artifacts' is a bucket" in said
    assert said.endswith("so nothing was deleted; allowed: a folder")


def test_a_file_that_a_run_deletes_meanwhile_counts_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = artifacts(project, used=0, unused=1)
    listed = list(os.walk(one.path))
    (one.path / listed[0][2][0]).unlink()
    monkeypatch.setattr(pruning.os, "walk", lambda folder: listed)
    left = sum(file.stat().st_size for file in one.path.iterdir())
    assert pruning._size(one.path) == left > 0


def test_a_closed_standard_input_asks_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifacts(project, used=1, unused=2)
    monkeypatch.setattr("sys.stdin", None)
    main(["store", "prune", "--yes"])
    assert [one.path.exists() for one in made] == [True, False, False]
