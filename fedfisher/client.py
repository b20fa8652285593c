"""A client with its own trained network, and what it sends."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher.examples import Pairs, gather, require_classes, require_tokens
from fedfisher.network import Network
from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.configured import ConfiguredStatistic, configure_statistics
from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.client.uploads import Upload as Arrived
from fedfisher_core.client.uploads import decode, encode, upload_schema
from fedfisher_core.engine.errors import CorruptArtifactError, InputError, MemoryLimitError, shown
from fedfisher_core.federation.statistics import group_by_pass
from fedfisher_core.methods.configured import ConfiguredMethod, configure
from fedfisher_core.methods.method import RESERVED
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import MethodEntry, WireSettings
from fedfisher_core.settings.choices import choose

_BATCH_SIZE = 64
Tensors = dict[str, Tensor]


class Client:
    """A client that has trained a network on its own examples.

    It keeps what it computes of them, so that several methods share it.

    Args:
        model: its trained network, which is not changed.
        data: its examples without augmentation, normalised as in training: a loader of pairs of inputs and labels,
            which is read once, or one such pair of tensors.
        weights: of the trained network, as a module or a `state_dict()`; None for the model's own.
        initial: the network that the training started from, or its `state_dict()`, for statistics that use it.
        retrain: trains a further network as the model was trained, but from another start. It gets a number from 1, and
            all clients share the start of a number. For statistics of several networks a client.
        fisher: see `Network.of`.
        generator: on the CPU; its seed is that of what statistics draw. By default the weights determine it.
        batch_size: of the training, for statistics that go by batches; by default the loader's, or 64.

    Raises:
        InputError: the network, its weights or the examples can't be used; the message gives the reason.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Pairs,
        *,
        weights: nn.Module | Mapping[str, Tensor] | None = None,
        initial: nn.Module | Mapping[str, Tensor] | None = None,
        retrain: Callable[[int], nn.Module] | None = None,
        fisher: Mapping[str, Any] | None = None,
        generator: torch.Generator | None = None,
        batch_size: int | None = None,
    ) -> None:
        if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
            raise InputError(f"batch_size={shown(batch_size)}; allowed: a whole number from 1")
        examples = gather(data, who="the client's data")
        self.network = Network.of(model, examples.inputs, fisher=fisher)
        require_classes(examples, self.network.spec.classes, who="the client's data")
        require_tokens(examples, self.network.spec.inputs, who="the client's data")
        self.weights = self.network.read(model if weights is None else weights, who="the client")
        self.num_examples = len(examples)
        spec = self.network.spec
        generator = generator or torch.Generator().manual_seed(int(digest_of(self.weights)[:15], 16))
        self._local = Local(
            network=spec.load(self.weights).eval(),
            initial=_Unknown() if initial is None else self.network.read(initial, who="initial"),
            examples=examples.to(self.network.device),
            classes=spec.classes,
            batch_size=batch_size or getattr(data, "batch_size", None) or _BATCH_SIZE,
            settings=self.network.fisher,
            approximations=frozenset(),
            generator=generator,
            trainer=None if retrain is None else _Retraining(self.network, retrain),
        )
        self._computed: dict[str, Statistic] = {}

    def statistics(self, name: str, **settings: Any) -> Tensors:
        """Compute a statistic of `fedfisher.statistics()`, such as "kfac", with its own settings.

        Returns:
            Its tensors by name, on the network's device.

        Raises:
            InputError: it is unknown, or can't be computed of this client; the message gives the reason.
            DivergedClientError: a number is not finite.
        """
        (configured,) = configure_statistics([statistics.get(name)], {name: settings})
        # This fails before any work if the statistic does not exist for a layer, and the message names the layer.
        configured.shapes(self.network.spec)
        computed = self.compute([configured])[name].tensors
        # Copies, as the client keeps what it has computed for uploads.
        return {key: tensor.clone() for key, tensor in computed.items()}

    def upload(
        self,
        method: str,
        *,
        label_prior: float = 0.0,
        statistics: Mapping[str, Mapping[str, Any]] | None = None,
        budget: str | int = "none",
        format: str = "fedfisher",
    ) -> "Upload":
        """Encode what a method needs of the client.

        Args:
            method: one of `fedfisher.methods()`.
            label_prior: the setting of the method; with another than 0, counts of labels are sent too.
            statistics: settings of statistics that differ from their defaults, by the statistic's name.
            budget: most bits of the upload: "none" for no bound, "fedavg" for what FedAvg sends, or a number.
            format: how statistics are compressed to fit: "fedfisher", "paper" or "float32".

        Raises:
            InputError: the method does not exist or does not support the network, or its statistics do not fit.
        """
        configured = configure_own(
            method,
            {} if label_prior == 0 else {"label_prior": label_prior},
            self.network.spec,
            statistics=statistics,
            budget=budget,
            format=format,
        )
        return Upload(self.encoded(configured), self.network)

    def encoded(self, configured: ConfiguredMethod) -> bytes:
        """Encode what a method with its settings needs of the client; see `upload`."""
        computed = self.compute(configured.uploads)
        sent = [computed[one.statistic.name] for one in configured.uploads]
        schema = upload_schema(configured.uploads, self.network.spec, configured.wire)
        return encode(schema, sent, num_examples=self.num_examples)

    def received(self, configured: ConfiguredMethod, network: Network) -> Arrived:
        """Return what a server makes of the client's upload. The server can ask this client for more."""
        return replace(Upload(self.encoded(configured), network).received(configured, network), again=self._answer)

    def compute(self, wanted: Sequence[ConfiguredStatistic]) -> dict[str, Statistic]:
        """Compute statistics by name, with one pass over the examples for all that can share it."""
        missing = {one.statistic: one for one in wanted if _key(one) not in self._computed}
        for group in group_by_pass(self._local.settings, list(missing)):
            approximations = frozenset(one.approximation for one in group if one.approximation is not None)
            local = replace(self._local, approximations=approximations)
            for statistic in group:
                if statistic.trains_again and local.trainer is None:
                    raise InputError(
                        f"statistic {statistic.name!r} needs further networks that the client trains; allowed: "
                        "Client(..., retrain=...)"
                    )
                try:
                    found = missing[statistic].compute(local)
                except MemoryLimitError as error:
                    given, least = local.settings.memory_mib, math.ceil(error.needed / 2**20)
                    raise InputError(
                        f"fisher.memory_mib={given} is too little for {statistic.name!r} of one example; allowed: at "
                        f"least {least}, as in Client(..., fisher={{'memory_mib': {least}}})"
                    ) from error
                found.require_finite()
                self._computed[_key(missing[statistic])] = found
        return {one.statistic.name: self._computed[_key(one)] for one in wanted}

    def _answer(self, network: nn.Module) -> Local:
        return replace(self._local, network=network)


@dataclass(frozen=True)
class Upload:
    """What a client has sent for a method, encoded.

    Args:
        data: what crossed the network; its cost in bits is eight times its length.
        network: that the client has trained; a server that received bytes makes it by `Network.of`.
    """

    data: bytes
    network: Network

    def received(self, configured: ConfiguredMethod, network: Network) -> Arrived:
        """Decode the upload for a method and the network of all clients.

        Raises:
            InputError: it was made for another method, network or budget, or was changed on its way.
        """
        schema = upload_schema(configured.uploads, network.spec, configured.wire)
        try:
            return decode(self.data, schema, configured.method.uploads, network.device)
        except CorruptArtifactError as error:
            raise InputError(
                f"{error}; allowed: an upload for method {configured.method.name!r}, "
                f"wire.budget={configured.wire.budget} and wire.format={configured.wire.format}"
            ) from error


def configure_own(
    method: str,
    settings: Mapping[str, Any],
    spec: ModelSpec,
    *,
    statistics: Mapping[str, Mapping[str, Any]] | None,
    budget: str | int,
    format: str,
) -> ConfiguredMethod:
    """Choose a method's settings, and check that it supports a network; other arguments as for `Client.upload`.

    Args:
        settings: of the method, those that differ from their defaults.

    Raises:
        InputError: names the setting, its value and what is allowed, or what of the network is not supported.
    """
    wire = choose(WireSettings, {"budget": budget, "format": format}, key="wire")
    if reserved := sorted(settings.keys() & set(RESERVED)):
        raise InputError(f"unknown setting {f'methods.{method}.{reserved[0]}'!r}; allowed: the method's own")
    return configure(method, MethodEntry.model_validate(dict(settings)), [spec], wire, statistics or {})


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """Digest float32 weights by name.

    SHA-256 of each name in sorted order, a zero byte, and the numbers in little-endian single precision.
    """
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + b"\0" + weights[name].detach().cpu().contiguous().numpy().astype("<f4").tobytes())
    return digest.hexdigest()


class _Unknown(Parameters):
    """Stands for the weights that a training started from, where they are not known."""

    def __missing__(self, name: str) -> Tensor:
        raise InputError(
            f"a statistic needs {name!r} of the network that the training started from; allowed: "
            "Client(..., initial=module)"
        )


class _Retraining:
    """Trains further networks, each once."""

    def __init__(self, network: Network, retrain: Callable[[int], nn.Module]) -> None:
        self._network = network
        self._retrain = retrain
        self._trained: dict[int, nn.Module] = {}

    def __call__(self, number: int) -> nn.Module:
        if number not in self._trained:
            weights = self._network.read(self._retrain(number), who=f"further network {number}")
            self._trained[number] = self._network.spec.load(weights).eval()
        return self._trained[number]


def _key(configured: ConfiguredStatistic) -> str:
    return f"{configured.statistic.name} {json.dumps(configured.described(), sort_keys=True)}"
