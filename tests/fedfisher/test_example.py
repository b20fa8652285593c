"""The example that merges networks of one's own."""

import re
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).parents[2] / "examples/merge_your_networks/merge.py"


def test_the_merged_network_knows_more_than_each_client(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = {name: float(value) for name, value in re.findall(r"^(.+): ([\d.]+) %$", done.stdout, re.MULTILINE)}
    clients = [value for name, value in shown.items() if name.startswith("client of")]
    assert len(clients) == 2
    assert max(clients) < shown["fedfisher_kfac"] < shown["gaussian_distillation"]
    assert set(torch.load(tmp_path / "merged.pt")) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_it_is_short() -> None:
    assert len(SCRIPT.read_text().splitlines()) <= 60
