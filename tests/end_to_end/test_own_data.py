"""The example of data of one's own: a CSV and a folder become data sets, and methods are compared on them."""

import json

import pytest

from tests.end_to_end.conftest import ROOT, Workplace

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

EXAMPLE = ROOT / "examples/own_data"


def rows(place: Workplace, name: str) -> dict[str, float]:
    """Accuracies of a finished run, by method."""
    found = json.loads((place.folder / f"results/{name}/results.json").read_text())
    return {row["method"]: row["accuracy"] for row in found}


def test_a_csv_and_a_folder_of_pictures_become_data_sets(workplace: Workplace) -> None:
    workplace.run("python", str(EXAMPLE / "make.py"))
    workplace.run("fedfisher", "data", "import", "flowers.csv", "--label", "species", "-o", "flowers.parquet")
    workplace.run("fedfisher", "data", "import", "digits", "--size", "28", "-o", "digits.parquet")
    for name in ("flowers", "digits"):
        short = ["--set=seeds=[0]", "--set=train.epochs=15", "--set=tracking.models=none"]
        small = [f"--set=name={name}", f"--set=data.dataset={name}.parquet", *short]
        workplace.run("fedfisher", "run", str(EXAMPLE / "compare.yaml"), *small)
        found = rows(workplace, name)
        assert found.keys() == {"fedavg", "regmean", "fedfisher_kfac", "ensemble"}
        assert max(found.values()) > 0.5
