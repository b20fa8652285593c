"""One-shot methods as a strategy of Flower, for clients on machines of their own.

In the ServerApp, `FedFisherStrategy` takes the place of `flwr.serverapp.strategy.FedAvg`. In the ClientApp, `reply`
answers a message of training. What a client sends is the same bytes as those of `Client.upload`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher.client import Client, Upload, configure_own
from fedfisher.examples import Pairs, gather
from fedfisher.merging import Preprocessing, merge, require_served
from fedfisher.network import Network
from fedfisher_core.client.uploads import Upload as Arrived
from fedfisher_core.engine.errors import InputError, shortened
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.models.spec import parameters_of

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg, Result
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("fedfisher.flower needs Flower: pip install 'fedfisher[flower]'") from error

RECORD = "fedfisher"
"""Name of the record that says what a client computes, and of the one with its upload."""
UPLOAD = "upload"
UPLOAD_TYPE = "fedfisher.upload"


class FedFisherStrategy(FedAvg):
    """One round: clients train and upload once, and the server merges their networks by a method.

    After `start`, the result's arrays are the weights of the merged network, which `merged` is.

    Args:
        model: the network that clients train; its weights do not matter.
        inputs: one example of its inputs or more, as `Network.of` takes them.
        method: one of `fedfisher.methods()` that leaves one network of the clients' own shape.
        settings: of the method, those that differ from their defaults.
        statistics: settings of statistics that differ from their defaults, by the statistic's name.
        budget: most bits of an upload: "none" for no bound, "fedavg" for what FedAvg sends, or a number.
        format: how statistics are compressed to fit: "fedfisher", "paper" or "float32".
        fisher: see `Network.of`.
        validation: examples of the server, for methods that use them to choose among networks.
        preprocessing: how clients prepare their images, for methods that generate images.
        generator: of the method's random choices; see `merge`.
        **sampling: of Flower's FedAvg, such as `min_available_nodes`. At least `min_train_nodes` uploads must arrive.

    Raises:
        InputError: names what can't be used, before any client is asked.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        *,
        method: str,
        settings: Mapping[str, Any] | None = None,
        statistics: Mapping[str, Mapping[str, Any]] | None = None,
        budget: str | int = "none",
        format: str = "fedfisher",
        fisher: Mapping[str, Any] | None = None,
        validation: Pairs | None = None,
        preprocessing: Preprocessing | None = None,
        generator: torch.Generator | None = None,
        **sampling: Any,
    ) -> None:
        super().__init__(**sampling)
        self.merged: nn.Module | None = None
        self._network = Network.of(model, inputs, fisher=fisher)
        self._initial: nn.Module | None = None
        self._wire: dict[str, Any] = {"method": method, "statistics": statistics, "budget": budget, "format": format}
        self._server: dict[str, Any] = {
            "validation": validation,
            "preprocessing": preprocessing or Preprocessing(),
            "generator": generator,
            **(settings or {}),
        }
        configured = configure_own(
            method, settings or {}, self._network.spec, statistics=statistics, budget=budget, format=format
        )
        _require_one_round(configured)
        require_served(configured, self.min_train_nodes, validated=validation is not None, started=True)
        asked = {"network": self._network.described(), "fisher": dict(fisher or {}), **self._wire}
        asked |= {"label_prior": configured.label_prior}
        self._asked = ConfigRecord({"asked": json.dumps(asked)})

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 1, *options: Any, **more: Any) -> Result:
        """Run the round; arguments as for `flwr.serverapp.strategy.Strategy.start`.

        Raises:
            InputError: there is more than one round, the arrays are not the network's weights, or too few clients sent
                an upload that can be merged.
        """
        if num_rounds != 1:
            raise InputError(f"num_rounds={num_rounds}: method {self._wire['method']!r} merges once; allowed: 1")
        self._initial = _loaded(self._network, initial_arrays, who="initial_arrays")
        return super().start(grid, initial_arrays, num_rounds, *options, **more)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask each sampled client for an upload."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.content[RECORD] = self._asked
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Merge the uploads; the metrics are those of Flower's FedAvg, with the bits of each upload."""
        arrived, failed = self._check_and_log_replies(replies, is_train=True)
        if len(arrived) < self.min_train_nodes:
            reasons = "".join(f"; node {one.metadata.src_node_id}: {shortened(one.error.reason)}" for one in failed)
            raise InputError(
                f"{len(arrived)} uploads arrived; allowed: at least min_train_nodes={self.min_train_nodes}{reasons}"
            )
        # In the order of their bytes, so that the same uploads make the same bits in any order of arrival.
        uploads = sorted((_sent(one, self._network) for one in arrived), key=lambda one: one.upload.data)
        self.merged = merge(uploads, initial=self._initial, **self._wire, **self._server)
        metrics = self.train_metrics_aggr_fn([one.content for one in arrived], self.weighted_by_key)
        metrics["upload-bits"] = [8 * len(one.upload.data) for one in uploads]
        return ArrayRecord(parameters_of(self.merged)), metrics


def reply(
    message: Message,
    model: nn.Module,
    data: Pairs,
    *,
    metrics: Mapping[str, float] | None = None,
    **options: Any,
) -> Message:
    """Compute what the server's method needs of a trained network, and answer a message of training with it.

    Args:
        message: of `FedFisherStrategy`; it has the network that training starts from.
        model: the trained network; see `Client`.
        data: the client's examples; see `Client`.
        metrics: of the training, sent along.
        **options: `retrain`, `generator` and `batch_size` of `Client`.

    Raises:
        InputError: the server asks for nothing, its network is another one, or the upload can't be computed.
    """
    if RECORD not in message.content.config_records:
        raise InputError("the server asks for no upload; allowed: a ServerApp with fedfisher.flower.FedFisherStrategy")
    asked = json.loads(message.content.config_records[RECORD]["asked"])
    theirs, fisher, method = (asked.pop(key) for key in ("network", "fisher", "method"))
    examples = gather(data, who="the client's data")
    network = Network.of(model, examples.inputs, fisher=fisher)
    network.require_described(theirs, who="the client", others="the server")
    (arrays,) = message.content.array_records.values()
    client = Client(
        model,
        (examples.inputs, examples.labels),
        initial=_loaded(network, arrays, who="the server"),
        fisher=fisher,
        **{"batch_size": getattr(data, "batch_size", None), **options},
    )
    payload = client.upload(method, **asked).data
    content = RecordDict(
        {
            RECORD: ArrayRecord({UPLOAD: Array("uint8", (len(payload),), UPLOAD_TYPE, payload)}),
            "metrics": MetricRecord({"num-examples": client.num_examples, **(metrics or {})}),
        }
    )
    return Message(content=content, reply_to=message)


@dataclass(frozen=True)
class _Sent:
    """An upload of a node."""

    node: int
    upload: Upload

    @property
    def network(self) -> Network:
        return self.upload.network

    def received(self, configured: ConfiguredMethod, network: Network) -> Arrived:
        try:
            return self.upload.received(configured, network)
        except InputError as error:
            raise InputError(f"node {self.node}: {error}") from error


def _sent(message: Message, network: Network) -> _Sent:
    node = message.metadata.src_node_id
    try:
        (array,) = message.content.array_records[RECORD].values()
    except (KeyError, ValueError) as error:
        raise InputError(
            f"node {node} sent no upload; allowed: a ClientApp that returns fedfisher.flower.reply"
        ) from error
    return _Sent(node, Upload(array.data, network))


def _loaded(network: Network, arrays: ArrayRecord, *, who: str) -> nn.Module:
    return network.spec.load(network.read(arrays.to_torch_state_dict(), who=who))


def _require_one_round(configured: ConfiguredMethod) -> None:
    """Refuse methods whose result Flower can't send back to clients, or which need clients a second time."""
    method, who = configured.method, f"method {configured.method.name!r}"
    if method.asks_again:
        raise InputError(f"{who} asks clients for more after their uploads; allowed: methods of one round")
    if not method.continues:
        raise InputError(f"{who} leaves no single network of the clients' own shape; allowed: methods that leave one")
