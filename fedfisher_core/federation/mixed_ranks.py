"""Adapters whose rank differs between clients.

A client of rank r trains the network of the largest rank R, with zeros in all rows of A and columns of B after the
first r. These zeros have no gradient, so that the client trains what it would train without them. It sends r rows and
columns. The server puts the zeros back, which changes no product B A.
"""

from collections.abc import Collection, Mapping

from torch import Size, Tensor
from torch.nn import functional

from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.federation import Federation
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.shared.products import require_adapters
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import FederationSettings


def with_rank_of(client: int, federation: Federation, weights: Parameters) -> Parameters:
    """Set to zero what a client's rank leaves out."""
    sent = federation.spec_of(client)
    return weights if sent == federation.spec else _filled(_cut(weights, sent.shapes()), federation.spec.shapes())


def cut(statistic: Statistic, configured: ConfiguredStatistic, sent: ModelSpec) -> Statistic:
    """Leave out what a client does not send.

    Args:
        statistic: of the network of the largest rank.
        sent: the network of the client's rank.
    """
    return configured.statistic.of(_cut(statistic.tensors, configured.shapes(sent)))


def filled(upload: Upload, uploads: Collection[ConfiguredStatistic], spec: ModelSpec) -> Upload:
    """Put back what a client has not sent, as zeros.

    Args:
        spec: the network of the largest rank.
    """
    found = {one.statistic: _filled(upload[one.statistic].tensors, one.shapes(spec)) for one in uploads}
    return Upload(upload.num_examples, {kind: kind.of(tensors) for kind, tensors in found.items()})


def _cut(tensors: Mapping[str, Tensor], shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    return {name: tensors[name][tuple(map(slice, shape))] for name, shape in shapes.items()}


def _filled(tensors: Mapping[str, Tensor], shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    made = {}
    for name, shape in shapes.items():
        # torch pads from the last dimension to the first.
        missing = [wanted - given for wanted, given in zip(shape, tensors[name].shape, strict=True)][::-1]
        made[name] = functional.pad(tensors[name], [side for count in missing for side in (0, count)])
    return made


def require_ranks(
    settings: FederationSettings, federations: Collection[Federation], methods: Mapping[str, ConfiguredMethod]
) -> None:
    """Check that clients can have adapters of several ranks, where the settings ask for it.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    ranks = settings.model.lora.ranks
    if ranks is None:
        return
    key, clients = f"model.lora.ranks={list(ranks)}", min(settings.partition.clients)
    if len(ranks) > clients:
        raise InputError(f"{key} has {len(ranks)} ranks for partition.clients={clients}; allowed: up to {clients}")
    if settings.rounds.count > 1:
        raise InputError(f"{key} with rounds.count={settings.rounds.count}; allowed: one round")
    if settings.privacy is not None:
        raise InputError(f"{key} with privacy, whose noise would reach what a rank leaves out; allowed: one rank")
    for spec in {federation.spec for federation in federations}:
        try:
            require_adapters(spec)
        except InputError as error:
            raise InputError(f"{key}: {error}") from error
    sent = {(one.spec, one.spec_of(client)) for one in federations for client in range(len(ranks))}
    for label, configured in methods.items():
        _require_method(f"{key} with method {label!r}", configured)
        for spec, own in sent:
            _require_statistics(f"{key} with method {label!r}", configured, spec, own)


def _require_method(key: str, configured: ConfiguredMethod) -> None:
    """Check that a method merges weights that started from different points and have different shapes."""
    if configured.summation is not None:
        raise InputError(f"{key}: secure sums are of numbers of one shape; allowed: wire.server_view=declared")
    if configured.shared_start and not configured.method.of_products:
        raise InputError(
            f"{key}, which merges what training changed of weights that all clients started from; allowed: methods "
            "that merge products, or weights as they are"
        )


def _require_statistics(key: str, configured: ConfiguredMethod, spec: ModelSpec, own: ModelSpec) -> None:
    """Check that zeros can stand for what a client's rank leaves out."""
    for one in configured.uploads:
        if not one.statistic.zero_filled and one.shapes(spec) != one.shapes(own):
            known = ", ".join(sorted(name for name in statistics if statistics.get(name).zero_filled))
            raise InputError(
                f"{key}, whose {one.statistic.name!r} depends on the rank; allowed: methods that send {known}, and "
                "what depends on no rank"
            )
