"""The result rows of a benchmark, and the role of each: one network, ensemble or reference."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import ConfigDict

from fedfisher_core.engine.errors import InputError
from fedfisher_core.settings import AVERAGE, PLAIN, shift_name

_FRACTIONS = (
    *("accuracy", "worst_client_accuracy", "worst_class_accuracy", "unseen_accuracy", "personalised_accuracy"),
    "secure_clipped",
)
_NOT_NEGATIVE = (
    *("loss", "unseen_loss", "personalised_loss"),
    *("fisher_scatter", "least_trace", "secure_rounding", "canary_exposure", "canary_client_exposure"),
    *("client_train_seconds", "client_encode_seconds", "server_seconds"),
    *("client_processor_seconds", "server_processor_seconds"),
    *("upload_bits", "upload_bits_formula", "download_bits", "peak_memory_bytes"),
)

_LOCAL_MEAN = "local_mean"
_ENSEMBLE = "ensemble"
_FAFI = "fafi"
_FENS = "fens"


@dataclass(frozen=True)
class RoundPoint:
    """What one method had reached after one of several rounds.

    Args:
        round: from 1.
        accuracy: test accuracy, a fraction.
        loss: mean cross-entropy on the test set, in nats.
        worst_client_accuracy: lowest accuracy over the clients, a fraction.
        worst_class_accuracy: lowest accuracy over the classes, a fraction.
        upload_bits: bits on the wire, all clients, in this round and those before.
        download_bits: bits from the server, all clients: the starts of this round and those before, and this round's
            global model.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    round: int
    accuracy: float
    loss: float
    worst_client_accuracy: float
    worst_class_accuracy: float
    upload_bits: int
    download_bits: int


@dataclass(frozen=True)
class Row:
    """What one method reached with one seed in one setting.

    Args:
        benchmark: name of the benchmark.
        partition: name of the scheme that splits the data over the clients.
        alpha: Dirichlet concentration; None where the partition has none.
        num_rounds: number of rounds; seconds and bits are of all rounds, measures are after the last.
        method: label of the method.
        uploads: what the server must see of each upload, by its name: "sum" or "each".
        accuracy: test accuracy, a fraction.
        loss: mean cross-entropy on the test set, in nats.
        worst_client_accuracy: lowest accuracy over the clients, a fraction. A client is measured on its own test images
            where a column says whose these are, otherwise on test images in its proportions of true labels; in both
            cases as it sees its own images.
        worst_class_accuracy: lowest accuracy over the classes, a fraction.
        client_train_seconds: local training on the clock, summed over the clients; 0 for a method that needs none.
        client_statistics_seconds: seconds by statistic, summed over the clients.
        client_encode_seconds: encoding of uploads, or the clients' part of secure aggregation, summed over the clients;
            None where it was not counted.
        server_seconds: decoding each upload once and aggregation, on the clock, with the server's part of secure
            aggregation.
        upload_bits: bits on the wire, all clients.
        upload_bits_formula: upload bits as the paper counts them.
        download_bits: bits from the server, all clients: what they start from, and the encoded global model.
        start_sent: what the server sends before the training, "seed", "model" or "nothing"; None where it was not
            counted.
        peak_memory_bytes: working memory of the aggregation at its peak.
        uses_validation: whether the method saw the server's validation set.
        reference: whether it is not compared with the methods of one network: an ensemble, a bound or another baseline.
        failed_clients: clients whose upload is missing.
        artifact: key of the artifact that holds the numbers.
        epsilon: the accountant's bound for all that one client releases to all methods; None without differential
            privacy.
        audited_epsilon: the lower bound on epsilon that an audit of one client found; None without an audit.
        track: how the benchmark sets its methods, "as_published" or "best_effort"; None where it has its own settings.
        training: settings of the clients' training, with those of an objective that is not plain; None where they
            were not kept.
        num_networks: networks that a prediction needs; None where they were not counted.
        train_size: training examples that were used; None for all of the data set.
        held_out: number of training examples, in no training, that accuracy and losses are measured on; None for test
            examples.
        shift: how clients see their examples, such as "rotation"; None without a shift.
        shift_strength: of the shift, in its own unit; None without one.
        shift_classes: number of classes that exchange their names; None for all, and without such a shift.
        objective: label of what the clients minimise.
        server_optimiser: label of what the server makes of an aggregate.
        cohort: clients that take part in a round; None for all.
        curve: what was reached after each round; empty for a single round.
        unseen_clients: how many of num_clients take part in no round; None where all may.
        barrier_accuracy: client-server barrier: accuracy of a client's own network less that of the global one, on the
            client's training examples; mean over the clients of the last round, all with the same weight. None where it
            was not measured, as for the fields below.
        barrier_loss: mean cross-entropy of the global network less that of the client's own, averaged alike, in nats.
        unseen_accuracy: of the global network, on that part of each unseen client's examples that it does not train
            on; mean over unseen clients, all with the same weight.
        unseen_loss: mean cross-entropy on the same examples, averaged alike, in nats.
        personalised_accuracy: on the same examples, after each unseen client trained the network on its other ones.
        personalised_loss: mean cross-entropy, measured alike, in nats.
        fisher: estimator of the clients' Fishers, such as "truncated (0.01)"; None for methods without Fishers, and
            where it was not kept.
        fisher_scatter: how far a Fisher is expected to be off at the network's outputs because directions were drawn,
            relative to its norm there; mean over the clients of the last round. None where nothing could be drawn.
        least_trace: the smallest trace of a client's Fisher, times its share of the examples, divided by the mean over
            clients, for the round with the least (fedfisher_kfac). None where it was not kept.
        client_processor_seconds: processor time of training, statistics and encoding, summed over the clients. Unlike
            time on the clock, it does not grow with other work on the machine. None where it was not counted, or can't
            be separated from that of other tasks.
        server_processor_seconds: processor time of what `server_seconds` covers; None as above.
        secure_rounding: how far rounding is expected to put a secure sum off, as a fraction of the sum's root mean
            square, for the worst tensor and round. None without secure sums, and where it was not kept.
        secure_clipped: fraction of the numbers of a secure sum that were cut off at the agreed range, for the worst
            round. None as above.
        canary_times: how many texts of client 0 gave way to the canary; None without one.
        canary_exposure: of the canary in the global network, in bits. None where it was not measured, as below.
        canary_client_exposure: the same in the network of the client that holds the canary, as it was trained.

    Raises:
        InputError: a measure is not finite, or out of its range.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    dataset: str
    model: str
    partition: str
    alpha: float | None
    num_clients: int
    num_rounds: int
    seed: int
    method: str
    method_settings: dict[str, Any]
    uploads: dict[str, str]
    accuracy: float
    loss: float
    worst_client_accuracy: float
    worst_class_accuracy: float
    client_train_seconds: float
    client_statistics_seconds: dict[str, float]
    server_seconds: float
    upload_bits: int
    upload_bits_formula: int
    download_bits: int
    peak_memory_bytes: int
    uses_validation: bool
    reference: bool
    failed_clients: list[int]
    artifact: str
    client_encode_seconds: float | None = None
    start_sent: str | None = None
    epsilon: float | None = None
    audited_epsilon: float | None = None
    track: str | None = None
    training: dict[str, Any] | None = None
    num_networks: int | None = None
    train_size: int | None = None
    held_out: int | None = None
    shift: str | None = None
    shift_strength: float | None = None
    shift_classes: int | None = None
    objective: str = PLAIN
    server_optimiser: str = AVERAGE
    cohort: int | None = None
    curve: list[RoundPoint] = field(default_factory=list)
    unseen_clients: int | None = None
    barrier_accuracy: float | None = None
    barrier_loss: float | None = None
    unseen_accuracy: float | None = None
    unseen_loss: float | None = None
    personalised_accuracy: float | None = None
    personalised_loss: float | None = None
    fisher: str | None = None
    fisher_scatter: float | None = None
    least_trace: float | None = None
    client_processor_seconds: float | None = None
    server_processor_seconds: float | None = None
    secure_rounding: float | None = None
    secure_clipped: float | None = None
    canary_times: int | None = None
    canary_exposure: float | None = None
    canary_client_exposure: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(
                    f"{one.name} of method {self.method!r}, seed {self.seed} is {value}; it must be finite"
                )
        for name in (*_FRACTIONS, *_NOT_NEGATIVE):
            value, most = getattr(self, name), 1 if name in _FRACTIONS else math.inf
            if value is not None and not 0 <= value <= most:
                allowed = "from 0 to 1" if name in _FRACTIONS else "0 or more"
                raise InputError(f"{name} of method {self.method!r}, seed {self.seed} is {value}; allowed: {allowed}")

    @property
    def shift_name(self) -> str | None:
        """Short name of the shift; None without one."""
        return None if self.shift is None else shift_name(self.shift, self.shift_strength or 0.0, self.shift_classes)

    @property
    def client_seconds(self) -> float:
        """Seconds of local training, of all statistics and of encoding, summed over the clients."""
        statistics = math.fsum(self.client_statistics_seconds.values())
        return self.client_train_seconds + statistics + (self.client_encode_seconds or 0.0)


@dataclass(frozen=True)
class RoundRow(RoundPoint):
    """One round of one row, as the table of all rounds has it; see `Row` for its fields."""

    dataset: str
    model: str
    partition: str
    alpha: float | None
    shift: str | None
    num_clients: int
    cohort: int | None
    objective: str
    server_optimiser: str
    method: str
    seed: int


def round_rows(rows: Iterable[Row]) -> list[RoundRow]:
    """List every round of every row, in the order of the rows; rows of a single round are left out."""
    return [
        RoundRow(
            **vars(point),
            dataset=row.dataset,
            model=row.model,
            partition=row.partition,
            alpha=row.alpha,
            shift=row.shift_name,
            num_clients=row.num_clients,
            cohort=row.cohort,
            objective=row.objective,
            server_optimiser=row.server_optimiser,
            method=row.method,
            seed=row.seed,
        )
        for row in rows
        for point in row.curve
    ]


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by setting, method and seed; plain training and no shift come first, partitions without alpha last."""
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[Any, ...]:
    objective = (row.objective != PLAIN, row.objective, row.server_optimiser != AVERAGE, row.server_optimiser)
    federation = (row.benchmark, row.dataset, row.model, *objective, row.num_clients, row.num_rounds)
    shift = (row.shift or "", row.shift_strength or 0.0, row.shift_classes or 0)
    split = (row.alpha is None, row.partition, row.alpha or 0.0)
    return (*federation, *shift, *split, row.reference, row.method, row.seed, row.artifact)


@dataclass(frozen=True)
class Seconds:
    """One way to count seconds.

    Args:
        client: field of a row with the clients' seconds.
        server: field of a row with the server's seconds.
        unit: short.
        words: the unit in words.
    """

    client: str
    server: str
    unit: str
    words: str


_OF_PROCESSORS = Seconds("client_processor_seconds", "server_processor_seconds", "CPU s", "seconds of processors")
_ON_CLOCK = Seconds("client_seconds", "server_seconds", "s", "seconds on the clock, which other work makes longer")


def compared_seconds(rows: Iterable[Row]) -> Seconds:
    """Choose which seconds a report compares: those of processors, if every row has them."""
    known = all(None not in (row.client_processor_seconds, row.server_processor_seconds) for row in rows)
    return _OF_PROCESSORS if known else _ON_CLOCK


class Role(StrEnum):
    """The role of a row; tables show roles in this order."""

    ONE_NETWORK = "one network"
    """One shot, and one network for all clients: these are compared and ranked."""

    ENSEMBLE = "ensemble"
    """One shot too (Guha et al. 2019), but a prediction needs several networks, mostly those of all clients."""

    REFERENCE = "reference"
    """A bound, or a baseline that is no one-shot method."""


def method_of(row: Row) -> str:
    """Name the method of a row, which its label need not say."""
    return str(row.method_settings.get("method", row.method))


def role_of(row: Row) -> Role:
    """Find the role of a row.

    An ensemble predicts with several networks. Where they were not counted, or there is one client, the method's name
    says that it is an ensemble. FENS is one that asks clients again.
    """
    if is_local_mean(row) or is_fens(row):
        return Role.REFERENCE
    if networks_of(row) > 1 or _is_named_ensemble(row):
        return Role.ENSEMBLE
    return Role.REFERENCE if row.reference else Role.ONE_NETWORK


def is_local_mean(row: Row) -> bool:
    """Whether a row is the mean over the clients' own models, each measured alone."""
    return method_of(row) == _LOCAL_MEAN


def is_fens(row: Row) -> bool:
    """Whether a row is of FENS, whose networks predict through a combiner that took many rounds."""
    return method_of(row) == _FENS


def networks_of(row: Row) -> int:
    """Count the networks that one prediction needs."""
    if is_local_mean(row):
        return 1
    if row.num_networks is not None:
        return row.num_networks
    sending = row.cohort or row.num_clients - (row.unseen_clients or 0)
    return sending - len(row.failed_clients) if _is_named_ensemble(row) else 1


def _is_named_ensemble(row: Row) -> bool:
    return row.reference and (method_of(row) == _FAFI or _ENSEMBLE in method_of(row).split("_"))
