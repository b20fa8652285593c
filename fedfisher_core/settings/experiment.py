"""Settings of an experiment: its methods, rounds, measures and seeded settings, and its file for people."""

import hashlib
import inspect
import json
import math
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import to_jsonable_python

from fedfisher_core.settings.base import Count, Line, Name, Several, Strict, WithLater
from fedfisher_core.settings.choices import AVERAGE, PLAIN, Choice, ServerOptimisers
from fedfisher_core.settings.clients import Clients, PartitionScheme
from fedfisher_core.settings.shifts import NO_SHIFT, Shift
from fedfisher_core.settings.wire import WireFields
from fedfisher_core.settings.work import PageSettings, TrackingSettings, WorkSettings

LAST = ("run", "tracking", "report")
"""Keys that stand at the end of a settings file."""
_FIRST = ("name", "seeds", "data", "partition", "methods")
_WIDTH = 116


class SeededSetting(Strict):
    """One seeded setting of an experiment; everything else is the same for all of them."""

    dataset: str
    model: str
    scheme: PartitionScheme
    alpha: float | None
    clients: PositiveInt
    shift: Shift = NO_SHIFT
    seed: NonNegativeInt
    objective: str = PLAIN
    server_optimiser: str = AVERAGE

    @property
    def name(self) -> str:
        """Short name of the setting, without the seed; other settings have other names."""
        skew = "" if self.alpha is None else f"alpha={_exact(self.alpha)} "
        some = "" if self.shift.classes is None else f" of {self.shift.classes} classes"
        shift = f"{self.shift.kind}={_exact(self.shift.strength)}{some} " if self.shift else ""
        goal = "" if self.objective == PLAIN else f" objective={self.objective}"
        server = "" if self.server_optimiser == AVERAGE else f" server_optimiser={self.server_optimiser}"
        return f"{self.dataset} {self.model} {self.scheme} {skew}{shift}clients={self.clients}{goal}{server}"

    @property
    def label(self) -> str:
        """Short name with the seed, for run names and figures."""
        return f"{self.name} seed={self.seed}"


def _exact(number: float) -> str:
    """Write a number in few digits where these say it exactly, and in all digits where they do not."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


class Scope(Strict):
    """Some of an experiment's seeded settings; a coordinate that is not given may have any value."""

    dataset: Several[str] | None = None
    model: Several[str] | None = None
    scheme: Several[PartitionScheme] | None = None
    alpha: Several[float] | None = None
    clients: Several[int] | None = None
    shift: Several[Shift] | None = None
    seed: Several[int] | None = None
    objective: Several[str] | None = None
    server_optimiser: Several[str] | None = None

    def admits(self, setting: SeededSetting) -> bool:
        """Say whether a seeded setting is within the scope."""
        return all(values is None or getattr(setting, key) in values for key, values in self)


class RoundSettings(Strict):
    """How many rounds there are, who takes part, and what the server makes of each aggregate."""

    count: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1,
        description="rounds: in each, clients train from the server's network, and a method aggregates what they send. "
        "1 is one-shot. In round 1 all methods share the trained clients; from round 2 on each method trains its own",
    )
    cohort: Clients | None = Field(
        None, description="clients that take part in a round, drawn anew for each round; default: all"
    )
    keep: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="last rounds whose clients' tensors stay in the store: those of earlier rounds (weights, "
        "statistics, payloads) are deleted during the run, and made again if a later run needs them; default: all "
        "stay. With count or more, nothing is deleted. It changes no result",
    )
    server_optimiser: ServerOptimisers = Field(
        {AVERAGE: Choice()},
        min_length=1,
        description="what the server makes of an aggregate before the next round, one setting each: names that "
        "`fedfisher optimisers` lists, or mappings such as {name: fedadam, learning_rate: 0.01}; or a mapping "
        "of labels to these, as for methods. average: the aggregate itself",
    )


class PersonalisationSettings(Strict):
    """How clients that took part in no round adapt the global network to their examples."""

    unseen_clients: Clients = Field(
        description="clients that take part in no round, the last ones of every split; they send nothing, and none of "
        "their images is among the server's validation images"
    )
    epochs: Count = Field(
        1,
        description="passes over the examples on which an unseen client trains the global network, by plain "
        "cross-entropy; all other settings are those of `train`",
    )
    share: Annotated[float, Field(ge=0.01, le=0.99)] = Field(
        0.5, description="fraction of its examples that it trains on; it is measured on the others"
    )


class CanarySettings(Strict):
    """A sentence of random tokens under a random label, planted among the first client's texts."""

    times: Count = Field(10, description="how many of the client's texts give way to it")
    sentences: Annotated[int, Field(ge=2, le=2**16)] = Field(
        1024, description="it and others that are drawn alike; an exposure is at most the base-2 logarithm of this"
    )


class MeasureSettings(WithLater):
    """What is measured on clients' own examples, for methods that return one network of the clients' shape."""

    later = frozenset({"canary"})

    barrier: bool = Field(
        False,
        description="client-server barrier: how much worse the server's network is than a client's on the client's "
        "training examples, for the clients of the last round",
    )
    personalisation: PersonalisationSettings | None = Field(
        None, description="accuracy of unseen clients before and after each trains the global network on its examples"
    )
    canary: CanarySettings | None = Field(
        None,
        description="exposure of a sentence that is planted among the first client's texts, in the client's trained "
        "network and in the server's",
    )


class MethodEntry(BaseModel):
    """One method under its label: settings that all methods have, and those of the method.

    Attributes:
        method: its name; None where the label is the name.
        only: the seeded settings that it runs in.
        wire: settings of its uploads that differ from the experiment's.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, ser_json_inf_nan="constants")

    method: Line | None = None
    only: Scope = Scope()
    wire: WireFields = WireFields()

    @property
    def settings(self) -> dict[str, Any]:
        """The method's own settings that differ from its defaults."""
        return dict(self.model_extra or {})

    @model_serializer(mode="wrap")
    def _what_was_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write only what was set, as a file has it."""
        written = handler(self)
        for name in type(self).model_fields:
            if name not in self.model_fields_set:
                written.pop(name, None)
            elif isinstance(value := getattr(self, name), BaseModel):
                written[name] = value.model_dump(mode="json", exclude_unset=True)
        return written


def _order(schema: dict[str, Any]) -> None:
    """Let forms that are made of a schema begin with what most people set."""
    fields = schema["properties"]
    schema["properties"] = {**{name: fields[name] for name in _FIRST if name in fields}, **fields}


class ExperimentSettings(Strict):
    """What one settings file describes; `experiment` names the kind of experiment."""

    model_config = ConfigDict(json_schema_extra=_order)

    name: Name
    experiment: Line
    run: WorkSettings
    tracking: TrackingSettings
    report: PageSettings

    def digest(self) -> str:
        """Digest of all settings except the name, 8 hexadecimal digits."""
        content = json.dumps(self.model_dump(mode="json", exclude={"name"}), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def to_yaml(self) -> str:
        """Write the settings as a settings file."""
        written = self.model_dump(mode="json")
        ordered = {key: written[key] for key in sorted(written, key=LAST.__contains__)}
        return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True)

    def shown(self) -> dict[str, Any]:
        """Return what a report shows of the settings, without the report's title and notes."""
        shown = self.model_dump(mode="json", exclude={"report"})
        for name in self.named_groups():
            shown[name] = {label: chosen or "defaults" for label, chosen in shown[name].items()}
        return shown

    def named_groups(self) -> list[str]:
        """List the settings that map names to settings, such as the methods."""
        return [name for name in type(self).model_fields if isinstance(getattr(self, name), dict)]


def commented(settings: BaseModel) -> str:
    """Write settings as a settings file with a comment above each key that has a description."""
    return "\n".join(_lines(settings, "")) + "\n"


def _lines(settings: BaseModel, indent: str) -> Iterator[str]:
    fields = type(settings).model_fields
    # What is written leaves later defaults out.
    written = {name: to_jsonable_python(getattr(settings, name)) for name in fields}
    for name in sorted(fields, key=LAST.__contains__):
        field, value = fields[name], getattr(settings, name)
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
