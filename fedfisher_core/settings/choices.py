"""One of several registered things under a label, with settings of its own, as a configuration file chooses it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fedfisher_core.settings.base import Count, Forms, Label, Line, Momentum, Nonnegative, Positive, Steps, Strict

PLAIN = "plain"
"""The local objective of clients that are told no other."""

AVERAGE = "average"
"""The server optimiser of servers that are told no other: the aggregate is the next start."""


class Choice(BaseModel):
    """One thing under its label: its name, and beside it the settings of its own.

    Attributes:
        name: the thing's; None where the label is the name.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, ser_json_inf_nan="constants")

    name: Line | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the thing's own settings that differ from its defaults."""
        return dict(self.model_extra or {})

    @model_serializer(mode="wrap")
    def _what_was_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write what a file would hold."""
        return {
            name: value
            for name, value in handler(self).items()
            if value is not None or name not in type(self).model_fields
        }


class LocalChanges(Strict):
    """Settings of local training that differ for one objective; see `TrainSettings`."""

    epochs: Count | None = None
    steps: Steps | None = None
    learning_rate: Positive | None = None
    momentum: Momentum | None = None
    weight_decay: Nonnegative | None = None
    batch_size: Count | None = None

    @model_validator(mode="after")
    def _one_length(self) -> "LocalChanges":
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs} with steps={self.steps}; allowed: one of them")
        return self

    @model_serializer(mode="wrap")
    def _what_was_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write what a file would hold."""
        return {name: value for name, value in handler(self).items() if value is not None}

    @property
    def chosen(self) -> dict[str, Any]:
        """What was chosen, by name; a length in epochs undoes one in steps, and the other way round."""
        given = self.model_dump()
        undone = {"epochs": None, "steps": None} if given.keys() & {"epochs", "steps"} else {}
        return undone | given


class ObjectiveChoice(Choice):
    """A local objective with its settings, and how clients that minimise it train.

    Attributes:
        train: what differs from `train`; None where nothing does.
    """

    train: LocalChanges | None = None


def choices_by_label(example: str) -> Callable[[Any], Any]:
    """Let things be given without labels: as a name, a mapping with a name, or a list of these.

    Args:
        example: of such a mapping, for messages.

    Returns:
        A function from any of them to the things by label, which is the name where there was none; things by label stay
        as they are. It raises ValueError where the value has another form, or a thing of a list has no name or that of
        another.
    """

    def by_label(value: Any) -> Any:
        if isinstance(value, Mapping) and not isinstance(value.get("name"), str):
            return value
        given = value if isinstance(value, list | tuple) else (value,)
        entries = [{"name": one} if isinstance(one, str) else one for one in given]
        names = [one.get("name") if isinstance(one, Mapping) else None for one in entries]
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError(
                f"allowed: names that differ, each alone or in a mapping such as {example}; "
                "or a mapping of labels to settings"
            )
        return {one["name"]: {key: chosen for key, chosen in one.items() if key != "name"} for one in entries}

    return by_label


C = TypeVar("C", bound=Choice)


def default_by_name(default: str) -> Callable[[dict[str, C]], dict[str, C]]:
    """Refuse another thing under the label of the default, which names of settings leave out.

    Args:
        default: its label.

    Returns:
        A function that leaves choices as they are. It raises ValueError where the label stands for something else.
    """

    def require(choices: dict[str, C]) -> dict[str, C]:
        chosen = choices[default].name if default in choices else None
        if chosen not in (None, default):
            raise ValueError(f"label {default!r} stands for {chosen!r}; allowed: {default!r} alone, or another label")
        return choices

    return require


def _plain_as_train_says(recipes: dict[str, ObjectiveChoice]) -> dict[str, ObjectiveChoice]:
    if PLAIN in recipes and recipes[PLAIN].train is not None:
        raise ValueError(
            f"label {PLAIN!r} has a train of its own; allowed: another label, such as slow: {{name: {PLAIN}, train: "
            "{learning_rate: 0.001}}"
        )
    return recipes


def _without_labels(by_label: dict[str, Any]) -> list[dict[str, Any]]:
    """Schemas of what `choices_by_label` reads beside things by label."""
    alone = [{"type": "string"}, by_label["additionalProperties"]]
    return [*alone, {"type": "array", "items": {"anyOf": alone}}]


Objectives = Annotated[
    dict[Label, ObjectiveChoice],
    Forms(choices_by_label("{name: fedprox, mu: 0.1}"), _without_labels),
    AfterValidator(default_by_name(PLAIN)),
    AfterValidator(_plain_as_train_says),
]
ServerOptimisers = Annotated[
    dict[Label, Choice],
    Forms(choices_by_label("{name: fedadam, learning_rate: 0.01}"), _without_labels),
    AfterValidator(default_by_name(AVERAGE)),
]
