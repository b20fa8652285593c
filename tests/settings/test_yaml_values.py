import time
from itertools import pairwise

import pytest
import yaml

from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings.reading import MAX_CHARACTERS, read_yaml

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
