"""The page on merging shows what works."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fedfisher

PAGE = Path(__file__).parents[2] / "docs/merging.md"


def test_the_code_of_the_page_runs_as_it_is_written() -> None:
    names: dict[str, object] = {}
    with torch.random.fork_rng(devices=[]):
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(block, names)
    assert isinstance(names["merged"], nn.Sequential)
    assert isinstance(names["both"], fedfisher.Ensemble)


def test_flower_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.delitem(sys.modules, "fedfisher.flower", raising=False)
    with pytest.raises(
        ModuleNotFoundError, match=r"^fedfisher.flower needs Flower: pip install 'fedfisher\[flower\]'$"
    ):
        importlib.import_module("fedfisher.flower")
