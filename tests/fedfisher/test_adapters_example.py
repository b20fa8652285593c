"""The example that merges adapters with what their layers saw."""

import re
import subprocess
import sys
from pathlib import Path

import fedfisher

SCRIPT = Path(__file__).parents[2] / "examples/merge_adapters/merge.py"


def test_what_layers_saw_makes_an_adapter_that_serves_both_clients(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = {name: float(value) for name, value in re.findall(r"^(\w+): ([\d.]+)$", done.stdout, re.MULTILINE)}
    assert list(shown) == ["fedavg", "flexlora", "regmean_products"]
    assert shown["regmean_products"] < 0.1 * shown["flexlora"] < 0.1 * shown["fedavg"]
    assert fedfisher.read_adapter(tmp_path / "merged").rank == 4
