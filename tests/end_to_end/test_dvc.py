"""The reproducible pipeline on a fresh clone, without a network."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.conftest import TINY_ATTACK, Workplace

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]


def shorten(clone: Workplace, **changes: object) -> None:
    params = yaml.safe_load((clone.folder / "params.yaml").read_text())
    params |= {"seeds": [0], "partition": {"alpha": [0.5], "clients": [3]}, "train": {"epochs": 1}}
    params |= {"methods": {"fedavg": {}, "fisher_merge": {}}} | changes
    clone.write("params.yaml", params)
    clone.write("configs/privacy_demo.yaml", TINY_ATTACK | {"name": "privacy_demo"})


def test_the_embedded_data_is_pulled_and_repro_runs_only_what_changed(clone: Workplace, tmp_path: Path) -> None:
    clone.run("dvc", "pull", "data.dvc")
    assert clone.run("dvc", "status", "data.dvc").stdout.strip().endswith("up to date.")
    shorten(clone)
    clone.run("dvc", "repro")
    first = clone.rows("demo")
    assert {row["method"] for row in first} == {"fedavg", "fisher_merge"}
    assert {row["method"] for row in clone.rows("privacy_demo")} > {"ensemble", "fedavg", "fedfisher_kfac"}
    assert "up to date" in clone.run("dvc", "repro").stdout
    clients = clone.artifacts("clients")

    shorten(clone, methods={"fedavg": {}, "fisher_merge": {"fisher_floor": 0.1}})
    clone.run("dvc", "repro")
    assert clone.artifacts("clients") == clients
    assert clone.rows("demo") != first

    # `fedfisher run` with the same settings leaves nothing for DVC to do.
    clone.run("fedfisher", "run")
    assert "up to date" in clone.run("dvc", "status").stdout

    # Overridden settings never touch what DVC knows.
    lock = (clone.folder / "dvc.lock").read_bytes()
    clone.run("fedfisher", "run", "--set", "seeds=[1]")
    assert (clone.folder / "dvc.lock").read_bytes() == lock
    assert "up to date" in clone.run("dvc", "status").stdout

    # A colleague who pulls finds every trained client.
    shared = tmp_path / "remote"
    clone.run("dvc", "remote", "add", "--local", "team", str(shared))
    clone.run("dvc", "push", "--remote", "team")
    other = Workplace(tmp_path / "other", clone.environment)
    subprocess.run(["git", "clone", "--quiet", str(clone.folder), str(other.folder)], check=True)
    for name in ("params.yaml", "dvc.lock"):
        shutil.copy(clone.folder / name, other.folder / name)
    other.run("dvc", "remote", "add", "--local", "team", str(shared))
    other.run("dvc", "pull", "--remote", "team")
    other.run("fedfisher", "run")
    assert other.rows("demo") == clone.rows("demo")
    assert not other.artifacts("clients")
