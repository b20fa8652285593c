"""FENS: an ensemble with a combiner of its outputs, which clients train in many rounds after their uploads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.communication.wire.payload import bits_of
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Combine, Server
from fedfisher_core.methods.server_optimisers.fedadam import fedadam
from fedfisher_core.methods.shared.averaging import weighted_sum
from fedfisher_core.models.combined import SideBySide, combine, draw_combiner
from fedfisher_core.models.evaluation import logits
from fedfisher_core.models.spec import Parameters


@dataclass(frozen=True)
class Participant:
    """A client's side: what it holds never leaves it, and `change` is all that it sends.

    Args:
        outputs: of all networks on its examples, before the softmax, shape (examples, networks * classes).
        labels: of its examples.
    """

    outputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, local: Local) -> "Participant":
        """Compute the outputs once for all rounds; the client's network is that of all clients side by side."""
        return cls(logits(local.network, local.examples.inputs), local.examples.labels)

    def change(
        self, combiner: Parameters, *, rate: float, batch_size: int, steps: int, generator: torch.Generator
    ) -> Parameters:
        """Train the server's combiner by plain steps on batches of own examples, and give what changed."""
        trained = combiner
        for rows in _batches(len(self.labels), batch_size, steps, generator):
            own = {name: tensor.detach().requires_grad_() for name, tensor in trained.items()}
            picked = rows.to(self.labels.device)
            loss = functional.cross_entropy(combine(self.outputs[picked], own), self.labels[picked])
            slopes = torch.autograd.grad(loss, list(own.values()))
            trained = {name: own[name].detach() - rate * slope for name, slope in zip(own, slopes, strict=True)}
        return {name: tensor - combiner[name] for name, tensor in trained.items()}


def _batches(examples: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Draw so many batches, pass after pass; the last one of a pass may be smaller."""
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) == 0:
            order = torch.randperm(examples, generator=generator)
        yield order[:size]
        order = order[size:]


@method(
    "fens",
    uploads=(Weights,),
    reference="https://infoscience.epfl.ch/entities/publication/4dcf5461-5189-4b93-bc6f-89203af76132",
    ranked=False,
    continues=False,
    asks_again=True,
)
def fens(
    server: Server,
    uploads: Sequence[Upload],
    *,
    rounds: Annotated[PositiveInt, Field(description="in which clients train the combiner")] = 500,
    hidden: Annotated[PositiveInt, Field(description="units of the combiner for each network")] = 2,
    client_rate: Annotated[PositiveFloat, Field(description="of clients' plain steps")] = 1.0,
    server_rate: Annotated[PositiveFloat, Field(description="of the server's FedAdam")] = 0.001,
    batch_size: Annotated[PositiveInt, Field(description="examples a step")] = 128,
    local_steps: Annotated[PositiveInt, Field(description="of a client in a round")] = 1,
) -> Aggregate:
    """Keep all local models, and have clients train a small network that combines their outputs (Allouah et al. 2024).

    The server sends all networks to every client. In each round it sends the combiner, every client takes steps
    from it on its own examples, and the server goes on by FedAdam from the mean of what they changed. So clients
    are asked again in every round, and this is no one-shot method.

    The defaults are those of `train_aggregator.sh` in the authors' repository sacs-epfl/fens. As in their code, a
    client counts by the examples that it sees in a round, and FedAdam's second moment begins at 0. Two things differ.
    The authors hold a tenth of each client's examples back for the combiner. Here all methods share the same trained
    networks, so the combiner sees the examples that these were trained on. The authors send networks with 8 bits a
    number. Here they arrive in the benchmark's format.

    Raises:
        ArithmeticError: the combiner diverged.
    """
    networks = SideBySide([server.network(upload[Weights].tensors) for upload in uploads])
    participants = [Participant.of(upload.client(networks)) for upload in uploads]
    drawn = draw_combiner(len(uploads), server.spec.classes, hidden, server.generator)
    combiner = {name: tensor.to(server.device) for name, tensor in drawn.items()}
    moments = {name: dict.fromkeys(("mean", "square"), torch.zeros_like(one)) for name, one in combiner.items()}
    seen = [min(upload.num_examples, batch_size * local_steps) for upload in uploads]
    shares = [one / sum(seen) for one in seen]
    for _ in track(range(rounds), what="round"):
        changes = [
            one.change(combiner, rate=client_rate, batch_size=batch_size, steps=local_steps, generator=server.generator)
            for one in participants
        ]
        for name, change in weighted_sum(changes, shares).items():
            step, after = fedadam(
                change, moments[name], learning_rate=server_rate, beta_1=0.9, beta_2=0.99, adaptivity=1e-3
            )
            combiner[name], moments[name] = combiner[name] + step, dict(after)
    if not all(is_finite(tensor) for tensor in combiner.values()):
        raise ArithmeticError("the combiner diverged; allowed: a lower client_rate")
    return Aggregate(
        networks=tuple(upload[Weights].tensors for upload in uploads),
        combine=Combine.LEARNT,
        combiner=combiner,
        exchanged_bits=rounds * bits_of(combiner),
    )
