"""The built packages, each installed where only what it asks for can be imported."""

import os
import subprocess
import sys
import venv
from collections.abc import Collection
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from safetensors.torch import load_file, save_file

from tests.end_to_end.conftest import ROOT, SMALL
from tests.fedfisher import own

pytestmark = [pytest.mark.end_to_end, pytest.mark.long]
# What the tests would find of the repository and of its environment.
OUTSIDE = ("PYTHONPATH", "PREFECT_API_URL", "FEDFISHER_DATA_DIR")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source package, and with the wheel that is built of it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def base(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel without extras."""
    return installed(next(built.glob("*.whl")), tmp_path_factory.mktemp("base"), extras=())


@pytest.fixture(scope="module")
def full(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the source package with the benchmark."""
    return installed(next(built.glob("*.tar.gz")), tmp_path_factory.mktemp("full"), extras=("benchmark",))


def installed(archive: Path, folder: Path, *, extras: Collection[str]) -> Path:
    """Install a package next to links to what it asks for, and return its command."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", str(archive)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (ours,) = (one for one in distributions(path=[str(packages)]) if one.name == "fedfisher")
    for found in needed(ours, extras):
        # Scripts lie above the folder of packages.
        for name in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(found.locate_file(name))))
    return folder / "bin/fedfisher"


def needed(ours: Distribution, extras: Collection[str]) -> list[Distribution]:
    """All that a package asks for, and what that asks for."""
    found: dict[tuple[str, str], Distribution] = {}
    waiting = [(ours, extra) for extra in ("", *extras)]
    while waiting:
        one, extra = waiting.pop()
        for wanted in map(Requirement, one.requires or []):
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                for asked in ("", *wanted.extras):
                    if (wanted.name, asked) not in found:
                        found[wanted.name, asked] = distribution(wanted.name)
                        waiting.append((found[wanted.name, asked], asked))
    return list(found.values())


def run(command: Path, folder: Path, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in OUTSIDE}
    environment["PREFECT_HOME"] = str(folder / "prefect")
    done = subprocess.run([command, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_clients_files_merge_without_extras(base: Path, tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text((ROOT / "tests/fedfisher/own.py").read_text().partition("def client(")[0])
    for number in range(2):
        save_file(own.network(number).state_dict(), tmp_path / f"weights{number}.safetensors")
        (tmp_path / f"data{number}").mkdir()
        for name, array in zip(("inputs", "labels"), own.examples(10 + number, number), strict=True):
            np.save(tmp_path / f"data{number}" / f"{name}.npy", array.numpy())
        given = [f"weights{number}.safetensors", "--network", "network:network", "--data", f"data{number}"]
        run(base, tmp_path, "statistics", *given, "--of", "weights,kfac", "-o", f"client{number}.safetensors")
    files = ["client0.safetensors", "client1.safetensors", "--network", "network:network"]
    run(base, tmp_path, "merge", *files, "--method", "fedfisher_kfac", "-o", "merged.safetensors")
    assert load_file(tmp_path / "merged.safetensors").keys() == own.network().state_dict().keys()


def test_the_benchmark_is_refused_by_the_name_of_its_extra(base: Path, tmp_path: Path) -> None:
    refused = run(base, tmp_path, "run", code=2)
    (line,) = refused.stderr.splitlines()
    assert line.startswith("fedfisher: fedfisher run needs ")
    assert line.endswith("; allowed: pip install 'fedfisher[benchmark]'")
    assert not list(tmp_path.iterdir())


def test_a_benchmark_runs_and_its_network_is_exported_without_extras(base: Path, full: Path, tmp_path: Path) -> None:
    settings = {
        **SMALL,
        "methods": {"fedavg": {}},
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(settings))
    run(full, tmp_path, "data", "fetch", "mnist5k")
    run(full, tmp_path, "run", "small.yaml")
    assert "<table" in (tmp_path / "results/small/index.html").read_text()
    run(base, tmp_path, "export", "small", "small.yaml", "--method", "fedavg", "-o", "network")
    assert (tmp_path / "network/network.pt2").is_file()
