"""Stages of the real DVC on fresh clones, without a network: what runs again, and what a colleague gets of it."""

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.conftest import SMALL, TINY_ATTACK, Workplace

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]

TOY = "configs/dvc.yaml:experiment@fedfish_toy"
TINY_TOY = {
    "experiment": "fedfish_toy",
    "name": "fedfish_toy",
    "toy": {"overlaps": [0.0], "epochs": [1], "samples": 8, "widths": [4, 4, 4], "seeds": [0, 1]},
}
LINKS = ["hardlink", "symlink"]


def shorten(clone: Workplace, **changes: object) -> None:
    clone.change({**SMALL, "name": "demo", "methods": {"fedavg": {}, "fisher_merge": {}}, **changes})
    clone.write("configs/privacy_demo.yaml", TINY_ATTACK | {"name": "privacy_demo", "methods": {"fedavg": {}}})
    clone.write("configs/fedfish_toy.yaml", TINY_TOY)


def push(clone: Workplace, remote: Path) -> None:
    """Commit all and share it."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "add", "."], cwd=clone.folder, check=True)
    subprocess.run(["git", *author, "commit", "--quiet", "--message", "short"], cwd=clone.folder, check=True)
    clone.run("dvc", "remote", "add", "--local", "team", str(remote))
    clone.run("dvc", "push", "--remote", "team")


def colleague(clone: Workplace, remote: Path, links: str, *stages: str) -> Workplace:
    """Another clone that pulls stages, which DVC links from its cache."""
    other = Workplace(clone.folder.with_name(f"colleague-{links}"), clone.environment)
    subprocess.run(["git", "clone", "--quiet", str(clone.folder), str(other.folder)], check=True)
    other.run("dvc", "config", "--local", "cache.type", links)
    other.run("dvc", "remote", "add", "--local", "team", str(remote))
    other.run("dvc", "pull", "data.dvc")
    other.run("dvc", "pull", "--remote", "team", *stages)
    return other


def computed(clone: Workplace) -> set[str]:
    """Kinds of what was computed here and not found, but for decoded data."""
    return {path.parent.name for path in (clone.folder / "artifacts").glob("*/*")} - {"data", ".locks", ".writing"}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("links", LINKS)
def test_the_default_pipeline_runs_what_changed_and_a_colleague_trains_nothing(
    clone: Workplace, tmp_path: Path, links: str
) -> None:
    clone.run("dvc", "pull", "data.dvc")
    assert clone.run("dvc", "status", "data.dvc").stdout.strip().endswith("up to date.")
    shorten(clone)
    clone.run("dvc", "repro")
    first = clone.rows("demo")
    assert {row["method"] for row in first} == {"fedavg", "fisher_merge"}
    assert {row["method"] for row in clone.rows("privacy_demo")} > {"fedavg"}
    assert "up to date" in clone.run("dvc", "repro").stdout
    clients = clone.artifacts("clients")

    shorten(clone, methods={"fedavg": {}, "fisher_merge": {"fisher_floor": 0.1}})
    clone.run("dvc", "repro")
    assert clone.artifacts("clients") == clients
    assert clone.rows("demo") != first

    # A run changes nothing that DVC knows.
    clone.run("fedfisher", "run")
    clone.run("fedfisher", "run", "--set", "seeds=[1]")
    assert "up to date" in clone.run("dvc", "status", "demo", "privacy_demo").stdout

    push(clone, tmp_path / "remote")
    other = colleague(clone, tmp_path / "remote", links, "demo", "privacy_demo")
    other.run("fedfisher", "run", "params.yaml", "configs/privacy_demo.yaml")
    assert other.rows("demo") == clone.rows("demo")
    assert other.rows("privacy_demo") == clone.rows("privacy_demo")
    assert computed(other) == set()
    assert "up to date" in other.run("dvc", "repro").stdout
    # Nor does a stage that runs again lose what was pulled.
    shorten(other)
    other.run("dvc", "repro")
    assert other.rows("demo") == first
    assert computed(other) == {"aggregates", "measures"}


@pytest.mark.drawn(0)
@pytest.mark.parametrize("links", LINKS)
def test_any_other_experiment_is_a_stage_that_a_colleague_gets(clone: Workplace, tmp_path: Path, links: str) -> None:
    clone.run("dvc", "config", "--local", "cache.type", links)
    shorten(clone)
    clone.run("fedfisher", "run", "configs/fedfish_toy.yaml")
    made = clone.artifacts("fedfish_toy")
    clone.run("dvc", "repro", TOY)
    assert clone.artifacts("fedfish_toy") == made
    assert {path.name for path in (clone.folder / "stages/fedfish_toy/fedfish_toy").iterdir()} == set(made)
    assert "didn't change, skipping" in clone.run("dvc", "repro", TOY).stdout

    push(clone, tmp_path / "remote")
    other = colleague(clone, tmp_path / "remote", links, TOY)
    files = list((other.folder / "stages/fedfish_toy").glob("*/*/*"))
    assert {file.is_symlink() for file in files} == {links == "symlink"}
    other.run("fedfisher", "run", "configs/fedfish_toy.yaml")
    assert other.rows("fedfish_toy") == clone.rows("fedfish_toy")
    assert computed(other) == set()
    assert "didn't change, skipping" in other.run("dvc", "repro", TOY).stdout

    # DVC refuses what a kill leaves of its file; without it, the stage runs again and computes nothing.
    lock = clone.folder / "configs/dvc.lock"
    whole = lock.read_bytes()
    lock.write_bytes(b"")
    assert "configs/dvc.lock" in clone.run("dvc", "repro", TOY, code=255).stderr
    lock.unlink()
    clone.run("dvc", "repro", TOY)
    assert lock.read_bytes() == whole
    assert clone.artifacts("fedfish_toy") == made


@pytest.mark.drawn(0)
def test_a_stage_that_can_not_run_is_refused_before_any_work(clone: Workplace) -> None:
    assert "experiment@none" in clone.run("dvc", "repro", "configs/dvc.yaml:experiment@none", code=255).stderr
    (clone.folder / "configs/fedfish_toy.yaml").unlink()
    assert "configs/fedfish_toy.yaml" in clone.run("dvc", "repro", TOY, code=255).stderr
    said = clone.run("fedfisher", "stage", "configs/fedfish_toy.yaml", code=2).stderr
    assert (
        said == "fedfisher: config 'configs/fedfish_toy.yaml' does not exist; `fedfisher init config NAME` writes one\n"
    )
    clone.write("configs/fedfish_toy.yaml", TINY_TOY | {"toy": {"overlaps": [2.0]}})
    assert "toy.overlaps.0=2" in clone.run("dvc", "repro", TOY, code=255).stderr
    assert not (clone.folder / "artifacts").exists()
