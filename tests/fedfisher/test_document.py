"""The page on merging shows what works."""

import importlib
import re
import subprocess
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


def test_orchestration_tracking_and_versioning_are_not_imported() -> None:
    code = (
        "import sys, torch, fedfisher\n"
        "network = torch.nn.Sequential(torch.nn.Linear(4, 2))\n"
        "client = fedfisher.Client(network, (torch.randn(6, 4), torch.arange(6) % 2))\n"
        "fedfisher.merge([client, client], method='fedfisher_kfac')\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "fedfisher_core" in loaded
    assert not {"prefect", "mlflow", "dvc"} & set(loaded)


def test_flower_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.delitem(sys.modules, "fedfisher.flower", raising=False)
    with pytest.raises(
        ModuleNotFoundError, match=r"^fedfisher.flower needs Flower: pip install 'fedfisher\[flower\]'$"
    ):
        importlib.import_module("fedfisher.flower")
