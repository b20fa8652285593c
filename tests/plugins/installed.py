"""Installing a plug-in as pip would: its modules and the metadata that names its entry points."""

import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def install(site: Path, *, package: str, version: str, entry_points: Mapping[str, str], sources: Path) -> Path:
    """Put a package into a folder of installed packages.

    Args:
        site: the folder, which has to be on the path.
        package: name of the distribution.
        version: of it.
        entry_points: `name = module` by group.
        sources: folder of its modules.

    Returns:
        The folder.
    """
    site.mkdir(parents=True, exist_ok=True)
    modules = sorted(sources.glob("*.py"))
    for module in modules:
        shutil.copy(module, site)
    information = site / f"{package}-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"[{group}]\n{entry}\n" for group, entry in entry_points.items()]
    (information / "entry_points.txt").write_text("\n".join(lines))
    (information / "RECORD").write_text("".join(f"{module.name},,\n" for module in modules))
    return site


def install_project(site: Path, sources: Path) -> Path:
    """Put a package into a folder of installed packages, as its pyproject.toml says; see `install`."""
    project = tomllib.loads((sources / "pyproject.toml").read_text())["project"]
    return install(
        site,
        package=project["name"],
        version=project["version"],
        entry_points={
            group: "\n".join(f"{name} = {module}" for name, module in own.items())
            for group, own in project["entry-points"].items()
        },
        sources=sources,
    )


def environment(site: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Let commands find what is installed in a folder.

    Args:
        site: the folder.
        base: the environment otherwise.

    Returns:
        The environment.
    """
    return {**base, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT), *filter(None, [base.get("PYTHONPATH")])])}
