"""Data sets of the hub: which commit is read, and what is said when the hub does not give it."""

import logging
from pathlib import Path
from types import SimpleNamespace

import datasets as hub
import huggingface_hub
import pytest

from fedfisher_core.data.hub import fetch, load_from_hub, revision_of
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.specs import datasets
from fedfisher_core.engine.errors import InputError


@pytest.mark.parametrize("error", [ConnectionError("no route"), hub.exceptions.DatasetNotFoundError("no such set")])
def test_only_the_error_tells_of_a_hub_that_does_not_answer(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(*_: object, **__: object) -> None:
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 8s")
        raise error

    monkeypatch.setattr(hub, "load_dataset", load)
    name = type(error).__name__
    with pytest.raises(
        InputError,
        match=rf"^data set 'mnist' can't be fetched from the hub \({name}: no .*\)\. Set FEDFISHER_DATA_DIR to a "
        r"folder with mnist/train\.parquet and mnist/test\.parquet, or use data\.dataset=mnist5k, which needs no "
        r"network$",
    ):
        load_from_hub(datasets.get("mnist"), "0123abc")
    assert capfd.readouterr().err == ""
    assert not caplog.records


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDFISHER_DATA_DIR", raising=False)


@pytest.mark.usefixtures("nowhere")
def test_the_commit_that_is_named_is_the_one_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = "first"
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(sha=newest))
    asked: list[object] = []

    def load(*_: object, revision: object) -> dict[str, object]:
        asked.append(revision)
        return {}

    monkeypatch.setattr(hub, "load_dataset", load)
    before = find_source("mnist")
    newest = "second"
    assert before.identity == "hub:ylecun/mnist@first"
    assert find_source("mnist").identity == "hub:ylecun/mnist@second"
    load_from_hub(before.spec, before.revision)
    assert asked == ["first"]


@pytest.mark.usefixtures("nowhere")
def test_without_network_the_commit_that_is_kept_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", ask)
    spec = datasets.get("mnist")
    assert revision_of(spec) is None
    assert find_source("mnist").identity == "hub:ylecun/mnist"
    with pytest.raises(
        InputError, match=r"can't be fetched .*: the hub does not answer, and no commit .* is kept here"
    ):
        load_from_hub(spec, None)
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda *_, **__: "/kept/datasets--x/snapshots/0123abc/README.md"
    )
    assert find_source("mnist").identity == "hub:ylecun/mnist@0123abc"


@pytest.mark.usefixtures("nowhere")
def test_a_folder_that_can_not_be_written_to_is_refused_by_name() -> None:
    Path("data").write_text("a file in its place")
    with pytest.raises(InputError, match=r"data set 'mnist5k' can't be written to data: .*; allowed: a working folder"):
        fetch("mnist5k")
