import re
import shlex
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


def test_changelog_has_a_section_for_the_version_and_one_for_what_follows() -> None:
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[:2] == ["Unreleased", VERSION]


def test_hooks_are_the_commands_of_lint() -> None:
    assert [shlex.split(hook["entry"]) for hook in hooks()] == recipe("lint")


def test_hooks_look_at_the_whole_project_and_download_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    for hook in hooks():
        assert (hook["language"], hook["always_run"], hook["pass_filenames"]) == ("system", True, False)


@pytest.mark.parametrize("package", PROJECT["tool"]["importlinter"]["root_packages"])
def test_type_markers_are_installed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"][package]


def test_every_tool_for_developers_is_pinned() -> None:
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(one for extra in extras.values() for one in extra)]
    # Behind a bracket are extras, which may be of this package.
    names = {re.split(r"[\[=<>]", one)[0] for one in wanted}
    assert names - {"fedfisher"} <= pinned
