import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.settings.reading import MAX_CHARACTERS, nearest, override, read_file, read_yaml, validate


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


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "large"])
def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd.yaml"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "large":
            path.write_bytes(b"#" * 2**20)
    with pytest.raises(InputError, match=r"odd\.yaml' can't be read: it (is no|is a f|has 1048576 bytes; allowed)"):
        read_file(path)


def test_messages_are_short_whatever_the_value_is() -> None:
    content = {"train": {"epochs": "x" * 10**7, "batch_size": list(range(10**5))}, "x" * 10**6: 1}
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, content)
    assert len(str(caught.value)) < 2000
    assert "train.epochs='xxx" in str(caught.value)
    assert "(10,000,002 characters)" in str(caught.value)
    with pytest.raises(InputError) as caught:
        override({}, "x" * 10**6)
    assert len(str(caught.value)) < 500


def test_of_many_problems_the_first_are_told_and_the_others_counted() -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, {f"unknown{number}": 1 for number in range(30)})
    *lines, last = str(caught.value).splitlines()
    assert len(lines) == 5
    assert last == "and 25 more"


def test_a_list_with_a_wrong_value_is_not_called_too_short() -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, {"partition": {"clients": [0]}})
    assert "too short" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_name_with_control_characters_stays_on_its_line() -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, {"train\nepochs": 1})
    assert len(str(caught.value).splitlines()) == 1


def test_an_override_is_of_bounded_depth() -> None:
    content: dict[str, Any] = {}
    override(content, ".".join(20 * "a") + "=1")
    for _ in range(20):
        content = content["a"]
    assert content == 1
    for parts in (21, 5000):
        with pytest.raises(InputError, match=f"the key has {parts:,} parts; allowed: up to 20"):
            override({}, ".".join(parts * "a") + "=1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"seeds": "0-4"}, "seeds='0-4': is no number; allowed: numbers, several of them as in [0, 1, 2]"),
        ({"seeds": ["0-4"]}, "seeds=['0-4']: is no number"),
        ({"seeds": "0..4"}, "seeds='0..4': is no number"),
        ({"seeds": "0,1,2"}, "seeds='0,1,2': is no number"),
        ({"partition": {"clients": "0-4"}}, "partition.clients='0-4': is no number"),
        ({"partition": {"alpha": "0-4"}}, "partition.alpha='0-4': is no number"),
        ({"train": {"epochs": "0_4"}}, "train.epochs='0_4': is no number"),
        ({"wire": {"budget": "0-4"}}, "wire.budget='0-4': is no number"),
        ({"train": {"epochs": True}}, "train.epochs=True: must be no boolean"),
    ],
)
def test_text_and_booleans_are_not_read_as_numbers(content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, content)
    assert str(caught.value).startswith(message)


def test_numbers_that_yaml_reads_as_text_are_numbers() -> None:
    settings = validate(
        BenchmarkSettings, {"seeds": "3", "train": {"learning_rate": "1e-3"}, "wire": {"budget": "none"}}
    )
    assert (settings.seeds, settings.train.learning_rate, settings.wire.budget) == ((3,), 0.001, "none")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml' does not exist"):
        read_file(tmp_path / "absent.yaml")


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(9 * [f'*{before}'])}]\n" for before, name in pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1",
        "a: [0, -1, 10_000, 0x1f, 0.5, -0.25, 00.5, '1:5', '010', text]",
        "a: [1, 0.5, 1.0e-3, true, null, text, '2024-13-45', {b: {}}]",
        "{1: upload, two: 2}",
        "a: |\n  two\n  lines\n",
        "a: &unused {x: 1}",
    ],
)
def test_plain_values_are_what_yaml_says(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 2024-13-45",
            "line 1, column 4: '2024-13-45' is a 'timestamp'; allowed: null, true, false, numbers, and text",
        ),
        ("a: 2024-01-05", "is a 'timestamp'"),
        ("a: 0x_", "'0x_' is no int; allowed: text in quotes"),
        ("seeds: 1:5", "'1:5' is no plain number, as YAML counts in sixties after a colon"),
        ("a: 1:30.5", "'1:30.5' is no plain number"),
        ("a: 010", "'010' is no plain number"),
        ("a: -007", "'-007' is no plain number"),
        ("!!bool maybe", "'maybe' is no bool"),
        ("!!int ''", "'' is no int"),
        ("!!float x", "'x' is no float"),
        ("a: " + "9" * 5000, r"'9999.* is a long number; allowed: up to 400 characters"),
        ("a: !!binary aGk=", "'aGk=' is a 'binary'"),
        ("!!set {a}", "it is a 'set'; allowed: .*lists and mappings"),
        ("!!map x", "'x' is a 'map'"),
        ("!!python/object/apply:os.system [ls]", "a 'python/object/apply:os.system'"),
        ("a: =", "'=' is a 'value'"),
        ('a: "\\ud800"', "holds a lone surrogate"),
        ("\na: {b: 1, b: 2}", "line 2, column 11: key 'b' stands there twice; allowed: once"),
        ("{[1]: 2}", "key a list or a mapping is no name; allowed: text"),
        ("yes: 1", "key 'yes' is no name"),
        ("~: 1", "key '~' is no name"),
        ("&a [1, *a]", "line 1, column 8: alias 'a'; allowed: to write the value out"),
        ("*b", "alias 'b'"),
        ("<<: 3", "'<<' is a 'merge'"),
        ("a: [", "expected the node content"),
        ("a\x00", "special characters are not allowed"),
        ("1\n---\n2", "expected a single document"),
        (LAUGHS, "line 2, .*alias 'a'"),
        ("[" * 50_000, "line 1, column 21: values are nested too deeply; allowed: up to 20 levels"),
        ("{a: " * 10_000, "nested too deeply"),
        ("- " * 30_000, "nested too deeply"),
        ("- 1\n" * 30_000, "it has 120,000 characters"),
        ("x" * (MAX_CHARACTERS + 1), "it has 65,537 characters; allowed: up to 65,536"),
    ],
)
def test_anything_else_is_refused_in_one_short_line_at_once(text: str, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(InputError, match=message) as caught:
        read_yaml(text)
    # Of processor time; only what grows without bound takes so long.
    assert time.process_time() - begun < 60
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
