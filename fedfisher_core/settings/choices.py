"""A choice of one registered thing, and its settings: the keyword arguments of its function."""

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.settings.base import (
    Count,
    Forms,
    Label,
    Line,
    Momentum,
    Nonnegative,
    Positive,
    Steps,
    Strict,
    require_numbers,
)
from fedfisher_core.settings.reading import explained, nearest

S = TypeVar("S", bound=BaseModel)

_LARGEST = {int: 10**9, float: 1e30}

PLAIN = "plain"
"""The default local objective."""
AVERAGE = "average"
"""The default server optimiser: the aggregate is the next start."""


class _Keywords(BaseModel):
    """Settings with bounds on all numbers: without bounds, a typing error could start a run that never ends."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_only(cls, given: Any) -> Any:
        require_numbers(given, cls.model_fields)
        return given

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        # YAML reads 1e40 as text, so that numbers are known once they have been read.
        for number in _numbers_in(self.model_dump(exclude_unset=True)):
            largest = _LARGEST[type(number)]
            if largest < abs(number) < math.inf:
                raise ValueError(f"{shown(number)} is among them; allowed: from {-largest:g} to {largest:g}")
        return self


def _numbers_in(given: Any) -> Iterator[int | float]:
    if type(given) in _LARGEST:
        yield given
    elif isinstance(given, Mapping | list | tuple):
        for one in given.values() if isinstance(given, Mapping) else given:
            yield from _numbers_in(one)


def settings_of(
    function: Callable[..., Any], *, owner: str, name: str, reserved: Collection[str] = ()
) -> type[BaseModel]:
    """Make a model of a function's keyword-only arguments, with their types and defaults.

    Args:
        function: its other arguments need no types.
        owner: what has the settings, for messages, such as "method".

    Raises:
        InputError: an argument has no type, no default, or a reserved name.
    """
    told = meanings(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in reserved:
            raise InputError(f"{owner} {name!r}: argument {parameter.name!r}; allowed: any name but {tuple(reserved)}")
        if inspect.Parameter.empty in (parameter.annotation, parameter.default):
            raise InputError(f"{owner} {name!r}: argument {parameter.name!r} needs a type and a default")
        annotation, default = _evaluate(parameter.annotation, function), parameter.default
        if parameter.name in told and FieldInfo.from_annotation(annotation).description is None:
            default = Field(default, description=told[parameter.name])
        fields[parameter.name] = (annotation, default)
    return create_model(name, __base__=_Keywords, **fields)


def meanings(doc: str) -> dict[str, str]:
    """Read what a docstring says of each argument, without its last full stop."""
    args = re.search(r"^Args:\n((?:[ ].*\n?|\n)*)", doc, re.MULTILINE)
    found = re.findall(r"^    (\w+): ((?:.|\n(?=     ))*)", args[1], re.MULTILINE) if args else []
    return {name: " ".join(meaning.split()).removesuffix(".") for name, meaning in found}


def choose(settings: type[S], given: Any, *, key: str, besides: Collection[str] = ()) -> S:
    """Read settings, with defaults for those that are not given.

    Args:
        given: settings that differ from the defaults, by name.
        key: of the group of settings, for messages, such as "methods.fedavg".

    Raises:
        InputError: a setting is unknown, or its value is not allowed; the message has the setting's key.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{key}={shown(given)}: must be a mapping of settings")
    known = list(settings.model_fields)
    for name in given:
        if name not in known:
            raise InputError(f"unknown setting {shown(f'{key}.{name}')}; {nearest(str(name), [*known, *besides])}")
    try:
        return settings.model_validate(dict(given))
    except ValidationError as error:
        raise InputError(explained(error.errors(include_url=False)[0], key=key)) from None


def _evaluate(annotation: Any, function: Callable[..., Any]) -> Any:
    """Look up a type that is written as text, in the function's module.

    `inspect` can do so only for all arguments at once, and a statistic's first argument may name a class that only type
    checkers import.
    """
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, inspect.unwrap(function).__globals__)


class Choice(BaseModel):
    """One thing under its label, with its own settings; without a name, the label is the name."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, ser_json_inf_nan="constants")

    name: Line | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The thing's own settings that differ from its defaults."""
        return dict(self.model_extra or {})

    @model_serializer(mode="wrap")
    def _what_was_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write only what was set, as a file has it."""
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
        """Write only what was set, as a file has it."""
        return {name: value for name, value in handler(self).items() if value is not None}

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that were chosen, by name; a length in epochs unsets one in steps, and the other way round."""
        given = self.model_dump()
        undone = {"epochs": None, "steps": None} if given.keys() & {"epochs", "steps"} else {}
        return undone | given


class ObjectiveChoice(Choice):
    """A local objective with its settings, and how clients that minimise it train.

    Attributes:
        train: what differs from the settings `train`; None where nothing does.
    """

    train: LocalChanges | None = None


def choices_by_label(example: str) -> Callable[[Any], Any]:
    """Let things be given without labels: as a name, a mapping with a name, or a list of these.

    Returns:
        A function that converts any form to things by label, with the name as the label. It raises ValueError for
        another form, and where a thing of a list has no name or shares it with another.
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
    """Make a validator that refuses another thing under the default's label, which names of settings leave out."""

    def require(choices: dict[str, C]) -> dict[str, C]:
        chosen = choices[default].name if default in choices else None
        if chosen not in (None, default):
            raise ValueError(f"label {default!r} stands for {chosen!r}; allowed: {default!r} alone, or another label")
        return choices

    return require


def _plain_as_train_says(recipes: dict[str, ObjectiveChoice]) -> dict[str, ObjectiveChoice]:
    if PLAIN in recipes and recipes[PLAIN].train is not None:
        raise ValueError(
            f"label {PLAIN!r} has its own train; allowed: another label, such as slow: {{name: {PLAIN}, train: "
            "{learning_rate: 0.001}}"
        )
    return recipes


def _without_labels(by_label: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the schemas of the forms without labels that `choices_by_label` reads."""
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
