from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.configuration import nearest, override, read_file, validate
from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings


@pytest.mark.parametrize(
    ("content", "key", "hint"),
    [
        ({"sead": [1]}, "'sead'", "'seeds'"),
        ({"train": {"epoch": 3}}, "'train.epoch'", "'epochs'"),
        ({"partition": {"aplha": 0.1}}, "'partition.aplha'", "'alpha'"),
        ({"run": {"tracking": 1}}, "'run.tracking'", "allowed: "),
        ({"report": {"titel": "x"}}, "'report.titel'", "'title'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(content: dict[str, Any], key: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, content)
    assert f"unknown setting {key}" in str(caught.value)
    assert hint in str(caught.value)


def test_a_key_like_none_is_answered_with_what_is_allowed() -> None:
    with pytest.raises(InputError, match=r"unknown setting 'train\.zzz'; allowed: batch_size, epochs"):
        validate(BenchmarkSettings, {"train": {"zzz": 1}})


def test_what_is_allowed_is_listed() -> None:
    assert nearest("regmeen", ["regmean", "fedavg"]) == "did you mean 'regmean'? allowed: fedavg, regmean"
    assert nearest("xyz", ["regmean", "fedavg"]) == "allowed: fedavg, regmean"


def test_an_override_changes_one_setting_and_makes_the_groups_on_its_way() -> None:
    content: dict[str, Any] = {"train": {"epochs": 3}, "report": None}
    for text in ("train.momentum=0.5", "report.title=A = b", "partition.alpha=[1, 2]", "train.epochs=none"):
        override(content, text)
    assert content == {
        "train": {"epochs": "none", "momentum": 0.5},
        "report": {"title": "A = b"},
        "partition": {"alpha": [1, 2]},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.epochs", "must have the form key=value"),
        ("=3", "must have the form key=value"),
        ("seeds=[1, 2", "is not YAML"),
        ("name.first=a", "'name' is a value, not a group"),
    ],
)
def test_an_override_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        override({"name": "small"}, text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must hold a mapping of settings, not NoneType"),
        (b"- 1", "must hold a mapping of settings, not list"),
        (b"a: [", "can't be read"),
        (b"\xff\xfe\xfa", "can't be read"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_file(path)
    assert message in str(caught.value)
    assert "bad.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml' does not exist"):
        read_file(tmp_path / "absent.yaml")
