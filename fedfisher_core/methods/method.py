"""What a method is: a decorated function, the uploads that it declares and the settings that its keywords are."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

import fedfisher_core.methods
from fedfisher_core.client.statistic import ServerView, Statistic
from fedfisher_core.client.upload import Upload, upload_schema
from fedfisher_core.configuration import nearest
from fedfisher_core.errors import InputError
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.sums import Summation, Sums
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.settings import MethodEntry, WireFields, WireSettings

Aggregation = Callable[..., Aggregate]
DEFAULT_WIRE = WireSettings()
RESERVED = tuple(MethodEntry.model_fields)
"""Keys beside a method's own settings, which a method must not use."""


@dataclass(frozen=True)
class Method:
    """A way to make one model, or one prediction, of what clients upload.

    Args:
        name: its name in the settings.
        function: the aggregation.
        uploads: kinds of statistic that every client sends; the function sees nothing else.
        sees_each: those of them of which it needs every client's own, though others make do with the sum.
        reference: address of the paper or code that it follows.
        version: raised whenever the code changes its result.
        one_shot: False for a row that methods are measured against, which no one-shot method could be.
        pooled: whether it is given one client that holds all data, instead of the clients.
        settings: the function's keyword arguments as a model.
        supports: refuses networks that the method can't serve, by an InputError; None where its uploads decide.
        sums: the method written in sums over clients; None where it is not, and can't be aggregated securely.
    """

    name: str
    function: Aggregation
    uploads: tuple[type[Statistic], ...]
    sees_each: tuple[type[Statistic], ...]
    reference: str
    version: int
    one_shot: bool
    pooled: bool
    settings: type[BaseModel]
    supports: Callable[[ModelSpec], None] | None = None
    sums: Summation | None = None

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def views(self) -> dict[str, ServerView]:
        """What the server must see of each upload, by its name."""
        return {kind.name: ServerView.EACH if kind in self.sees_each else kind.server_view for kind in self.uploads}


@dataclass(frozen=True)
class BoundMethod:
    """A method with its settings chosen.

    Args:
        method: the method.
        settings: all of its settings, defaults included.
        wire: what its uploads may cost, and how they are encoded.
    """

    method: Method
    settings: BaseModel
    wire: WireSettings

    def __call__(self, server: Server, uploads: Sequence[Upload]) -> Aggregate:
        """Aggregate.

        Args:
            server: what the server holds.
            uploads: one a client.

        Returns:
            The global model.
        """
        return self.method.function(server, uploads, **self._chosen())

    @property
    def summation(self) -> Summation | None:
        """The method written in sums, where the settings let the server see nothing else."""
        return self.method.sums if self.wire.server_view == "secure_sum" else None

    def of_sums(self, server: Server, sums: Sums) -> Aggregate:
        """Aggregate what the server learned by secure aggregation.

        Args:
            server: what the server holds.
            sums: over all clients whose upload arrived.

        Returns:
            The global model.
        """
        assert self.method.sums is not None
        return self.method.sums.aggregate(server, sums, **self._chosen())

    def _chosen(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in type(self.settings).model_fields}

    def dumped_settings(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return self.settings.model_dump(mode="json")

    def described(self) -> dict[str, Any]:
        """Everything that sets this row apart from others of the same benchmark, as JSON has it."""
        return {"method": self.method.name, **self.dumped_settings(), "wire": self.wire.described()}


def method(
    name: str,
    *,
    uploads: tuple[type[Statistic], ...],
    reference: str,
    sees_each: tuple[type[Statistic], ...] = (),
    version: int = 1,
    one_shot: bool = True,
    pooled: bool = False,
    supports: Callable[[ModelSpec], None] | None = None,
    sums: Summation | None = None,
) -> Callable[[Aggregation], Aggregation]:
    """Register an aggregation; its keyword arguments with their types and defaults become its settings.

    Args:
        name: its name in the settings.
        uploads: kinds of statistic that every client sends.
        reference: address of the paper or code that it follows.
        sees_each: those of them of which it needs every client's own, though others make do with the sum.
        version: raised whenever the code changes its result.
        one_shot: False for a reference row.
        pooled: whether it is given one client that holds all data, instead of the clients.
        supports: refuses networks that the method can't serve, by an InputError; None where its uploads decide.
        sums: the method written in sums over clients, where that is possible.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken or a keyword
        argument has no type or no default.
    """

    def register(function: Aggregation) -> Aggregation:
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                continue
            if parameter.name in RESERVED:
                raise InputError(f"method {name!r}: argument {parameter.name!r}; allowed: any name but {RESERVED}")
            if inspect.Parameter.empty in (parameter.annotation, parameter.default):
                raise InputError(f"method {name!r}: argument {parameter.name!r} needs a type and a default")
            fields[parameter.name] = (parameter.annotation, parameter.default)
        settings = create_model(name, __config__=ConfigDict(extra="forbid", frozen=True), **fields)
        methods.add(
            name,
            Method(
                name=name,
                function=function,
                uploads=uploads,
                sees_each=sees_each,
                reference=reference,
                version=version,
                one_shot=one_shot,
                pooled=pooled,
                settings=settings,
                supports=supports,
                sums=sums,
            ),
        )
        return function

    return register


def bind(label: str, entry: MethodEntry, specs: Iterable[ModelSpec], wire: WireSettings = DEFAULT_WIRE) -> BoundMethod:
    """Choose a method's settings and check that it can serve networks.

    Args:
        label: the method's name, or any name where the entry names the method.
        entry: the settings that differ from its defaults, and from the benchmark's wire.
        specs: the networks that clients train.
        wire: the benchmark's.

    Returns:
        The method with its settings.

    Raises:
        InputError: the method or a setting is unknown, a value is not allowed, one of the method's statistics
            does not exist for a network, the method can't serve it, or its uploads do not fit their budget.
    """
    given = entry.settings
    chosen = methods.get(entry.method or label)
    wire = _changed(label, wire, entry.wire)
    if wire.server_view == "secure_sum" and chosen.sums is None:
        raise InputError(_no_sums(label, chosen))
    if chosen.pooled:
        wire = WireSettings(budget="none", format="float32")
    known = list(chosen.settings.model_fields)
    for key in given:
        if key not in known:
            raise InputError(f"unknown setting 'methods.{label}.{key}'; {nearest(key, [*known, *RESERVED])}")
    try:
        values = chosen.settings.model_validate(given)
    except ValidationError as error:
        raise InputError(_explain(f"methods.{label}", error)) from None
    for spec in specs:
        try:
            upload_schema(chosen.uploads, spec, wire)
            if chosen.supports is not None:
                chosen.supports(spec)
        except InputError as error:
            raise InputError(f"method {label!r} can't serve model {spec.name!r}: {error}") from error
    return BoundMethod(method=chosen, settings=values, wire=wire)


def _changed(label: str, wire: WireSettings, changes: WireFields) -> WireSettings:
    try:
        return wire.changed(changes)
    except ValidationError as error:
        raise InputError(_explain(f"methods.{label}.wire", error)) from None


def _no_sums(label: str, chosen: Method) -> str:
    each = [name for name, view in chosen.views.items() if view is ServerView.EACH]
    reason = f"needs each client's own {', '.join(each)}" if each else "is not written in sums over clients"
    able = ", ".join(sorted(name for name in methods if methods.get(name).sums is not None))
    return f"methods.{label}.wire.server_view='secure_sum': method {chosen.name!r} {reason}; allowed: {able}"


def _explain(prefix: str, error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(map(str, [prefix, *problem["loc"]]))
    return f"{key}={problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}"


methods: Registry[Method] = Registry(
    noun="method", group="fedfisher.methods", builtin=lambda: import_submodules(fedfisher_core.methods)
)
