"""Aggregating by secure aggregation: the server learns sums over clients and nothing else."""

import math
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.upload import Upload
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs
from fedfisher_core.federation.global_models import Traffic
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.uploads import read_statistics
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.sums import Summation, Sums
from fedfisher_core.models.spec import Parameters, models
from fedfisher_core.secure.client import Client
from fedfisher_core.secure.fixed_point import FixedPoint, Layout
from fedfisher_core.secure.keys import KEY_BYTES, derive
from fedfisher_core.secure.protocol import Clock, Collected, collect
from fedfisher_core.secure.signatures import verification_key
from fedfisher_core.secure.terms import Terms, default_threshold
from fedfisher_core.seeds import Stream, numpy_generator
from fedfisher_core.settings import Cell, SecureSettings
from fedfisher_core.store import Artifact, Step

Read = Callable[[], Mapping[type[Statistic], Statistic]]

_EXAMPLES = "num_examples"


@dataclass(frozen=True)
class AggregateSecurely(Aggregation):
    """Let clients and server carry out the protocol, and aggregate the sums; the method is written in sums."""

    def step(self, inputs: AggregationInputs[Artifact]) -> Step:
        """See `Job.step`."""
        method, summation, family = self.bound.method, self.bound.summation, models.get(self.place.spec.name)
        assert summation is not None
        sources = (summation.aggregate, summation.terms, family, *method.uploads)
        return self._step(inputs, sources, secure_sum=self.bound.wire.secure.model_dump(mode="json"))

    def aggregate(
        self, server: Server, inputs: AggregationInputs[Artifact]
    ) -> tuple[Aggregate, Traffic, dict[str, float]]:
        """See `Aggregation.aggregate`.

        Raises:
            InputError: the threshold can't be met.
        """
        bound, place = self.bound, self.place
        readers = {
            client: partial(read_statistics, bound.uploads, place.spec, sent.uploads)
            for client, sent in sorted(inputs.clients.items())
        }
        counts = {client: len(held_by(inputs.partition, client)) for client in readers}
        step = self.step(inputs)
        # Everyone knows the session's name: it must not come from what clients hold, as digests of inputs do.
        session = f"{place.label}: {replace(step, inputs={}).key}".encode()
        begun = time.perf_counter()
        collected = collect_securely(bound, place.cell, readers, counts, session=session, private=step.key.encode())
        protocol_seconds = time.perf_counter() - begun
        made, timings = self._timed(lambda: bound.of_sums(server, sums_of(collected, place.device)))
        learned = {"clients_in_sum": float(len(collected.uploaded)), "clipped_fraction": collected.clipped()}
        made = replace(made, details={**made.details, **learned})
        # The server's part of the protocol is its work; what clients did in it, masking most of all, is theirs.
        timings["seconds"] += protocol_seconds - collected.client_seconds
        timings["client_seconds"] = collected.client_seconds
        messages = collected.messages
        traffic = self._traffic(
            server,
            made,
            inputs,
            8 * messages.bytes_sent(),
            messages.formula_bits(collected.terms),
            8 * messages.bytes_received(len(readers)),
        )
        return made, traffic, timings


def collect_securely(
    bound: BoundMethod,
    cell: Cell,
    statistics: Mapping[int, Read],
    counts: Mapping[int, int],
    *,
    session: bytes,
    private: bytes,
) -> Collected:
    """Let clients and server carry out secure aggregation.

    Args:
        bound: the method, which is written in sums; its wire holds the settings of the protocol.
        cell: its seed draws the clients' secrets, again the same in each run.
        statistics: reads a client's, by its number.
        counts: how many examples each client holds.
        session: names the aggregation to everyone.
        private: names the aggregation and all that it is of; no two share it, and no client's secrets.

    Returns:
        What the server holds in the end.

    Raises:
        InputError: the threshold can't be met.
    """
    secure, summation = bound.wire.secure, bound.summation
    assert summation is not None
    # What the simulation spends on reading the store is no client's work.
    reading = Clock()
    statistics = {number: partial(reading.time, read) for number, read in statistics.items()}
    most = 2 ** _exponent(secure.most_examples)
    readers = {
        number: partial(_contribution, summation, read, min(counts[number], most))
        for number, read in sorted(statistics.items())
    }
    secrets = {number: _secrets(cell.seed, number, private) for number in readers}
    layout = {name: array.shape for name, array in next(iter(readers.values()))().items()}
    exponents = tuple(_size(name, secure, summation.counted_once) for name in layout)
    terms = _terms(secure, layout, exponents, {number: one.signing for number, one in secrets.items()}, session=session)
    clients = [
        Client(number, read, terms=terms, root=secrets[number].root, signing=secrets[number].signing)
        for number, read in readers.items()
    ]
    before = reading.seconds
    collected = collect(clients, terms, dropouts=secure.dropouts)
    return replace(collected, client_seconds=collected.client_seconds - (reading.seconds - before))


def sums_of(collected: Collected, device: torch.device) -> Sums:
    """Unmask the sums: the server's part.

    Args:
        collected: what the server holds.
        device: where the sums go.

    Returns:
        The sums of the clients whose uploads arrived.
    """
    tensors, errors = dict(collected.tensors()), collected.errors()
    num_examples = round(tensors.pop(_EXAMPLES).item())
    totals: dict[str, Parameters] = {}
    bounds: dict[str, dict[str, float]] = {}
    for key, array in tensors.items():
        term, _, name = key.partition("/")
        totals.setdefault(term, {})[name] = torch.from_numpy(array).to(device)
        bounds.setdefault(term, {})[name] = errors[key]
    return Sums(num_examples=num_examples, totals=totals, errors=bounds)


@dataclass(frozen=True)
class _Secrets:
    """What a simulated client alone knows: the root of a session's secrets, and the key that it signs with in all."""

    root: bytes
    signing: bytes


def _secrets(seed: int, client: int, private: bytes) -> _Secrets:
    drawn = numpy_generator(seed, Stream.SECURE, client)
    return _Secrets(root=derive(drawn.bytes(KEY_BYTES), purpose=private), signing=drawn.bytes(KEY_BYTES))


def _terms(
    secure: SecureSettings,
    layout: Layout,
    exponents: tuple[int, ...],
    signing: Mapping[int, bytes],
    *,
    session: bytes,
) -> Terms:
    """What clients agree on before anybody looks at a statistic."""
    active = secure.adversary == "active"
    threshold = default_threshold(len(signing), active=active) if secure.threshold is None else secure.threshold
    return Terms(
        session=session,
        participants=tuple(signing),
        threshold=threshold,
        code=FixedPoint(layout, exponents, clients=len(signing), bits=secure.bits),
        verification_keys={number: verification_key(key) for number, key in signing.items()} if active else None,
    )


def _size(name: str, secure: SecureSettings, counted_once: Set[str]) -> int:
    """The e up to whose 2^e a client's addend is held for sure: its examples, and with a term its size as well."""
    examples, clip = _exponent(secure.most_examples), _exponent(secure.clip)
    if name == _EXAMPLES:
        return examples
    # What counts once may be the client itself, which is 1.
    return max(0, clip) if name.partition("/")[0] in counted_once else examples + clip


def _exponent(bound: float) -> int:
    """The least e with bound at most 2^e."""
    return math.ceil(math.log2(bound))


def _contribution(summation: Summation, read: Read, num_examples: int) -> dict[str, NDArray[np.float64]]:
    """What one client adds: n_i, and n_i times each term."""
    terms = summation.terms(Upload(num_examples, read()))
    added = {
        f"{term}/{name}": (num_examples * tensor).cpu().numpy()
        for term, tensors in terms.items()
        for name, tensor in tensors.items()
    }
    return {_EXAMPLES: np.array(num_examples, dtype=np.float64), **added}
