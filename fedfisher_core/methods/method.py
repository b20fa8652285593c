"""What a method is: a decorated function, the uploads that it declares, and its keyword arguments as settings."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

import fedfisher_core.methods
from fedfisher_core.client.statistics.statistic import ServerView, Statistic
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry, import_submodules
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.shared.averaging import Summation
from fedfisher_core.methods.shared.label_prior import with_label_prior
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import MethodEntry
from fedfisher_core.settings.choices import settings_of

Aggregation = Callable[..., Aggregate]
Requirement = Callable[[Any, int], None]
"""Takes a method's settings, as a model, and the number of clients."""
Fit = Callable[[Any, ModelSpec], None]
"""Takes a method's settings, as a model, and a network that it would serve."""
RESERVED = tuple(MethodEntry.model_fields)
"""Keys next to a method's own settings, which a method must not use."""
COMMON = settings_of(with_label_prior, owner="method", name="methods")
"""Settings that all methods have, which a method must not use either."""


@dataclass(frozen=True)
class Method:
    """A way to make one model, or one prediction, of what clients upload.

    Args:
        uploads: the statistics that every client sends; the function sees nothing else.
        sees_each: those of them that it needs from each client separately, where the sum would not do.
        reference: address of the paper or code that it follows.
        ranked: False for an ensemble, which is one-shot too, and for a reference: they stand apart from the methods
            that leave one network in one shot.
        pooled: whether it is given one client that holds all data, instead of the clients.
        shared_start: whether it needs the weights that all clients started from; a function decides from its settings.
        trains: whether clients' training changes what they upload; the method then answers for the seconds of training.
        asks_again: whether it asks clients for statistics of further networks, as only a reference may.
        settings: the function's keyword arguments as a model.
        supports: refuses networks that the method can't serve, by an InputError; None where its uploads decide.
        fits: refuses settings that can't work with a network, by an InputError; None where all can.
        sums: the method written in sums over clients; None where it can't be aggregated securely.
        validates: says from its settings whether it looks at the server's validation images; None where it never does.
        require: refuses settings that can't work with so many clients, by an InputError; None where all can.
        continues: whether it returns one network of the clients' own shape, which a further round can start from.
        log_odds: whether outputs of its network hold the log-shares of labels, as training by cross-entropy makes them,
            so that `label_prior` can take them out.
        one_round: whether it serves a first round alone, as where it takes it that products start at zero.
        of_products: whether it sees the factors of adapters through their products alone, so that the ranks of clients
            may differ.
        merges: whether the running statistics of its network may be estimated anew. They may not where the server
            trains the network as it is evaluated.
    """

    name: str
    function: Aggregation
    uploads: tuple[type[Statistic], ...]
    sees_each: tuple[type[Statistic], ...]
    reference: str
    ranked: bool
    pooled: bool
    shared_start: bool | Callable[[Any], bool]
    trains: bool
    asks_again: bool
    settings: type[BaseModel]
    supports: Callable[[ModelSpec], None] | None
    fits: Fit | None
    sums: Summation | None
    validates: Callable[[Any], bool] | None
    require: Requirement | None
    continues: bool
    merges: bool
    of_products: bool
    log_odds: bool
    one_round: bool

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def views(self) -> dict[str, ServerView]:
        """What the server must see of each upload, by its name."""
        return {one.name: ServerView.EACH if one in self.sees_each else one.server_view for one in self.uploads}

    def needs_shared_start(self, settings: Any) -> bool:
        """Say whether it needs the weights that all clients started from."""
        return self.shared_start if isinstance(self.shared_start, bool) else self.shared_start(settings)

    @property
    def leaves_one(self) -> bool:
        """Whether it leaves one network, of any shape."""
        return self.ranked or self.continues

    @property
    def takes_label_prior(self) -> bool:
        """Whether the setting `label_prior` serves it."""
        return self.leaves_one and self.log_odds

    @property
    def returns_merged(self) -> bool:
        """Whether it merges the clients' networks into one, whose running statistics no client has measured."""
        return self.ranked and self.continues and self.merges

    @property
    def streamed(self) -> bool:
        """Whether sums are enough for it, so that the server holds one client's upload at a time."""
        return all(view is ServerView.SUM for view in self.views.values())


def method(
    name: str,
    *,
    uploads: tuple[type[Statistic], ...],
    reference: str,
    sees_each: tuple[type[Statistic], ...] | None = None,
    ranked: bool = True,
    pooled: bool = False,
    shared_start: bool | Callable[[Any], bool] = False,
    trains: bool = True,
    asks_again: bool = False,
    supports: Callable[[ModelSpec], None] | None = None,
    fits: Fit | None = None,
    sums: Summation | None = None,
    validates: Callable[[Any], bool] | None = None,
    require: Requirement | None = None,
    continues: bool = True,
    merges: bool = True,
    of_products: bool = False,
    log_odds: bool = True,
    one_round: bool = False,
) -> Callable[[Aggregation], Aggregation]:
    """Register an aggregation; its keyword arguments with their types and defaults become its settings.

    The arguments are the fields of `Method`. By default `sees_each` is all uploads, or none where the method is written
    in sums.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken, a keyword
        argument has no type or no default, or a method that is ranked asks again.
    """
    # Its arguments are named as the fields.
    given = dict(locals())
    if asks_again and ranked:
        raise InputError(f"method {name!r}: asks_again=True with ranked=True; allowed: ranked=False")
    if sees_each is None:
        given["sees_each"] = uploads if sums is None else ()

    def register(function: Aggregation) -> Aggregation:
        settings = settings_of(function, owner="method", name=name, reserved=(*RESERVED, *COMMON.model_fields))
        methods.add(name, Method(**given, function=function, settings=settings))
        return function

    return register


methods: Registry[Method] = Registry(
    noun="method", group="fedfisher.methods", builtin=lambda: import_submodules(fedfisher_core.methods)
)
