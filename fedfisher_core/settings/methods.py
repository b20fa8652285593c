"""The settings of one method in a configuration file."""

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from fedfisher_core.settings.base import Line
from fedfisher_core.settings.cells import Scope
from fedfisher_core.settings.wire import WireFields


class MethodEntry(BaseModel):
    """One method under its label: the settings of all methods, and beside them those of its own.

    Attributes:
        method: its name; None where the label is the name.
        only: the points of the benchmark that it runs in.
        wire: what of its uploads differs from the benchmark's.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, ser_json_inf_nan="constants")

    method: Line | None = None
    only: Scope = Scope()
    wire: WireFields = WireFields()

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the method's own settings that differ from its defaults."""
        return dict(self.model_extra or {})

    @model_serializer(mode="wrap")
    def _what_was_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write what a file would hold."""
        written = handler(self)
        for name in type(self).model_fields:
            if name not in self.model_fields_set:
                written.pop(name, None)
            elif isinstance(value := getattr(self, name), BaseModel):
                written[name] = value.model_dump(mode="json", exclude_unset=True)
        return written
