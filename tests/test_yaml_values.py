import time
from itertools import pairwise

import pytest
import yaml

from fedfisher_core.errors import InputError
from fedfisher_core.yaml_values import MAX_CHARACTERS, read_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(9 * [f'*{before}'])}]\n" for before, name in pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1",
        "a: [1, 0.5, 1.0e-3, true, null, text, '2024-13-45', {b: {}}]",
        "{1: upload, two: 2}",
        "a: |\n  two\n  lines\n",
        "a: &shared {x: 1}\nb: *shared\nc: {<<: *shared, y: 2}",
    ],
)
def test_plain_values_are_what_yaml_says(text: str) -> None:
    assert read_yaml(text) == yaml.safe_load(text)


def test_an_alias_stands_for_a_copy() -> None:
    values = read_yaml("a: &shared {x: 1}\nb: *shared")
    values["b"]["x"] = 2
    assert values["a"] == {"x": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 2024-13-45",
            "line 1, column 4: '2024-13-45' is a 'timestamp'; allowed: null, true, false, numbers, and text",
        ),
        ("a: 2024-01-05", "is a 'timestamp'"),
        ("a: 0x_", "'0x_' is no int; allowed: text in quotes"),
        ("!!bool maybe", "'maybe' is no bool"),
        ("!!int ''", "'' is no int"),
        ("!!float x", "'x' is no float"),
        ("a: " + "9" * 5000, r"'9999.* is a long number; allowed: up to 400 characters"),
        ("a: !!binary aGk=", "'aGk=' is a 'binary'"),
        ("!!set {a}", "a 'set'; allowed: lists and mappings"),
        ("!!python/object/apply:os.system [ls]", "a 'python/object/apply:os.system'"),
        ("a: =", "'=' is a 'value'"),
        ('a: "\\ud800"', "holds a lone surrogate"),
        ("\na: {b: 1, b: 2}", "line 2, column 11: key 'b' stands there twice; allowed: once"),
        ("{[1]: 2}", "key a list or a mapping is no name; allowed: text"),
        ("yes: 1", "key 'yes' is no name"),
        ("~: 1", "key '~' is no name"),
        ("&a [1, *a]", "'a' contains itself"),
        ("&a {b: *a}", "'a' contains itself"),
        ("&a {<<: *a}", "'a' contains itself"),
        ("*b", "found undefined alias 'b'"),
        ("<<: 3", "expected a mapping or list of mappings for merging"),
        ("a: [", "expected the node content"),
        ("a\x00", "special characters are not allowed"),
        ("1\n---\n2", "expected a single document"),
        (LAUGHS, "line 5, .*too many values; allowed: up to 10,000, copies by aliases included"),
        ("[" * 50_000, "line 1, column 21: values are nested too deeply; allowed: up to 20 levels"),
        ("{a: " * 20_000, "nested too deeply"),
        ("- " * 50_000, "nested too deeply"),
        ("- 1\n" * 30_000, "too many values"),
        ("x" * (MAX_CHARACTERS + 1), "it has 131,073 characters; allowed: up to 131,072"),
    ],
)
def test_anything_else_is_refused_in_one_short_line_at_once(text: str, message: str) -> None:
    begun = time.process_time()
    with pytest.raises(InputError, match=message) as caught:
        read_yaml(text)
    assert time.process_time() - begun < 2
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
