"""Numbers and settings as the report writes them."""

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

MINUS = "\u2212"
_THIN_SPACE = "\u2009"


def percent(fraction: float, digits: int = 2) -> str:
    """Write a fraction in per cent, without the sign."""
    return f"{100 * fraction:.{digits}f}"


def points(fraction: float) -> str:
    """Write a difference of fractions in percentage points, always signed."""
    return signed(100 * fraction)


def signed(number: float) -> str:
    """Write a number to hundredths with its sign; what rounds to nothing has none."""
    text = f"{number:+.2f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def seconds(value: float) -> str:
    """Write seconds to hundredths; what is less than that, but not nothing, is said to be."""
    return f"<{_THIN_SPACE}0.01" if 0 < value < 0.005 else f"{value:.2f}"


def probability(value: float) -> str:
    """Write a p-value to thousandths; what is less than that is said to be."""
    return f"<{_THIN_SPACE}0.001" if value < 0.0005 else f"{value:.3f}"


def megabits(bits: float) -> str:
    """Write bits as megabits, to thousandths."""
    return f"{bits / 1e6:.3f}"


def grouped(number: int) -> str:
    """Write a whole number with thin spaces between its thousands."""
    return f"{number:,}".replace(",", _THIN_SPACE)


def significant(number: float) -> str:
    """Write a number to three significant digits, zeros included."""
    return f"{number:#.3g}".removesuffix(".")


def plural(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def breakable(label: str) -> Markup:
    """Let a label break after its underscores, where a narrow screen needs it."""
    return escape(label).replace("_", Markup("_<wbr>"))


def setting_value(value: Any) -> str:
    """Write a setting's value: strings as they are, lists with commas, the rest as in JSON."""
    if isinstance(value, str):
        return value
    if value is None or value in ({}, [], ()):
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(setting_value(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {setting_value(item)}" for key, item in value.items())
    return json.dumps(value, default=str)


def settings_groups(settings: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Arrange nested settings for reading.

    Args:
        settings: the settings; every mapping in them is a group with a dotted name.

    Returns:
        Name and (setting, value) pairs of each group that has any; what is in no group is in "general".
    """
    return [(name or "general", pairs) for name, pairs in _groups(settings, "") if pairs]


def _groups(settings: Mapping[str, Any], name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    inner = {key: value for key, value in settings.items() if isinstance(value, Mapping) and value}
    own = [(key, setting_value(value)) for key, value in settings.items() if key not in inner]
    groups = [(name, own)]
    for key, value in inner.items():
        groups += _groups(value, f"{name}.{key}" if name else key)
    return groups
