"""What a user begins with: a settings file with all keys, and a package with a method."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from fedfisher_core.experiments.contract import experiments, load
from flows.cli import main
from tests.plugins.installed import ROOT, environment


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["init", *arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def all_keys(settings: BaseModel) -> Iterator[str]:
    """Every key of settings, with those of the groups below it."""
    for name in type(settings).model_fields:
        yield name
        if isinstance(value := getattr(settings, name), BaseModel):
            yield from (f"{name}.{key}" for key in all_keys(value))


def keys_of(written: dict[str, Any], model: type[BaseModel]) -> Iterator[str]:
    """The same of a file, whose groups are those of a model."""
    for name, value in written.items():
        yield name
        kind = model.model_fields[name].annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(value, dict):
            yield from (f"{name}.{key}" for key in keys_of(value, kind))


@pytest.mark.parametrize("experiment", ["benchmark", "privacy_attack", "two_layer", "fedfish_toy"])
def test_a_settings_file_has_the_defaults_and_says_what_keys_set(workplace: Path, experiment: str) -> None:
    main(["init", "config", "mine", "--experiment", experiment])
    text = Path("mine.yaml").read_text()
    model = experiments.get(experiment).settings
    assert load(Path("mine.yaml")) == model(name="mine")
    assert set(keys_of(yaml.safe_load(text), model)) == set(all_keys(model(name="mine")))
    assert "  # tasks at a time; default: one a core." in text


def test_nothing_is_written_over_and_names_are_checked(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("name: mine\n")
    Path("taken").mkdir()
    assert "'mine.yaml' is there, and is not written over" in refused(capsys, "config", "mine")
    assert "name='leaderboard'" in refused(capsys, "config", "leaderboard.yaml")
    assert "did you mean 'two_layer'?" in refused(capsys, "config", "new", "--experiment", "two_layers")
    assert "'taken' is there, and is not written over" in refused(capsys, "method", "taken")
    assert "there is a method 'fedavg'" in refused(capsys, "method", "fedavg")
    assert "allowed: a name of small letters" in refused(capsys, "method", "My Method")
    # A keyword, a package that the new file would hide, and a module of Python's own.
    for name in ("lambda", "torch", "statistics"):
        assert f"Python has another use for {name!r}" in refused(capsys, "method", f"plugins/{name}")
    assert Path("mine.yaml").read_text() == "name: mine\n"
    assert sorted(path.name for path in workplace.iterdir()) == ["mine.yaml", "taken"]


def test_the_documents_show_the_method_that_is_written(workplace: Path) -> None:
    main(["init", "method", "my_method"])
    _, _, code = Path("my_method/my_method.py").read_text().partition("\n\n")
    assert f"```python\n{code}```" in (ROOT / "docs/methods.md").read_text()


def test_a_package_with_a_method_passes_its_own_test(workplace: Path) -> None:
    main(["init", "method", "plugins/my-method"])
    folder = workplace / "plugins/my-method"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert load(folder / "compare.yaml").name == "my_method"


def test_the_package_is_that_of_the_example(workplace: Path) -> None:
    main(["init", "method", "my_median"])
    for name in ("my_median.py", "pyproject.toml"):
        own, example = (
            (folder / name).read_text() for folder in (Path("my_median"), ROOT / "examples/compare_your_method")
        )
        # The example is a package of another name.
        assert own.partition("\n")[2] == example.replace("my-method", "my-median").partition("\n")[2], name
