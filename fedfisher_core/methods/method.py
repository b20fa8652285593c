"""What a method is: a decorated function, the uploads that it declares and the settings that its keywords are."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

import fedfisher_core.methods
from fedfisher_core.client.statistic import ServerView, Statistic
from fedfisher_core.errors import InputError
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.sums import Summation
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.settings import MethodEntry
from fedfisher_core.signatures import settings_of

Aggregation = Callable[..., Aggregate]
Requirement = Callable[[Any, int], None]
"""Takes a method's settings, as a model, and the number of clients."""
RESERVED = tuple(MethodEntry.model_fields)
"""Keys beside a method's own settings, which a method must not use."""


@dataclass(frozen=True)
class Method:
    """A way to make one model, or one prediction, of what clients upload.

    Args:
        name: its name in the settings.
        function: the aggregation.
        uploads: the statistics that every client sends; the function sees nothing else.
        sees_each: those of them of which it needs every client's own, though others make do with the sum.
        reference: address of the paper or code that it follows.
        ranked: whether it is ranked among the methods that leave one network in one shot; False for an ensemble, which
            is one shot too, and for a reference.
        pooled: whether it is given one client that holds all data, instead of the clients.
        shared_start: whether it needs the weights that all clients started from, or tells that from its settings.
        trains: whether what clients upload depends on their training, whose seconds it then answers for.
        asks_again: whether it asks clients for statistics of further networks, as only a reference may.
        settings: the function's keyword arguments as a model.
        supports: refuses networks that the method can't serve, by an InputError; None where its uploads decide.
        sums: the method written in sums over clients; None where it is not, and can't be aggregated securely.
        validates: tells from its settings whether it looks at the server's validation images; None where it never does.
        require: refuses settings that can't work with so many clients, by an InputError; None where all can.
        continues: whether it returns one network of the clients' own shape, which a further round can start from.
        merges: whether its running statistics may be estimated anew: not those of a network that is trained at the
            server as it is evaluated.
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
    supports: Callable[[ModelSpec], None] | None = None
    sums: Summation | None = None
    validates: Callable[[Any], bool] | None = None
    require: Requirement | None = None
    continues: bool = True
    merges: bool = True

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def views(self) -> dict[str, ServerView]:
        """What the server must see of each upload, by its name."""
        return {one.name: ServerView.EACH if one in self.sees_each else one.server_view for one in self.uploads}

    def needs_shared_start(self, settings: Any) -> bool:
        """Say whether it needs the weights that all clients started from.

        Args:
            settings: of the method.
        """
        return self.shared_start if isinstance(self.shared_start, bool) else self.shared_start(settings)

    @property
    def returns_merged(self) -> bool:
        """Whether it returns one network that it merges of the clients', whose running statistics nobody has seen."""
        return self.ranked and self.continues and self.merges

    @property
    def streamed(self) -> bool:
        """Whether it makes do with sums, so that the server holds one client's upload at a time, and not all."""
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
    sums: Summation | None = None,
    validates: Callable[[Any], bool] | None = None,
    require: Requirement | None = None,
    continues: bool = True,
    merges: bool = True,
) -> Callable[[Aggregation], Aggregation]:
    """Register an aggregation; its keyword arguments with their types and defaults become its settings.

    Args:
        name: its name in the settings.
        uploads: the statistics that every client sends.
        reference: address of the paper or code that it follows.
        sees_each: those of them of which it needs every client's own, though others make do with the sum; by default
            all of them, or none where the method is written in sums.
        ranked: False for an ensemble or a reference, which stand apart from methods that leave one network in one shot.
        pooled: whether it is given one client that holds all data, instead of the clients.
        shared_start: whether it needs the weights that all clients started from, or tells that from its settings;
            refused where each has its own.
        trains: False where clients upload nothing that their training changes.
        asks_again: whether it asks clients for statistics of further networks, as only a reference may.
        supports: refuses networks that the method can't serve, by an InputError; None where its uploads decide.
        sums: the method written in sums over clients, where that is possible.
        validates: tells from its settings whether it looks at the server's validation images; None where it never does.
        require: refuses settings that can't work with so many clients, by an InputError; None where all can.
        continues: False where it returns several networks, or one of another shape than the clients'.
        merges: False where its network is trained at the server as it is evaluated, with the running statistics that
            it has: these are not estimated anew.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken, a keyword
        argument has no type or no default, or a method that is ranked asks again.
    """
    if asks_again and ranked:
        raise InputError(f"method {name!r}: asks_again=True with ranked=True; allowed: ranked=False")

    if sees_each is None:
        sees_each = uploads if sums is None else ()

    def register(function: Aggregation) -> Aggregation:
        settings = settings_of(function, owner="method", name=name, reserved=RESERVED)
        methods.add(
            name,
            Method(
                name=name,
                function=function,
                uploads=uploads,
                sees_each=sees_each,
                reference=reference,
                ranked=ranked,
                pooled=pooled,
                shared_start=shared_start,
                trains=trains,
                asks_again=asks_again,
                settings=settings,
                supports=supports,
                sums=sums,
                validates=validates,
                require=require,
                continues=continues,
                merges=merges,
            ),
        )
        return function

    return register


methods: Registry[Method] = Registry(
    noun="method", group="fedfisher.methods", builtin=lambda: import_submodules(fedfisher_core.methods)
)
