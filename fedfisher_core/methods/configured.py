"""Methods with their settings chosen, checked against the networks that they serve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.client.uploads import ConfiguredStatistic, Upload, configure_statistics, upload_schema
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.method import RESERVED, Method, methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import MethodEntry, WireFields, WireSettings
from fedfisher_core.settings.choices import choose

DEFAULT_WIRE = WireSettings()
NO_SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class ConfiguredMethod:
    """A method with its settings chosen.

    Args:
        settings: all of its settings, defaults included.
        wire: what its uploads may cost, and how they are encoded.
        uploads: the statistics that every client sends, with their settings.
    """

    method: Method
    settings: BaseModel
    wire: WireSettings
    uploads: tuple[ConfiguredStatistic, ...]

    def __call__(self, server: Server, uploads: Sequence[Upload]) -> Aggregate:
        """Aggregate one upload a client."""
        return self.method.function(server, uploads, **self._chosen())

    @property
    def summation(self) -> Summation | None:
        """The method written in sums, where the settings show the server nothing else."""
        return self.method.sums if self.wire.server_view == "secure_sum" else None

    def of_sums(self, server: Server, sums: Sums) -> Aggregate:
        """Aggregate sums over all clients whose upload arrived, which the server learned by secure aggregation."""
        assert self.method.sums is not None
        return self.method.sums.aggregate(server, sums, **self._chosen())

    @property
    def shared_start(self) -> bool:
        """Whether it needs the weights that all clients started from."""
        return self.method.needs_shared_start(self.settings)

    @property
    def validates(self) -> bool:
        """Whether it looks at the server's validation images."""
        return self.method.validates is not None and self.method.validates(self.settings)

    def _chosen(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in type(self.settings).model_fields}

    def dumped_settings(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return self.settings.model_dump(mode="json")

    def described(self) -> dict[str, Any]:
        """Everything that distinguishes this row from others of the same benchmark, as JSON has it."""
        return {"method": self.method.name, **self.dumped_settings(), "wire": self.wire.described()}


def configure(
    label: str,
    entry: MethodEntry,
    specs: Iterable[ModelSpec],
    wire: WireSettings = DEFAULT_WIRE,
    statistics: Mapping[str, Mapping[str, Any]] = NO_SETTINGS,
) -> ConfiguredMethod:
    """Choose a method's settings and check that it can serve networks.

    Args:
        label: the method's name, or any name where the entry names the method.
        entry: the settings that differ from its defaults, and from the benchmark's wire.
        specs: the networks that clients train.
        statistics: settings that differ from their defaults, by name; also of statistics that the method does not use.

    Raises:
        InputError: the method or a setting is unknown, a value is not allowed, one of the method's statistics
            does not exist for a network, the method can't serve it, or its uploads do not fit their budget.
    """
    chosen = methods.get(entry.method or label)
    wire = _changed(label, wire, entry.wire)
    if wire.server_view == "secure_sum" and chosen.sums is None:
        raise InputError(_no_sums(label, chosen))
    if chosen.pooled:
        wire = WireSettings(budget="none", format="float32")
    values = choose(chosen.settings, entry.settings, key=f"methods.{label}", besides=RESERVED)
    uploads = configure_statistics(chosen.uploads, statistics)
    for spec in specs:
        try:
            upload_schema(uploads, spec, wire)
            if chosen.supports is not None:
                chosen.supports(spec)
        except InputError as error:
            raise InputError(f"method {label!r} can't serve model {spec.name!r}: {error}") from error
    return ConfiguredMethod(method=chosen, settings=values, wire=wire, uploads=uploads)


def _changed(label: str, wire: WireSettings, changes: WireFields) -> WireSettings:
    changed = wire.model_dump() | changes.model_dump(exclude_unset=True)
    return choose(WireSettings, changed, key=f"methods.{label}.wire")


def _no_sums(label: str, chosen: Method) -> str:
    each = [name for name, view in chosen.views.items() if view is ServerView.EACH]
    reason = f"needs each client's own {', '.join(each)}" if each else "is not written in sums over clients"
    able = ", ".join(sorted(name for name in methods if methods.get(name).sums is not None))
    return f"methods.{label}.wire.server_view='secure_sum': method {chosen.name!r} {reason}; allowed: {able}"
