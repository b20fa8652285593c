"""The example of data of one's own: a CSV and a folder become data sets, and methods are compared on them."""

import json

import pytest

from tests.end_to_end.conftest import ROOT, Workplace

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

EXAMPLE = ROOT / "examples/own_data"
METHODS = ["fedavg", "regmean", "fedfisher_kfac", "ensemble"]


def rows(place: Workplace, name: str) -> dict[str, float]:
    """Accuracies of a finished run, by method."""
    found = json.loads((place.folder / f"results/{name}/results.json").read_text())
    return {row["method"]: row["accuracy"] for row in found}


def test_a_csv_and_a_folder_of_pictures_become_data_sets(workplace: Workplace) -> None:
    workplace.run("python", str(EXAMPLE / "make.py"))
    workplace.run("fedfisher", "data", "import", "flowers.csv", "--label", "species", "-o", "flowers.parquet")
    workplace.run("fedfisher", "data", "import", "digits", "--size", "28", "-o", "digits.parquet")
    for name, methods in (("flowers", METHODS), ("digits", ["fedavg"])):
        epochs = 15 if name == "flowers" else 5
        short = ["--set=seeds=[0]", f"--set=train.epochs={epochs}", "--set=tracking.models=none"]
        small = [f"--set=name={name}", f"--set=data.dataset={name}.parquet", f"--set=methods=[{', '.join(methods)}]"]
        workplace.run("fedfisher", "run", str(EXAMPLE / "compare.yaml"), *small, *short)
        found = rows(workplace, name)
        assert found.keys() == set(methods)
        assert max(found.values()) > 0.5
