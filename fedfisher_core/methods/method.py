"""What a method is: a decorated function, the uploads that it declares and the settings that its keywords are."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

import fedfisher_core.methods
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.upload import Upload
from fedfisher_core.errors import InputError
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.registry import Registry, import_submodules
from fedfisher_core.settings import nearest

Aggregation = Callable[..., Aggregate]


@dataclass(frozen=True)
class Method:
    """A way to make one model, or one prediction, of what clients upload.

    Args:
        name: its name in the settings.
        function: the aggregation.
        uploads: kinds of statistic that every client sends; the function sees nothing else.
        reference: address of the paper or code that it follows.
        version: raised whenever the code changes its result.
        one_shot: False for a row that methods are measured against, which no one-shot method could be.
        pooled: whether it is given one client that holds all data, instead of the clients.
        settings: the function's keyword arguments as a model.
    """

    name: str
    function: Aggregation
    uploads: tuple[type[Statistic], ...]
    reference: str
    version: int
    one_shot: bool
    pooled: bool
    settings: type[BaseModel]

    @property
    def summary(self) -> str:
        """First line of the function's docstring; empty without one."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


@dataclass(frozen=True)
class BoundMethod:
    """A method with its settings chosen.

    Args:
        method: the method.
        settings: all of its settings, defaults included.
    """

    method: Method
    settings: Mapping[str, Any]

    def __call__(self, server: Server, uploads: Sequence[Upload]) -> Aggregate:
        """Aggregate.

        Args:
            server: what the server holds.
            uploads: one a client.

        Returns:
            The global model.
        """
        return self.method.function(server, uploads, **self.settings)


def method(
    name: str,
    *,
    uploads: tuple[type[Statistic], ...],
    reference: str,
    version: int = 1,
    one_shot: bool = True,
    pooled: bool = False,
) -> Callable[[Aggregation], Aggregation]:
    """Register an aggregation; its keyword arguments with their types and defaults become its settings.

    Args:
        name: its name in the settings.
        uploads: kinds of statistic that every client sends.
        reference: address of the paper or code that it follows.
        version: raised whenever the code changes its result.
        one_shot: False for a reference row.
        pooled: whether it is given one client that holds all data, instead of the clients.

    Returns:
        A decorator that leaves the function as it is. It raises InputError where the name is taken or a keyword
        argument has no type or no default.
    """

    def register(function: Aggregation) -> Aggregation:
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                continue
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
                reference=reference,
                version=version,
                one_shot=one_shot,
                pooled=pooled,
                settings=settings,
            ),
        )
        return function

    return register


def bind(name: str, settings: Mapping[str, Any], spec: ModelSpec) -> BoundMethod:
    """Choose a method's settings and check that it can serve a network.

    Args:
        name: the method's name.
        settings: those that differ from its defaults.
        spec: the network that clients train.

    Returns:
        The method with its settings.

    Raises:
        InputError: the method or a setting is unknown, a value is not allowed, or one of the method's statistics
            does not exist for the network.
    """
    chosen = methods.get(name)
    known = list(chosen.settings.model_fields)
    for key in settings:
        if key not in known:
            allowed = nearest(key, known) if known else "it has no settings"
            raise InputError(f"unknown setting 'methods.{name}.{key}'; {allowed}")
    try:
        values = chosen.settings.model_validate(dict(settings))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise InputError(f"methods.{name}.{key}={problem['input']!r}: {problem['msg']}") from None
    for statistic in chosen.uploads:
        try:
            statistic.shapes(spec)
        except InputError as error:
            raise InputError(f"method {name!r} can't serve model {spec.name!r}: {error}") from error
    return BoundMethod(method=chosen, settings=values.model_dump(mode="json"))


methods: Registry[Method] = Registry(
    kind="method", group="fedfisher.methods", builtin=lambda: import_submodules(fedfisher_core.methods)
)
