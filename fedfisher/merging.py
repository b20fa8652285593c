"""Merging networks that clients have trained, by any method of the benchmark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedfisher.client import configure_own
from fedfisher.examples import Pairs, gather, require_classes, require_tokens
from fedfisher.network import Network
from fedfisher_core.client.uploads import Upload as Arrived
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError, InputError, shown
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.server import Aggregate, Combine, Server, require_networks
from fedfisher_core.models.evaluation import mean_logit, mean_probability


@runtime_checkable
class Sender(Protocol):
    """What can be merged: a `Client`, an `Upload` or a `ClientFile`."""

    @property
    def network(self) -> Network:
        """The network that the client has trained."""

    def received(self, configured: ConfiguredMethod, network: Network) -> Arrived:
        """Return what the server makes of the client's upload."""


@dataclass(frozen=True)
class Preprocessing:
    """How clients prepare their images, for methods that generate images: these generate pixels in [0, 1].

    Args:
        mean: subtracted from pixels, one number a channel; empty for none.
        std: divides the difference, one number a channel; empty for none.
        augment: whether clients train on random crops and flips.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if not isinstance(getattr(self, name), tuple | list):
                raise InputError(
                    f"preprocessing: {name}={shown(getattr(self, name))}; allowed: one number a channel, such as (0.5,)"
                )


class Ensemble(nn.Module):
    """Several networks that predict together.

    Args:
        networks: in evaluation mode; where there is a combiner, the one network that it makes of them.
        combine: whether their probabilities or their outputs are averaged.
        weights: of the networks class by class, shape (networks, classes); None for equal ones.
    """

    def __init__(self, networks: Sequence[nn.Module], combine: Combine, weights: Tensor | None) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.combine = combine
        self.register_buffer("weights", weights)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute log-probabilities in double precision, on the CPU, shape (examples, classes)."""
        predict = mean_logit if self.combine is Combine.MEAN_LOGIT else mean_probability
        return predict(list(self.networks), self.get_buffer("weights") if self.weights is not None else None)(inputs)


def merge(
    clients: Sequence[Sender],
    *,
    method: str,
    validation: Pairs | None = None,
    initial: nn.Module | Mapping[str, Tensor] | None = None,
    preprocessing: Preprocessing = Preprocessing(),
    statistics: Mapping[str, Mapping[str, Any]] | None = None,
    budget: str | int = "none",
    format: str = "fedfisher",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> nn.Module:
    """Merge the networks of clients.

    Args:
        clients: uploads, files, or clients that compute here; all of one network.
        method: one of `fedfisher.methods()`.
        validation: examples of the server, for methods that use them to choose among networks: a loader of pairs of
            inputs and labels, or one such pair.
        initial: the network that all clients started from, or its `state_dict()`, for methods that merge what training
            changed.
        preprocessing: how clients prepare their images, for methods that generate images.
        statistics: settings of statistics that differ from their defaults, by the statistic's name.
        budget: most bits of an upload: "none" for no bound, "fedavg" for what FedAvg sends, or a number.
        format: how statistics are compressed to fit: "fedfisher", "paper" or "float32".
        generator: of the method's random choices, on the CPU; by default that of a benchmark with the seed 0.
        **settings: of the method, those that differ from their defaults.

    Returns:
        A network of the clients' type in evaluation mode, or an `Ensemble`.

    Raises:
        InputError: names what the method does not support, and what is allowed.
        DivergedClientError: names a client with a number that is not finite.
    """
    clients = list(clients) if isinstance(clients, Iterable) else [clients]
    if not clients:
        raise InputError("there are no clients; allowed: one or more")
    for number, client in enumerate(clients):
        if not isinstance(client, Sender):
            raise InputError(
                f"client {number} has type {type(client).__name__}; allowed: Client(model, data), an upload or a file "
                "of one"
            )
    network = clients[0].network
    for number, client in enumerate(clients[1:], start=1):
        network.require_same(client.network, who="client 0", others=f"client {number}")
    configured = configure_own(method, settings, network.spec, statistics=statistics, budget=budget, format=format)
    require_served(configured, len(clients), validated=validation is not None, started=initial is not None)
    server = Server(
        spec=network.spec,
        dataset=_dataset(network, preprocessing),
        fisher=network.fisher,
        initial=None if initial is None else network.read(initial, who="the initial network"),
        generator=generator or torch_generator(0, Stream.SERVER),
        device=network.device,
        validation=_validation(network, validation),
    )
    arrived = [_received(client, number, configured, network) for number, client in enumerate(clients)]
    try:
        made = configured(server, arrived)
    except InputError as error:
        raise InputError(f"method {method!r}: {error}") from error
    require_networks(method, made, network.spec)
    return _module(method, made, network)


def require_served(configured: ConfiguredMethod, clients: int, *, validated: bool, started: bool) -> None:
    """Refuse, before any work, what the method can't do.

    Args:
        clients: number of clients.
        validated: whether the server has validation examples.
        started: whether the server knows the network that all clients started from.

    Raises:
        InputError: names what the method needs.
    """
    method, who = configured.method, f"method {configured.method.name!r}"
    if method.pooled:
        raise InputError(f"{who} trains one network on the data of all clients; allowed: methods that merge networks")
    if configured.validates and not validated:
        raise InputError(
            f"{who} needs validation examples of the server; allowed: merge(..., validation=loader), --validation, or "
            "a list of one value where its default has several"
        )
    if configured.shared_start and not started:
        raise InputError(
            f"{who} needs the network that all clients started from; allowed: merge(..., initial=module), or --initial"
        )
    if method.require is not None:
        try:
            method.require(configured.settings, clients)
        except InputError as error:
            raise InputError(f"{who}: {error}") from error


def _received(client: Sender, number: int, configured: ConfiguredMethod, network: Network) -> Arrived:
    try:
        arrived = client.received(configured, network)
    except InputError as error:
        raise InputError(f"client {number}: {error}") from error
    except DivergedClientError as error:
        raise DivergedClientError(f"client {number}: {error}") from error
    if configured.method.asks_again and arrived.again is None:
        raise InputError(
            f"method {configured.method.name!r} asks clients for more after their uploads, and client {number} is not "
            "here; allowed: a Client"
        )
    return arrived


def _dataset(network: Network, preprocessing: Preprocessing) -> DatasetSpec:
    return DatasetSpec(
        name="clients",
        hub=None,
        classes=network.spec.classes,
        inputs=network.spec.inputs,
        mean=preprocessing.mean,
        std=preprocessing.std,
        augment=preprocessing.augment,
    )


def _validation(network: Network, data: Pairs | None) -> Examples:
    if data is None:
        return Examples(network.spec.inputs.zeros(0), torch.zeros(0, dtype=torch.int64)).to(network.device)
    examples = gather(data, who="validation")
    if tuple(examples.inputs.shape[1:]) != network.spec.inputs.shape:
        raise InputError(
            f"validation has inputs of shape {tuple(examples.inputs.shape[1:])}; allowed: {network.spec.inputs.shape}"
        )
    if examples.inputs.dtype != network.spec.inputs.taken:
        raise InputError(f"validation has inputs of {examples.inputs.dtype}; allowed: {network.spec.inputs.taken}")
    require_classes(examples, network.spec.classes, who="validation")
    require_tokens(examples, network.spec.inputs, who="validation")
    return examples.to(network.device)


def _module(method: str, made: Aggregate, network: Network) -> nn.Module:
    """Make a module of what a method returns."""
    networks = made.modules(network.spec)
    if made.combine is Combine.MEAN_MEASURE:
        raise InputError(f"method {method!r} measures each network alone and predicts nothing; allowed: ensemble")
    if len(networks) == 1 and made.weights is None and made.combiner is None:
        return networks[0]
    return Ensemble(networks, made.combine, made.weights)
