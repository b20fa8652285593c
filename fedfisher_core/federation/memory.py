"""What local objectives keep in the store from round to round: the server's memory, and each client's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedfisher_core.client.objectives.configured import ConfiguredObjective
from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.client.past import NO_PAST, LocalTraining, Past, Report, ServerMemory
from fedfisher_core.communication.wire.payload import bits_of
from fedfisher_core.engine.store import Artifact, read_tensors
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.inputs import StartInputs, TrainingInputs
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS

_SENT = "sent.safetensors"
_HELD = "held.safetensors"
_KEPT = "kept.safetensors"
_REPORT = "report.safetensors"

Files = dict[str, dict[str, Tensor]]


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
