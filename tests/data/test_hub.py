"""What is said when the hub does not give a data set."""

import logging

import datasets as hub
import pytest

from fedfisher_core.data.hub import load_from_hub
from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError


@pytest.mark.parametrize("error", [ConnectionError("no route"), hub.exceptions.DatasetNotFoundError("no such set")])
def test_only_the_error_tells_of_a_hub_that_does_not_answer(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(*_: object) -> None:
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
        load_from_hub(datasets.get("mnist"))
    assert capfd.readouterr().err == ""
    assert not caplog.records
