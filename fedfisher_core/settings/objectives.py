"""The settings of one local objective in a configuration file."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from fedfisher_core.settings.base import Line

PLAIN = "plain"
"""The objective of clients that are told no other."""


class ObjectiveEntry(BaseModel):
    """One local objective under its label: its name, and beside it the settings of its own.

    Attributes:
        name: the objective's; None where the label is the name.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, ser_json_inf_nan="constants")

    name: Line | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the objective's own settings that differ from its defaults."""
        return dict(self.model_extra or {})

    @model_serializer(mode="wrap")
    def _what_was_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write what a file would hold."""
        written = handler(self)
        if self.name is None:
            del written["name"]
        return written


def objectives_by_label(value: Any) -> Any:
    """Let objectives be given without labels: as a name, a mapping with a name, or a list of these.

    Args:
        value: any of them, or objectives by label, which stay as they are.

    Returns:
        The objectives by label, which is the name where there was none.

    Raises:
        ValueError: the value has another form, or an objective of a list has no name or that of another.
    """
    if isinstance(value, Mapping) and not isinstance(value.get("name"), str):
        return value
    given = value if isinstance(value, list | tuple) else (value,)
    entries = [{"name": one} if isinstance(one, str) else one for one in given]
    names = [one.get("name") if isinstance(one, Mapping) else None for one in entries]
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(
            "allowed: names that differ, each alone or in a mapping such as {name: fedprox, mu: 0.1}; "
            "or a mapping of labels to settings"
        )
    return {one["name"]: {key: chosen for key, chosen in one.items() if key != "name"} for one in entries}


def require_plain_by_name(objectives: dict[str, ObjectiveEntry]) -> dict[str, ObjectiveEntry]:
    """Refuse another objective under the label of the default, which names of settings leave out.

    Args:
        objectives: by label.

    Returns:
        The same.

    Raises:
        ValueError: the label `plain` stands for another objective.
    """
    chosen = objectives.get(PLAIN, ObjectiveEntry()).name
    if chosen not in (None, PLAIN):
        raise ValueError(f"label {PLAIN!r} stands for {chosen!r}; allowed: {PLAIN!r} alone, or another label")
    return objectives
