"""What local objectives leave in the store from round to round: the server's memory, and each client's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedfisher_core.client.objectives.binding import BoundObjective
from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.client.past import NO_PAST, LocalTraining, Past, Report, ServerMemory
from fedfisher_core.federation.inputs import StartInputs, TrainingInputs
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.store import Artifact, read_tensors
from fedfisher_core.wire.uncompressed import bits_of

_SENT = "sent.safetensors"
_HELD = "held.safetensors"
_KEPT = "kept.safetensors"
_REPORT = "report.safetensors"

Files = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Memory:
    """The memory of one objective in one round.

    Args:
        objective: what clients minimise.
        place: the federation.
        turn: the round, from 1.
    """

    objective: BoundObjective
    place: Place
    turn: int

    def of_server(self, inputs: StartInputs[Artifact]) -> ServerMemory:
        """Read what the server kept of the round before.

        Args:
            inputs: of a job of this round.

        Returns:
            Its memory; nothing where the objective has no exchange.
        """
        exchange = self.objective.objective.exchange
        if exchange is None:
            return ServerMemory(sent={})
        if self.turn == 1:
            learnt = self.place.spec.learnt()
            start = load_start(inputs.start, self.place.device)
            weights = {name: tensor for name, tensor in start.items() if name in learnt}
            return exchange.begin(weights, self.objective.settings)
        return ServerMemory(sent=self._read(inputs.start, _SENT), held=self._read(inputs.start, _HELD))

    def of_client(self, inputs: TrainingInputs[Artifact]) -> Past:
        """Read what earlier rounds left to a client.

        Args:
            inputs: of its training.

        Returns:
            Its past.
        """
        if Knowledge.PAST not in self.objective.objective.reads:
            return NO_PAST
        sent = self.of_server(inputs).sent
        if not inputs.before:
            return Past(sent=sent)
        (before,) = inputs.before.values()
        kept = {} if self.objective.objective.exchange is None else self._read(before, _KEPT)
        return Past(sent=sent, kept=kept, trained=self._read(before, TENSORS))

    def after_training(self, training: LocalTraining, past: Past) -> Files:
        """Make what a client keeps and what it reports.

        Args:
            training: of this round.
            past: what it was trained with.

        Returns:
            Files of named tensors. The objective has an exchange.
        """
        exchange = self.objective.objective.exchange
        assert exchange is not None
        kept, report = exchange.close(training, past, self.objective.settings)
        return {_KEPT: _on_cpu(kept), _REPORT: _on_cpu(report)}

    def after_round(
        self, inputs: StartInputs[Artifact], trained: Sequence[tuple[int, Artifact]], clients: int
    ) -> tuple[Files, int]:
        """Make what the server keeps, of what clients report.

        Args:
            inputs: of the round's aggregation.
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
        """Count what the server sends to one client beside the start; in round 1 clients know it.

        Args:
            inputs: of the round's aggregation.

        Returns:
            Bits.
        """
        return 0 if self.turn == 1 else bits_of(self.of_server(inputs).sent)

    def _read(self, artifact: Artifact, name: str) -> dict[str, Tensor]:
        return {key: tensor.to(self.place.device) for key, tensor in read_tensors(artifact, name).items()}


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
