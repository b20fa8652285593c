"""Methods with their settings chosen, checked against the networks that they serve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from fedfisher_core.client.statistics.configured import ConfiguredStatistic, configure_statistics
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.client.uploads import Upload, upload_schema
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.method import COMMON, RESERVED, Method, methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums
from fedfisher_core.methods.shared.label_prior import require_label_prior, with_label_prior
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import MethodEntry, WireFields, WireSettings
from fedfisher_core.settings.choices import choose


@dataclass(frozen=True)
class ConfiguredMethod:
    """A method with its settings chosen.

    Args:
        settings: all of its settings, defaults included.
        label_prior: see `with_label_prior`.
        wire: what its uploads may cost, and how they are encoded.
        uploads: the statistics that every client sends, with their settings.
    """

    method: Method
    settings: BaseModel
    wire: WireSettings
    uploads: tuple[ConfiguredStatistic, ...]
    label_prior: float = 0.0

    def __call__(self, server: Server, uploads: Sequence[Upload]) -> Aggregate:
        """Aggregate one upload a client."""
        made = self.method.function(server, uploads, **vars(self.settings))
        if self.label_prior == 0:
            return made
        return with_label_prior(server.spec, made, uploads, label_prior=self.label_prior)

    @property
    def summation(self) -> Summation | None:
        """The method written in sums, where the settings show the server nothing else."""
        return self.method.sums if self.wire.server_view == "secure_sum" else None

    def of_sums(self, server: Server, sums: Sums) -> Aggregate:
        """Aggregate sums over all clients whose upload arrived, which the server learned by secure aggregation."""
        assert self.method.sums is not None
        return self.method.sums.aggregate(server, sums, **vars(self.settings))

    @property
    def shared_start(self) -> bool:
        """Whether it needs the weights that all clients started from."""
        return self.method.needs_shared_start(self.settings)

    @property
    def validates(self) -> bool:
        """Whether it looks at the server's validation images."""
        return self.method.validates is not None and self.method.validates(self.settings)

    def dumped_settings(self) -> dict[str, Any]:
        """The settings as JSON has them; of those that all methods have, what differs from the default."""
        common = {} if self.label_prior == 0 else {"label_prior": self.label_prior}
        return self.settings.model_dump(mode="json") | common

    def described(self) -> dict[str, Any]:
        """Everything that distinguishes this row from others of the same benchmark, as JSON has it."""
        return {"method": self.method.name, **self.dumped_settings(), "wire": self.wire.described()}


_FORMS = ("by_holders", "official", "original")
"""How names of forms of a method end, which are its authors' code."""


def configure(
    label: str,
    entry: MethodEntry,
    specs: Iterable[ModelSpec],
    wire: WireSettings,
    statistics: Mapping[str, Mapping[str, Any]],
) -> ConfiguredMethod:
    """Choose a method's settings and check that it can serve networks.

    Args:
        label: the method's name, or any name where the entry names the method.
        entry: the settings that differ from its defaults, and from the benchmark's wire.
        specs: the networks that clients train.
        statistics: settings that differ from their defaults, by name; also of statistics that the method does not use.

    Raises:
        InputError: the method or a setting is unknown, a value is not allowed, one of the method's statistics
            does not exist for a network, the method can't serve it or not with these settings, or its uploads do not
            fit their budget.
    """
    chosen = methods.get(entry.method or label)
    # A form of a method, such as pfnm_original, may stand under the method's name.
    if chosen.name not in (label, *(f"{label}_{form}" for form in _FORMS)) and label in list(methods):
        raise InputError(
            f"methods.{label}.method={chosen.name}: readers would take it for {label!r}, which is a method too; "
            "allowed: another label"
        )
    wire = _changed(label, wire, entry.wire)
    if wire.server_view == "secure_sum" and chosen.sums is None:
        raise InputError(_no_sums(label, chosen))
    if chosen.pooled:
        wire = WireSettings(budget="none", format="float32")
    values, label_prior = choose_settings(label, chosen, entry.settings)
    if label_prior != 0:
        chosen = _counting_labels(label, chosen, wire)
    uploads = configure_statistics(chosen.uploads, statistics)
    for spec in specs:
        try:
            upload_schema(uploads, spec, wire)
            if chosen.supports is not None:
                chosen.supports(spec)
            if chosen.fits is not None:
                chosen.fits(values, spec)
            if label_prior != 0:
                require_label_prior(spec)
        except InputError as error:
            raise InputError(f"method {label!r} can't serve model {spec.name!r}: {error}") from error
    return ConfiguredMethod(method=chosen, settings=values, wire=wire, uploads=uploads, label_prior=label_prior)


def choose_settings(label: str, chosen: Method, given: Mapping[str, Any]) -> tuple[BaseModel, float]:
    """Read a method's own settings and the label prior, with defaults for those that are not given.

    Args:
        label: the method's name in messages.
        given: settings that differ from the defaults, by name.

    Raises:
        InputError: a setting is unknown, or its value is not allowed.
    """
    key = f"methods.{label}"
    common = choose(COMMON, {name: one for name, one in given.items() if name in COMMON.model_fields}, key=key)
    own = {name: one for name, one in given.items() if name not in COMMON.model_fields}
    values = choose(chosen.settings, own, key=key, besides=(*RESERVED, *COMMON.model_fields))
    label_prior: float = common.model_dump()["label_prior"]
    return values, label_prior


def _counting_labels(label: str, chosen: Method, wire: WireSettings) -> Method:
    """The method, whose clients send their label counts too.

    Raises:
        InputError: it makes no single network, or one whose outputs hold no log-shares of labels, or its uploads are
            seen as sums alone.
    """
    if not chosen.leaves_one:
        raise InputError(
            f"methods.{label}.label_prior: method {chosen.name!r} keeps several networks; allowed: methods that leave "
            "one"
        )
    if not chosen.log_odds:
        able = ", ".join(name for name in methods if methods.get(name).takes_label_prior)
        raise InputError(
            f"methods.{label}.label_prior: outputs of method {chosen.name!r} hold no log-shares of labels; allowed: "
            f"{able}"
        )
    if wire.server_view == "secure_sum":
        raise InputError(
            f"methods.{label}.label_prior with wire.server_view='secure_sum': no secure sum has label counts for it; "
            "allowed: 'declared'"
        )
    if LabelCounts in chosen.uploads:
        return chosen
    return replace(chosen, uploads=(*chosen.uploads, LabelCounts))


def _changed(label: str, wire: WireSettings, changes: WireFields) -> WireSettings:
    changed = wire.model_dump() | changes.model_dump(exclude_unset=True)
    return choose(WireSettings, changed, key=f"methods.{label}.wire")


def _no_sums(label: str, chosen: Method) -> str:
    each = [name for name, view in chosen.views.items() if view is ServerView.EACH]
    reason = f"needs each client's own {', '.join(each)}" if each else "is not written in sums over clients"
    able = ", ".join(sorted(name for name in methods if methods.get(name).sums is not None))
    return f"methods.{label}.wire.server_view='secure_sum': method {chosen.name!r} {reason}; allowed: {able}"
