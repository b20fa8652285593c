import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests import drawn, tiny
from tests.built import made_once
from tests.chaos.scale import SEED


def pytest_configure() -> None:
    """Take Ctrl-C again where a shell started the tests in the background, so that commands under test do too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with what takes long, so that no process ends with it while the others have nothing left."""
    left_out = drawn.left_out(items)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = sorted(
        (item for item in items if item not in left_out), key=lambda item: item.get_closest_marker("long") is None
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what draws the same cases and the same chaos again."""
    terminalreporter.write_line(f"CHAOS_SEED={SEED}")


def pytest_collection_finish() -> None:
    """Leave all that is loaded by now out of further collections of cycles."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep sums in one order, on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as FEDFISHER_DATA_DIR names it, with the tiny data set under both of its names."""
    root = tmp_path_factory.mktemp("data")
    tiny.write_tiny(root)
    tiny.write_tiny(root, "tiny_augmented")
    return root


@pytest.fixture
def workplace(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory that finds the tiny data set and no server."""
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tiny_folder))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database of MLflow, which takes MLflow five seconds to lay out."""

    def lay_out(folder: Path) -> None:
        # Loading it takes seconds, which most tests do without.
        from mlflow import MlflowClient

        MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")

    return made_once(tmp_path_factory, "database", lay_out) / "mlflow.db"
