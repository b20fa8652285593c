"""What an aggregation leaves in the store: a global model, what is known of it, and memory between rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter
from torch import Tensor

from fedfisher_core.client.objectives.objective import ConfiguredObjective, Knowledge
from fedfisher_core.client.round_state import NO_PAST, LocalTraining, Past, Report, ServerMemory
from fedfisher_core.communication.wire.payload import bits_of
from fedfisher_core.engine.costs import Spent, total
from fedfisher_core.engine.store import Artifact, names_of, read_document, read_tensors, read_timings, understood
from fedfisher_core.federation.federation import Federation, StartInputs, TrainingInputs
from fedfisher_core.federation.start import NETWORK, load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.methods.server import Aggregate, Combine
from fedfisher_core.models.spec import Parameters

RESULT = "result.json"
"""File with what is known of a global model."""

CLIENTS = "clients.json"
"""File with what is known of the clients of the round."""

TRAINING, ENCODING = "training_", "encoding_"
"""Prefixes of timings of the clients' side."""

_CLASS_WEIGHTS = "class_weights.safetensors"
_COMBINER = "combiner.safetensors"
_SENT = "sent.safetensors"
_HELD = "held.safetensors"
_KEPT = "kept.safetensors"
_REPORT = "report.safetensors"
Files = dict[str, dict[str, Tensor]]


def statistic_timing(name: str) -> str:
    """Prefix of a statistic's timings."""
    return f"statistic_{name}_"


@dataclass(frozen=True)
class Traffic:
    """Bits that crossed the network in one aggregation, all clients together.

    Args:
        upload_bits: from the clients, as counted on the wire.
        upload_bits_formula: from the clients, as papers count them.
        start_sent: what the server sends before the training; see `Download`.
        start_bits: the part of `download_bits` that is sent before the training.
    """

    upload_bits: int
    upload_bits_formula: int
    download_bits: int
    start_sent: str
    start_bits: int


@dataclass(frozen=True)
class Result:
    """What is known of one method's global model.

    Args:
        combine: how several networks predict together.
        widths: of the global network's hidden layers; empty for its family's default.
        uses_validation: whether the method looked at the server's validation set.
    """

    networks: int
    combine: Combine
    details: Mapping[str, float]
    widths: tuple[int, ...]
    uses_validation: bool
    traffic: Traffic


@dataclass(frozen=True)
class RoundClients:
    """What is known of the clients of a round. Costs are those of all clients together.

    Args:
        failed: numbers of the clients that have diverged.
        epsilon: the most that one client has spent; None without differential privacy.
        scatter: how far Fishers are expected to be off because directions were drawn, mean over clients; None where no
            directions can be drawn.
        training: zero for a method that needs no training.
        statistics: by the statistic's name.
    """

    failed: list[int]
    epsilon: float | None
    scatter: float | None
    training: Spent
    statistics: dict[str, Spent]
    encoding: Spent

    @property
    def spent(self) -> Spent:
        """All that the clients spent."""
        return total([self.training, *self.statistics.values(), self.encoding])


@understood
def read_clients(artifact: Artifact) -> RoundClients:
    """Read what an aggregation notes of the clients of its round."""
    said, timings = read_document(artifact, CLIENTS), read_timings(artifact)
    return RoundClients(
        failed=said["failed"],
        epsilon=said.get("epsilon"),
        scatter=said.get("scatter"),
        training=Spent.of(timings, TRAINING),
        statistics={name: Spent.of(timings, statistic_timing(name)) for name in said["statistics"]},
        # Clients that take part in a protocol encode as part of it.
        encoding=Spent.of(timings, "client_" if said["protocol"] else ENCODING),
    )


def files_of(made: Aggregate) -> Files:
    """Make the files of a global model: tensors on the CPU, by file and name."""
    networks = {
        NETWORK.format(index): {name: tensor.cpu().contiguous() for name, tensor in network.items()}
        for index, network in enumerate(made.networks)
    }
    weights = {} if made.weights is None else {_CLASS_WEIGHTS: _on_cpu({"weights": made.weights})}
    return networks | weights | ({} if made.combiner is None else {_COMBINER: _on_cpu(made.combiner)})


@understood
def read_result(artifact: Artifact) -> Result:
    """Read what is known of a global model that an aggregation made."""
    return TypeAdapter(Result).validate_python(read_document(artifact, RESULT))


@understood
def read_model(artifact: Artifact, federation: Federation) -> Aggregate:
    """Read a global model that an aggregation made, onto the federation's device."""
    result = read_result(artifact)

    def read(file: str) -> Parameters:
        return {name: tensor.to(federation.device) for name, tensor in read_tensors(artifact, file).items()}

    weighted = _CLASS_WEIGHTS in names_of(artifact)
    return Aggregate(
        networks=tuple(read(NETWORK.format(index)) for index in range(result.networks)),
        combine=result.combine,
        weights=read_tensors(artifact, _CLASS_WEIGHTS)["weights"] if weighted else None,
        spec=replace(federation.spec, widths=result.widths),
        combiner=read(_COMBINER) if _COMBINER in names_of(artifact) else None,
    )


@dataclass(frozen=True)
class Memory:
    """The memory of one objective in one round, counted from 1."""

    objective: ConfiguredObjective
    federation: Federation
    round_number: int

    def of_server(self, inputs: StartInputs[Artifact]) -> ServerMemory:
        """Read what the server kept of the round before; empty where the objective has no exchange."""
        exchange = self.objective.objective.exchange
        if exchange is None:
            return ServerMemory(sent={})
        if self.round_number == 1:
            learnt = self.federation.spec.learnt()
            start = load_start(inputs.start, self.federation.device)
            weights = {name: tensor for name, tensor in start.items() if name in learnt}
            return exchange.begin(weights, self.objective.settings)
        return ServerMemory(sent=self._read(inputs.start, _SENT), held=self._read(inputs.start, _HELD))

    def of_client(self, inputs: TrainingInputs[Artifact]) -> Past:
        """Read what a client kept of earlier rounds."""
        if Knowledge.PAST not in self.objective.objective.reads:
            return NO_PAST
        sent = self.of_server(inputs).sent
        if not inputs.before:
            return Past(sent=sent)
        (before,) = inputs.before.values()
        kept = {} if self.objective.objective.exchange is None else self._read(before, _KEPT)
        return Past(sent=sent, kept=kept, trained=self._read(before, TENSORS))

    def after_training(self, training: LocalTraining, past: Past) -> Files:
        """Make the files of what a client keeps and what it reports; the objective must have an exchange."""
        exchange = self.objective.objective.exchange
        assert exchange is not None
        kept, report = exchange.close(training, past, self.objective.settings)
        return {_KEPT: _on_cpu(kept), _REPORT: _on_cpu(report)}

    def after_round(
        self, inputs: StartInputs[Artifact], trained: Sequence[tuple[int, Artifact]], clients: int
    ) -> tuple[Files, int]:
        """Update what the server keeps by what clients report.

        Args:
            trained: number of examples and training of each client of the round.
            clients: number of all clients that may take part.

        Returns:
            Files of named tensors, and the bits of all reports; nothing where the objective has no exchange.
        """
        exchange = self.objective.objective.exchange
        if exchange is None:
            return {}, 0
        reports = [Report(examples, self._read(artifact, _REPORT)) for examples, artifact in trained]
        memory = exchange.update(self.of_server(inputs), reports, clients, self.objective.settings)
        files = {_SENT: _on_cpu(memory.sent), _HELD: _on_cpu(memory.held)}
        return files, sum(bits_of(report.tensors) for report in reports)

    def sent_bits(self, inputs: StartInputs[Artifact]) -> int:
        """Bits that the server sends to one client in addition to the start; in round 1 clients know them."""
        return 0 if self.round_number == 1 else bits_of(self.of_server(inputs).sent)

    def _read(self, artifact: Artifact, name: str) -> dict[str, Tensor]:
        return {key: tensor.to(self.federation.device) for key, tensor in read_tensors(artifact, name).items()}


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
