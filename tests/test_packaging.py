import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]


def recipe(target: str) -> list[list[str]]:
    """The commands of a target of the Makefile, with its variables filled in."""
    makefile = (ROOT / "Makefile").read_text()
    variables = dict(re.findall(r"^(\w+) *[:?]?= *(.*)$", makefile, re.MULTILINE))
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert found is not None, f"the Makefile has no target {target!r}"
    filled = re.sub(r"\$\((\w+)\)", lambda match: variables[match[1]], found[1])
    return [shlex.split(line) for line in filled.splitlines()]


def hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    return [hook for repository in config["repos"] for hook in repository["hooks"]]


def test_citation_names_the_version_and_the_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", VERSION)
    assert citation["license"] == PROJECT["project"]["license"]
    assert "arXiv:2403.12329" in [one["value"] for paper in citation["references"] for one in paper["identifiers"]]


def test_the_newest_section_of_the_changelog_is_of_the_version() -> None:
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == VERSION


def test_hooks_of_the_whole_project_are_the_commands_of_lint() -> None:
    whole = [hook for hook in hooks() if hook.get("always_run") and not hook.get("pass_filenames", True)]
    assert [shlex.split(hook["entry"]) for hook in whole] == recipe("lint")


def test_hooks_are_valid_and_download_nothing() -> None:
    path = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", path], check=True)
    assert [repository["repo"] for repository in yaml.safe_load(path.read_text())["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks()} == {"system"}


def test_the_workflow_of_tests_runs_what_this_machine_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_workflow_of_releases_takes_only_a_tag_of_the_version() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (check,) = (step["run"] for step in jobs["build"]["steps"] if step.get("name", "").startswith("The tag"))
    for tag, code in ((f"v{VERSION}", 0), ("v9.9.9", 1)):
        done = subprocess.run(["bash", "-c", check], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag}, check=False)
        assert done.returncode == code


@pytest.mark.parametrize("package", PROJECT["tool"]["importlinter"]["root_packages"])
def test_type_markers_are_installed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"][package]


def test_every_tool_for_developers_is_pinned() -> None:
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    # Flower needs an environment of its own.
    extras = {name: extra for name, extra in PROJECT["project"]["optional-dependencies"].items() if name != "flower"}
    wanted = [*PROJECT["project"]["dependencies"], *(one for extra in extras.values() for one in extra)]
    # Behind a bracket are extras, which may be of this package.
    names = {re.split(r"[\[=<>]", one)[0] for one in wanted}
    assert names - {"fedfisher"} <= pinned


def test_supported_systems_are_named() -> None:
    systems = [one for one in PROJECT["project"]["classifiers"] if one.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
    assert "Linux or macOS, Python 3.11 to 3.13" in (ROOT / "README.md").read_text()
