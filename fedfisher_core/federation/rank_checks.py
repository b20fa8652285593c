"""Checks of adapters whose rank differs between clients, before any work starts."""

from collections.abc import Collection

from fedfisher_core.client.objectives.objective import configure_objective
from fedfisher_core.client.statistics.statistic import statistics
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.federation import Federation
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.server_optimisers.configured import configure_server_optimiser
from fedfisher_core.methods.shared.products import require_adapters
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FederationSettings


def require_ranks(settings: FederationSettings, federations: Collection[Federation]) -> None:
    """Check that clients can have adapters of several ranks, where the settings ask for it.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if settings.model.lora.ranks is None:
        return
    key = _key(settings)
    _require_settings(key, settings)
    for spec, own in _specs(federations):
        _require_smaller(key, spec, own)


def require_method_of_ranks(
    settings: FederationSettings, federations: Collection[Federation], label: str, configured: ConfiguredMethod
) -> None:
    """Check that a method merges weights of several ranks, which started from different points.

    Raises:
        InputError: names the setting, its value, the method and what is allowed.
    """
    if settings.model.lora.ranks is None:
        return
    key = f"{_key(settings)} with method {label!r}"
    if configured.summation is not None:
        raise InputError(f"{key}: secure sums are of numbers of one shape; allowed: wire.server_view=declared")
    if configured.method.asks_again:
        raise InputError(f"{key}, which asks clients again; allowed: methods that do not")
    if configured.shared_start and not configured.method.of_products:
        raise InputError(
            f"{key}, which merges what training changed of weights that all clients started from; allowed: methods "
            "that merge products, or weights as they are"
        )
    for spec, own in _specs(federations):
        for one in configured.uploads:
            if not one.statistic.zero_filled and one.shapes(spec) != one.shapes(own):
                known = ", ".join(sorted(name for name in statistics if statistics.get(name).zero_filled))
                raise InputError(
                    f"{key}, whose {one.statistic.name!r} depends on the rank; allowed: methods that send {known}, and "
                    "what depends on no rank"
                )


def _key(settings: FederationSettings) -> str:
    return f"model.lora.ranks={list(settings.model.lora.ranks or ())}"


def _specs(federations: Collection[Federation]) -> Collection[tuple[ModelSpec, ModelSpec]]:
    """The network of each server, with that of each of its clients."""
    return dict.fromkeys((one.spec, own) for one in federations for own in one.specs)


def _require_settings(key: str, settings: FederationSettings) -> None:
    """Check the number of ranks, and the settings under which clients would start or send alike."""
    ranks, clients = settings.model.lora.ranks or (), settings.fewest_clients - settings.unseen_clients
    if len(ranks) > clients:
        raise InputError(f"{key} has more ranks than clients take part, {clients}; allowed: up to as many")
    if settings.rounds.count > 1:
        raise InputError(f"{key} with rounds.count={settings.rounds.count}; allowed: one round")
    for label in settings.rounds.server_optimiser:
        if not configure_server_optimiser(label, settings.rounds.server_optimiser).is_average:
            raise InputError(
                f"{key} with rounds.server_optimiser={label!r}, which steps from weights that all clients started "
                "from; allowed: average"
            )
    for label in settings.train.objective:
        if configure_objective(label, settings.train.objective).objective.exchange is not None:
            raise InputError(f"{key} with train.objective={label!r}, which sends reports; allowed: without reports")
    if settings.model.pretrained is not None:
        raise InputError(f"{key} with model.pretrained, of which a rank would cut a part off; allowed: null")
    if settings.privacy is not None:
        raise InputError(f"{key} with privacy, whose noise would reach what a rank leaves out; allowed: one rank")


def _require_smaller(key: str, spec: ModelSpec, own: ModelSpec) -> None:
    """Check that a network has adapters, and fewer weights where they have a smaller rank."""
    try:
        require_adapters(spec)
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
    if own == spec:
        return
    whole, shapes = spec.shapes(), own.shapes()
    if whole == shapes or any(
        size > most for name in whole for size, most in zip(shapes[name], whole[name], strict=True)
    ):
        raise InputError(
            f"{key}: model {spec.name!r} of rank {own.widths[0]} is not smaller than the server's; allowed: families "
            "whose rank is model.lora.rank"
        )
