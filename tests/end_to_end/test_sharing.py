"""Sharing by the real DVC: whatever goes wrong there, the results are complete, and the next run tries again."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import yaml

from flows.sharing import is_shared, share
from flows.work import Work, prepare
from tests.flows.test_work import do
from tests.tiny import tiny_settings

pytestmark = pytest.mark.end_to_end

# Relative to the working directory, so that a finished one can be copied.
HERE = Path()
PIPELINE = {
    "clients": {"cmd": "echo", "outs": ["stages/tiny/clients"]},
    "aggregates": {"cmd": "echo", "deps": ["stages/tiny/clients"], "outs": ["stages/tiny/aggregates"]},
    "report": {"cmd": "echo", "deps": ["stages/tiny/aggregates"], "outs": [{"results/tiny/page": {"cache": False}}]},
}
EMPTY_LOCK = "schema: '2.0'\nstages: {}\n"


@pytest.fixture(scope="module")
def once(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in a repository of git and DVC that has shared nothing yet."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
        patch.delenv("PREFECT_API_URL", raising=False)
        patch.chdir(folder)
        do(prepare(tiny_settings(HERE)))
    (folder / "params.yaml").write_text(tiny_settings(HERE).to_yaml())
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": PIPELINE}))
    (folder / "dvc.lock").write_text(EMPTY_LOCK)
    (folder / "results/tiny").mkdir()
    (folder / "results/tiny/page").write_text("a page")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (folder / ".dvc/.gitignore").write_text("/tmp\n/cache\n")
    (folder / ".gitignore").write_text("/stages/\n")
    return folder


@pytest.fixture
def work(once: Path, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return prepare(tiny_settings(HERE))


def committed() -> set[str]:
    return set(yaml.safe_load(Path("dvc.lock").read_text())["stages"])


@contextmanager
def _another_dvc() -> Iterator[None]:
    code = "from dvc.repo import Repo; Repo('.').lock.lock(); print('locked', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield
        finally:
            process.kill()


@contextmanager
def _renamed(name: str) -> Iterator[None]:
    Path(name).rename("away")
    try:
        yield
    finally:
        Path("away").rename(name)


@contextmanager
def _replaced(name: str, content: str) -> Iterator[None]:
    before = Path(name).read_text()
    Path(name).write_text(content)
    try:
        yield
    finally:
        Path(name).write_text(before)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda: _renamed(".git"), "is not a git repository"),
        (lambda: _renamed(".dvc"), "not inside of a DVC repository"),
        (lambda: _renamed("results/tiny/page"), "'results/tiny/page' does not exist"),
        (lambda: _renamed("artifacts/aggregates"), "No such file or directory"),
        (lambda: _another_dvc(), "Unable to acquire lock"),
        (lambda: _replaced("dvc.lock", "stages: [}{"), "unable to read: 'dvc.lock'"),
        (lambda: _replaced("dvc.yaml", "stages: {}"), "'clients' does not exist"),
    ],
)
def test_what_dvc_does_not_share_is_said_in_one_line_and_tried_again(
    work: Work,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[], AbstractContextManager[None]],
    words: str,
) -> None:
    with harm(), caplog.at_level(logging.WARNING, "fedfisher"):
        share(work)
        (record,) = [one for one in caplog.records if one.name == "fedfisher"]
        assert record.getMessage().startswith("the results are complete, but DVC does not share them: ")
        assert words in record.getMessage()
        assert "\n" not in record.getMessage()
        assert not is_shared(work)
    share(work)
    assert is_shared(work)
    assert committed() == set(PIPELINE)


@pytest.mark.parametrize("copied", [True, False])
def test_a_lock_file_that_a_kill_cut_off_is_made_whole(work: Work, copied: bool) -> None:
    share(work)
    whole = Path("dvc.lock").read_text()
    assert committed() == set(PIPELINE)
    assert not list(Path(".dvc/tmp").glob("dvc.lock*"))
    others = yaml.safe_load(whole)
    others["stages"]["another"] = {"cmd": "echo"}
    if copied:
        Path(".dvc/tmp/dvc.lock.before").write_text(json.dumps(others))
    Path("dvc.lock").write_text("")
    share(work)
    assert committed() == set(PIPELINE) | ({"another"} if copied else set())
    if not copied:
        assert Path("dvc.lock").read_text() == whole


def test_a_lock_file_that_dvc_could_not_write_is_put_back(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    from dvc.repo import Repo

    def cut_off(*_: object, **__: object) -> None:
        Path("dvc.lock").write_text("")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Repo, "commit", cut_off)
    share(work)
    assert Path("dvc.lock").read_text() == EMPTY_LOCK
    assert not is_shared(work)


def test_a_lock_file_that_is_older_than_the_report_is_written_again(work: Work) -> None:
    share(work)
    older = Path("dvc.lock").read_text()
    Path("results/tiny/page").write_text("another page")
    assert not is_shared(work)
    share(work)
    assert is_shared(work)
    Path("dvc.lock").write_text(older)
    assert not is_shared(work)
    share(work)
    assert is_shared(work)
    assert Path("dvc.lock").read_text() != older
