"""Settings of shifts: each client sees its own examples in its own way."""

from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import CoreSchema

from fedfisher_core.settings.base import Strict

ShiftKind = Literal["none", "rotation", "blur", "contrast", "noise", "labels"]
"""All but `labels` change the images; `labels` gives the same images other labels."""

# The largest strength, whether it is allowed itself, and the unit.
_LARGEST: dict[ShiftKind, tuple[float, bool, str]] = {
    "none": (0, True, ""),
    "rotation": (180, False, " degrees"),
    "blur": (100, True, " pixels"),
    "contrast": (1, False, ""),
    "noise": (10, True, ""),
    "labels": (1, True, ""),
}
_FORMS = "none, or {kind, strength} with the kinds rotation, blur, contrast, noise and labels"


class Shift(Strict):
    """A way in which clients differ besides their labels and sizes."""

    kind: ShiftKind
    strength: float = Field(0.0, ge=0, le=180)
    classes: Annotated[int, Field(ge=2)] | None = Field(
        None, description="for labels: how many classes, drawn with the seed, exchange their names; default: all"
    )

    @model_validator(mode="before")
    @classmethod
    def _none_is_a_word(cls, given: Any) -> Any:
        if given == "none":
            return {"kind": "none"}
        if not isinstance(given, dict | Shift):
            raise ValueError(f"allowed: {_FORMS}")
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allow the word "none" as well."""
        return {"anyOf": [handler(schema), {"const": "none"}]}

    @model_validator(mode="after")
    def _strength_is_the_kind_s(self) -> "Shift":
        largest, allowed, unit = _LARGEST[self.kind]
        below = self.strength < largest or (allowed and self.strength == largest)
        if not below or (self.strength == 0) != (self.kind == "none"):
            limit = f"above 0, {'up to' if allowed else 'below'} {largest}{unit}" if self else "0"
            raise ValueError(f"strength={self.strength:g} with kind={self.kind}; allowed: {limit}")
        if self.classes is not None and self.kind != "labels":
            raise ValueError(f"classes={self.classes} with kind={self.kind}; allowed: with kind=labels alone")
        return self

    @model_serializer(mode="wrap")
    def _as_it_is_given(self, fields: SerializerFunctionWrapHandler) -> Any:
        # Settings without a shift stay as they were before shifts existed.
        return {name: value for name, value in fields(self).items() if value is not None} if self else "none"

    def __bool__(self) -> bool:
        """Say whether there is a shift."""
        return self.kind != "none"

    def __str__(self) -> str:
        """Short name for people and messages."""
        return shift_name(self.kind, self.strength, self.classes)

    __repr__ = __str__


NO_SHIFT = Shift(kind="none")
"""Clients see their examples unchanged."""


def shift_name(kind: str, strength: float, classes: int | None) -> str:
    """Name a shift for people, such as "rotation 45"; `classes` is how many exchange their names, None for all."""
    if kind == NO_SHIFT.kind:
        return kind
    return f"{kind} {strength:g}" if classes is None else f"{kind} {strength:g} of {classes} classes"
