"""The example of a package with a statistic: installed, and compared by its own settings file."""

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.conftest import ROOT, Workplace
from tests.plugins.installed import environment, install_project

pytestmark = pytest.mark.end_to_end

EXAMPLE = ROOT / "examples/own_statistic"


def test_one_command_sends_the_statistic_and_compares_the_method(workplace: Workplace, tmp_path: Path) -> None:
    site = install_project(tmp_path / "site", EXAMPLE)
    shutil.copy(EXAMPLE / "compare.yaml", workplace.folder)
    place = Workplace(workplace.folder, environment(site, workplace.environment))
    small = ("seeds=[0]", "data.examples=1000", "partition.clients=[3]", "train={epochs: 2, batch_size: 16}")
    place.run(
        "fedfisher", "run", "compare.yaml", *(f"--set={one}" for one in ("name=mine", "tracking.models=none", *small))
    )
    rows = {row["method"]: row for row in json.loads((place.folder / "results/mine/results.json").read_text())}
    own, whole = rows["by_change"], rows["by_change, uncompressed"]
    assert own["uploads"] == {"weights": "each", "change": "each"}
    assert own["upload_bits"] <= rows["fedavg"]["upload_bits"] < whole["upload_bits"]
    assert own["accuracy"] != rows["fedavg"]["accuracy"]
