"""Settings as a file for people, which says of each key what it sets."""

import inspect
import math
import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from fedfisher_core.settings.experiment import LAST

_WIDTH = 116


def commented(settings: BaseModel) -> str:
    """Write settings as a settings file with a comment above each key that has a description."""
    return "\n".join(_lines(settings, "")) + "\n"


def _lines(settings: BaseModel, indent: str) -> Iterator[str]:
    written = settings.model_dump(mode="json")
    for name in sorted(written, key=LAST.__contains__):
        field = type(settings).model_fields[name]
        value = getattr(settings, name)
        described = field.description
        if described is None and isinstance(value, BaseModel):
            described = (inspect.getdoc(value) or "").partition("\n")[0]
        yield from textwrap.wrap(described or "", _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(written[name], dict) and written[name]:
            yield f"{indent}{name}:"
            yield from (f"{indent}  {_inline(key)}: {_inline(own)}" for key, own in written[name].items())
        else:
            yield f"{indent}{name}: {_inline(written[name])}"


def _inline(value: Any) -> str:
    """Write a value as YAML in one line."""
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=math.inf).strip()[1:-1]
