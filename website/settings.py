"""Settings in tables of Markdown: keys, defaults, what is allowed and what it means, from the models' schemas."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from fedfisher_core.experiments.contract import experiments
from website.markup import escaped

_BOUNDS = {"exclusiveMinimum": "above", "minimum": "from", "maximum": "up to", "exclusiveMaximum": "below"}


def reference() -> str:
    """Write the page of all settings, experiment by experiment."""
    parts = [
        "# All settings",
        "This page is made from the settings' own descriptions. [Settings](settings.md) says how files, lists and "
        "labels work. A group of settings, such as `train`, is a mapping, and the keys of a group have a table.",
    ]
    shown: set[str] = set()
    for name in experiments:
        schema = experiments.get(name).settings.model_json_schema()
        parts += [f"## Experiment `{name}`", _table(schema["properties"], schema), *_groups(schema, shown)]
        shown |= schema["$defs"].keys()
    return "\n\n".join(parts) + "\n"


def tables(model: type[BaseModel]) -> str:
    """Write the settings of a method; choices that have settings of their own follow in tables of their own."""
    schema = model.model_json_schema()
    if not schema.get("properties"):
        return "It has no settings."
    return "\n\n".join([_table(schema["properties"], schema), *_groups(schema, set())])


def _groups(schema: Mapping[str, Any], shown: Collection[str]) -> Iterator[str]:
    """Write a table of each group that a schema refers to, but for those that the page has."""
    referred = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    for group, own in schema.get("$defs", {}).items():
        if "properties" in own and group in referred - set(shown):
            about = _about({"$ref": f"#/$defs/{group}"}, schema)
            yield f"### {group}\n\n{escaped(about)}\n\n{_table(own['properties'], schema)}"


def _about(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Read what a group of settings is for; empty for a setting that is no group."""
    group = str(schema.get("$ref", "")).rpartition("/")[2]
    return str(whole["$defs"][group].get("description", "")).partition("\n\n")[0] if group else ""


def _table(properties: Mapping[str, Mapping[str, Any]], whole: Mapping[str, Any]) -> str:
    lines = ["| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    for name, own in properties.items():
        meaning = own.get("description") or _about(own, whole)
        lines.append(f"| `{name}` | {_default(own)} | {_allowed(own, whole)} | {escaped(meaning)} |")
    return "\n".join(lines)


def _default(schema: Mapping[str, Any]) -> str:
    if "discriminator" in schema:
        return f"`{schema['default']['name']}`"
    if "default" not in schema or "$ref" in schema:
        return ""
    return f"`{json.dumps(schema['default'], ensure_ascii=False)}`".replace("|", "\\|")


def _allowed(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        group = str(schema["$ref"]).rpartition("/")[2]
        own = whole["$defs"][group]
        return f"[{group}](#{group.lower()})" if "properties" in own else _allowed(own, whole)
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if options:
        # A single value, which people mostly give, comes before a list.
        ordered = sorted(options, key=lambda one: one.get("type") == "array")
        return " or ".join(dict.fromkeys(_allowed(one, whole) for one in ordered))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"a list, each {_allowed(schema.get('items', {}), whole)}"
    bounds = [f"{word} {_number(schema[key])}" for key, word in _BOUNDS.items() if key in schema]
    words = {"object": "mapping", "string": "text", "null": "none", "boolean": "true or false"}
    return " ".join([words.get(kind, kind), *bounds])


def _number(bound: float) -> str:
    return f"{bound:,.15g}" if abs(bound) < 1e10 else f"{bound:.3g}"
