"""The example of a package with a method: installed, listed, and compared with others by its own settings file."""

import json
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.conftest import ROOT, Workplace
from tests.plugins.installed import environment, install_project

pytestmark = pytest.mark.end_to_end

EXAMPLE = ROOT / "examples/compare_your_method"


@pytest.fixture
def place(workplace: Workplace, tmp_path: Path) -> Workplace:
    """A workplace with the package installed as its own pyproject.toml says."""
    site = install_project(tmp_path / "site", EXAMPLE)
    shutil.copy(EXAMPLE / "compare.yaml", workplace.folder)
    return Workplace(workplace.folder, environment(site, workplace.environment))


def test_one_command_compares_the_method_with_others(place: Workplace) -> None:
    small = (
        "seeds=[0]",
        "data.examples=1000",
        "partition={alpha: [0.5], clients: [3]}",
        "train={epochs: 2, batch_size: 16}",
    )
    place.run(
        "fedfisher", "run", "compare.yaml", *(f"--set={one}" for one in ("name=mine", "tracking.models=none", *small))
    )
    folder = place.folder / "results/mine"
    accuracy = {row["method"]: row["accuracy"] for row in json.loads((folder / "results.json").read_text())}
    assert accuracy.keys() == {"fedavg", "regmean", "fedfisher_kfac", "my_median", "my_median, half way to the mean"}
    # The setting changes the network, and so does the method.
    assert len({accuracy[method] for method in accuracy.keys() - {"regmean", "fedfisher_kfac"}}) == 3
    assert "my-method&nbsp;0.1.0" in (folder / "index.html").read_text()
