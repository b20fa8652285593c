"""Aggregating by secure aggregation: the server learns sums over clients and nothing else."""

import logging
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.uploads import Upload
from fedfisher_core.communication.secure.client import Client
from fedfisher_core.communication.secure.fixed_point import FixedPoint, Layout, Tensors
from fedfisher_core.communication.secure.keys import KEY_BYTES, derive, verification_key
from fedfisher_core.communication.secure.protocol import Clock, Collected, collect
from fedfisher_core.communication.secure.terms import Terms, default_threshold, require_threshold
from fedfisher_core.engine.costs import Stopwatch
from fedfisher_core.engine.errors import InputError, shown
from fedfisher_core.engine.job import artifacts_in
from fedfisher_core.engine.seeds import Stream, numpy_generator
from fedfisher_core.engine.store import Artifact
from fedfisher_core.engine.store.manifest import as_json
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs, Timings
from fedfisher_core.federation.global_models import Traffic
from fedfisher_core.federation.partition import held_by
from fedfisher_core.federation.uploads import read_statistics
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import Summation, Sums
from fedfisher_core.models.spec import Parameters
from fedfisher_core.settings import SecureSettings, SeededSetting


def require_protocol(label: str, configured: ConfiguredMethod, clients: int) -> None:
    """Check that enough clients stay until secure aggregation ends.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    if configured.summation is None:
        return
    secure = configured.wire.secure
    unknown = sorted(number for number in secure.dropouts if number >= clients)
    if unknown:
        raise InputError(f"method {label!r}: wire.secure.dropouts names clients {unknown}; allowed: 0 to {clients - 1}")
    active = secure.adversary == "active"
    threshold = default_threshold(clients, active=active) if secure.threshold is None else secure.threshold
    try:
        require_threshold(threshold, clients, active=active)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error
    # A number of examples is counted in whole numbers.
    places = FixedPoint({}, (), clients=clients, bits=secure.bits).places
    if (beyond := _exponent(secure.most_examples) - places) > 0:
        raise InputError(
            f"method {label!r}: wire.secure.most_examples={secure.most_examples} with {clients} clients and "
            f"wire.secure.bits={secure.bits} counts examples in steps of {2**beyond}; allowed: up to {2**places}, or "
            "64 bits"
        )
    survivors = [number for number in range(clients) if number not in secure.dropouts]
    if len(survivors) < threshold:
        raise InputError(
            f"method {label!r}: with wire.secure.dropouts, {len(survivors)} of {clients} clients stay to the end "
            f"(survivors: {shown(survivors)}); allowed: wire.secure.threshold={threshold} or more"
        )


Read = Callable[[], Mapping[type[Statistic], Statistic]]

ROUNDING = "rounding"
CLIPPED = "clipped_fraction"
"""Detail of an aggregate: how far rounding is expected to put a sum off; see `coarsest`."""

COARSE = 2.0**-8
"""From this fraction of a sum's root mean square on, a warning names the rounding error.

With 32 bits, FedFisher(Diag) on five clients of the embedded digits (mlp, eight epochs) lost 0.1 of its 71.8 points at
0.0025, 1.0 at 0.01, 2.1 at 0.04, 4.9 at 0.16, and at 1 all that it has over FedAvg.
"""

_EXAMPLES = "num_examples"
# In a sum with the largest, float32 would lose what is smaller than this fraction of it.
_SINGLE = 2.0**-24

log = logging.getLogger("fedfisher")


@dataclass(frozen=True)
class AggregateSecurely(Aggregation):
    """Let clients and server carry out the protocol, and aggregate the sums; the method is written in sums."""

    version: ClassVar[int] = 2

    @property
    def protocol(self) -> dict[str, Any]:
        """See `Aggregation.protocol`."""
        return {"secure_sum": self.configured.wire.secure.model_dump(mode="json")}

    def aggregate(self, server: Server, inputs: AggregationInputs[Artifact]) -> tuple[Aggregate, Traffic, Timings]:
        """See `Aggregation.aggregate`.

        Raises:
            InputError: the threshold can't be met.
        """
        configured, federation = self.configured, self.federation
        readers = {
            client: partial(read_statistics, configured.uploads, federation.spec, sent.uploads)
            for client, sent in sorted(inputs.clients.items())
        }
        counts = {client: len(held_by(inputs.partition, client)) for client in readers}
        # Everyone knows the session's name, so it must not depend on what clients hold, as keys and digests do.
        session = f"{federation.label}: {replace(self.recipe, inputs={}).key}".encode()
        # Digests of content name what clients hold, since other code may have made it under the same key.
        private = as_json([self.key, [one.digest for one in artifacts_in(inputs)]])
        watch = Stopwatch()
        collected = collect_securely(configured, federation.setting, readers, counts, session=session, private=private)
        protocol = watch.spent()
        made, timings = self._timed(lambda: configured.of_sums(server, sums_of(collected, federation.device)))
        tensor, rounding = coarsest(collected.tensors(), collected.terms.code.steps(), len(collected.uploaded))
        if rounding > COARSE:
            log.warning(
                "%s: rounding to wire.secure.bits=%d puts the secure sum of %s off by %.2g of its root mean square; "
                "more bits, a smaller wire.secure.clip, or a most_examples nearer to the largest client's, round less",
                self.name,
                collected.terms.code.bits,
                tensor,
                rounding,
            )
        if clipped := collected.clipped():
            log.warning(
                "%s: wire.secure.clip=%g cut off %.2g of the numbers that clients sent, so that their sum is another; "
                "a larger clip or most_examples cuts off less",
                self.name,
                configured.wire.secure.clip,
                clipped,
            )
        most = _most_examples(configured.wire.secure)
        if larger := [f"{client} ({count:,})" for client, count in counts.items() if count > most]:
            log.warning(
                "%s: clients count as %s examples though they hold more: %s; wire.secure.most_examples=%d",
                self.name,
                f"{most:,}",
                ", ".join(larger),
                configured.wire.secure.most_examples,
            )
        learned = {
            "clients_in_sum": float(len(collected.uploaded)),
            CLIPPED: clipped,
            ROUNDING: rounding,
        }
        made = replace(made, details={**made.details, **learned})
        # The clients' part of the protocol, above all masking, is not the server's work.
        clients = collected.client_spent
        timings = replace(timings, server=timings.server + (protocol - clients), clients=clients)
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
    configured: ConfiguredMethod,
    setting: SeededSetting,
    statistics: Mapping[int, Read],
    counts: Mapping[int, int],
    *,
    session: bytes,
    private: bytes,
) -> Collected:
    """Let clients and server carry out secure aggregation, and return what the server holds after it.

    Args:
        configured: the method, which is written in sums; its wire holds the settings of the protocol.
        setting: its seed draws the clients' secrets, the same in each run.
        statistics: a function that reads a client's statistics, by client.
        session: names the aggregation to everyone.
        private: names the aggregation and all its inputs. No two aggregations share it, and so no client's secrets.

    Raises:
        InputError: the threshold can't be met.
    """
    secure, summation = configured.wire.secure, configured.summation
    assert summation is not None
    # The time that a simulation spends on reading the store is not the clients' work.
    reading = Clock()
    statistics = {number: partial(reading.time, read) for number, read in statistics.items()}
    most = _most_examples(secure)
    readers = {
        number: partial(_contribution, summation, read, min(counts[number], most))
        for number, read in sorted(statistics.items())
    }
    secrets = {number: _secrets(setting.seed, number, private) for number in readers}
    layout = {name: array.shape for name, array in next(iter(readers.values()))().items()}
    exponents = tuple(_size(name, secure, summation.counted_once) for name in layout)
    terms = _terms(secure, layout, exponents, {number: one.signing for number, one in secrets.items()}, session=session)
    clients = [
        Client(number, read, terms=terms, root=secrets[number].root, signing=secrets[number].signing)
        for number, read in readers.items()
    ]
    before = reading.spent
    collected = collect(clients, terms, dropouts=secure.dropouts)
    return replace(collected, client_spent=collected.client_spent - (reading.spent - before))


def _most_examples(secure: SecureSettings) -> int:
    """The most examples that a client counts as."""
    return 2 ** _exponent(secure.most_examples)


def sums_of(collected: Collected, device: torch.device) -> Sums:
    """Unmask the sums of the clients whose uploads arrived: the server's part."""
    tensors, errors = dict(collected.tensors()), collected.errors()
    num_examples = round(tensors.pop(_EXAMPLES).item())
    totals: dict[str, Parameters] = {}
    bounds: dict[str, dict[str, float]] = {}
    for key, array in tensors.items():
        term, _, name = key.partition("/")
        totals.setdefault(term, {})[name] = torch.from_numpy(array).to(device)
        bounds.setdefault(term, {})[name] = errors[key]
    return Sums(num_examples=num_examples, totals=totals, errors=bounds)


def coarsest(sums: Tensors, steps: Mapping[str, float], clients: int) -> tuple[str, float]:
    """Find the sum that rounding is expected to put off most, and by which fraction, at most 1.

    An addend is off by at most half a step, uniformly, so a sum of n addends is off by sqrt(n / 12) steps in root mean
    square. That is divided by the root mean square of the sum, or by what float32 resolves of the largest sum of its
    term where that is more. So a sum of zeros does not count as lost, unless all sums of its term are zeros: these may
    have been rounded away.

    Args:
        sums: by name, "TERM/TENSOR"; the number of examples is left out.
        steps: step of the fixed-point code, by sum.
    """
    sizes = {name: float(np.sqrt(np.mean(np.square(one)))) for name, one in sums.items() if name != _EXAMPLES}
    largest: dict[str, float] = {}
    for name, size in sizes.items():
        term = name.partition("/")[0]
        largest[term] = max(size, largest.get(term, 0.0))
    parts = {}
    for name, size in sizes.items():
        error = math.sqrt(clients / 12) * steps[name]
        parts[name] = error / max(size, _SINGLE * largest[name.partition("/")[0]], error)
    return max(parts.items(), key=lambda one: one[1])


@dataclass(frozen=True)
class _Secrets:
    """What a simulated client alone knows: the root of a session's secrets, and its signing key of all sessions."""

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
    """What clients agree on before a statistic is read."""
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
    """The e for which a client's addend stays within 2^e: its examples, times the size of a term."""
    examples, clip = _exponent(secure.most_examples), _exponent(secure.clip)
    if name == _EXAMPLES:
        return examples
    # What counts once may be the client itself, which is 1.
    return max(0, clip) if name.partition("/")[0] in counted_once else examples + clip


def _exponent(configured: float) -> int:
    """The least e for which the bound is at most 2^e."""
    return math.ceil(math.log2(configured))


def _contribution(summation: Summation, read: Read, num_examples: int) -> dict[str, NDArray[np.float64]]:
    """What one client adds: n_i, and n_i times each term."""
    terms = summation.terms(Upload(num_examples, read()))
    added = {
        f"{term}/{name}": (num_examples * tensor).cpu().numpy()
        for term, tensors in terms.items()
        for name, tensor in tensors.items()
    }
    return {_EXAMPLES: np.array(num_examples, dtype=np.float64), **added}
