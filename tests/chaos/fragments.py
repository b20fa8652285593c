"""Settings files at random: fragments of YAML for every setting that a pydantic schema knows."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]
KeyPath = tuple[str, ...]

_NUMBERS = (
    *("0", "-1", "1", "2", "3", "0.5", "-0.0", "1e-300", "1.0e-300", "1.0e+308", "1.0e+309", "-1.0e+308"),
    *(".nan", ".inf", "-.inf", "1000000000", "1000000000000", "18446744073709551616", "9" * 400, "9" * 5000),
    *("0x_", "0b_", "0x" + "f" * 200, "1:99:99"),
)
_OTHERS = (
    *("2024-13-45", "2024-01-05", "2024-01-05 25:00:00", "!!binary aGk=", "!!set {a}", "!!python/tuple [1]"),
    *("!!python/object/apply:os.system [ls]", "!!int x", "!!float ''", "!!timestamp x", "=", "*nowhere"),
    *("&a [*a]", "&b {c: *b}", "[" * 2000 + "]" * 2000, "{a: " * 30 + "1" + "}" * 30),
    *("{a: 1, a: 2}", "{1: 2}", "{[1]: 2}", "{null: 1}", "{<<: 3}", "{}", "{x: 1}", "{none: {}}"),
    *("null", "true", "no", "none", "''", "' '", '"\\0"', '"\\ud800"', '"a\\nb"', '"\\u202e"'),
    *("x" * 300, "ü" * 200, "a/b", "../..", "/", "=1+1"),
    *("[]", "[[]]", "[1, 1]", "[1, 2, 3]", "[0, 1, 2, 3, 4, 5, 6, 7]", "[null]", "[a, b]", "[fedavg, fedavg]"),
)
# By the title that pydantic gives a setting.
_NAMES = {
    "Dataset": ["tiny", "mnist5k"],
    "Name": ["tiny", "linear", "lenet"],
    "Column": ["maker"],
    "Method": ["fedavg", "fedfisher_kfac", "otfusion"],
    "Mlflow": ["sqlite:///other.db"],
}
_ODD = (
    st.sampled_from(_NUMBERS + _OTHERS)
    | st.text(max_size=20).map(json.dumps)
    | st.integers().map(str)
    | st.floats().map(str)
)


def key_paths_of(schema: Schema) -> Iterator[tuple[KeyPath, Schema]]:
    """List every setting and every group of settings with its own schema.

    Args:
        schema: of a model, with its definitions.

    Yields:
        Each one's keys and schema.
    """
    yield from _key_paths(schema, schema.get("$defs", {}), ())


def _key_paths(schema: Schema, definitions: Mapping[str, Schema], place: KeyPath) -> Iterator[tuple[KeyPath, Schema]]:
    for option in _options(schema, definitions):
        for name, inner in option.get("properties", {}).items():
            yield (*place, name), {**inner, "$defs": definitions}
            yield from _key_paths(inner, definitions, (*place, name))


def _options(schema: Schema, definitions: Mapping[str, Schema]) -> list[Schema]:
    """What a schema may stand for, references followed."""
    if "$ref" in schema:
        return _options(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return [found for one in schema["anyOf"] for found in _options(one, definitions)]
    return [schema]


def fragments_of(schema: Schema) -> st.SearchStrategy[str]:
    """Write values of one setting: mostly such as it takes, else anything."""
    definitions = schema.get("$defs", {})
    shared = {"title": schema.get("title", ""), "$defs": definitions}
    fitting = st.one_of(*(_fitting({**shared, **one}) for one in _options(schema, definitions)))
    return st.integers(0, 9).flatmap(lambda drawn: _ODD if drawn == 0 else fitting)


def _fitting(schema: Schema) -> st.SearchStrategy[str]:
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")])).map(json.dumps)
    least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", 1000)
    match schema.get("type"):
        case "integer":
            low, high = int(least or 0), int(most)
            return (st.sampled_from([low, high]) | st.integers(low, max(low, min(high, 8)))).map(str)
        case "number":
            return st.sampled_from([least or 0, most, 0.1, 0.5, 1, 8]).map(lambda number: f"{float(number)!r}")
        case "boolean":
            return st.sampled_from(["true", "false"])
        case "array":
            shared = {key: schema[key] for key in ("$defs", "title") if key in schema}
            inner = fragments_of({**schema.get("items", {}), **shared})
            return st.lists(inner, max_size=3, unique=True).map(lambda items: f"[{', '.join(items)}]")
        case "object":
            return st.just("{}")
        case "null":
            return st.just("null")
        case "string":
            return st.sampled_from(_NAMES.get(schema.get("title", ""), ["x", "'A, Table 1'"]))
    return _ODD


def written(content: Mapping[str, Any]) -> str:
    """Write nested mappings, whose innermost values are fragments, as one line of YAML."""
    inner = (f"{json.dumps(key)}: {written(one) if isinstance(one, dict) else one}" for key, one in content.items())
    return f"{{{', '.join(inner)}}}"


def changed(content: dict[str, Any], place: KeyPath, fragment: str) -> None:
    """Put a fragment into nested mappings; it replaces what stands in its way."""
    *parents, last = place
    for parent in parents:
        if not isinstance(content.get(parent), dict):
            content[parent] = {}
        content = content[parent]
    content[last] = fragment
