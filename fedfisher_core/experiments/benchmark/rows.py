"""The result rows of a benchmark."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from pydantic import ConfigDict

from fedfisher_core.errors import InputError
from fedfisher_core.settings import AVERAGE, PLAIN, shift_name

_FRACTIONS = ("accuracy", "worst_client_accuracy", "worst_class_accuracy", "unseen_accuracy", "personalised_accuracy")
_NOT_NEGATIVE = (
    *("loss", "unseen_loss", "personalised_loss"),
    "fisher_scatter",
    *("client_train_seconds", "client_encode_seconds", "server_seconds"),
    *("upload_bits", "upload_bits_formula", "download_bits", "peak_memory_bytes"),
)


@dataclass(frozen=True)
class RoundPoint:
    """What one method had reached after one of several rounds.

    Args:
        round: its number, from 1.
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
        dataset: name of the data set.
        model: name of the model.
        partition: name of the scheme that splits the data over the clients.
        alpha: Dirichlet concentration; None where the partition has none.
        num_clients: number of clients.
        num_rounds: number of communication rounds; seconds and bits are of all of them, measures are after the last.
        seed: seed of the row.
        method: label of the method.
        method_settings: the method's settings.
        uploads: what the server must see of each upload, by its name: "sum" or "each".
        accuracy: test accuracy, a fraction.
        loss: mean cross-entropy on the test set, in nats.
        worst_client_accuracy: lowest accuracy over the clients, a fraction; each client's is on its own test images
            where a column says whose these are, else on test images in its proportions of true labels; both as it
            sees its own images.
        worst_class_accuracy: lowest accuracy over the classes, a fraction.
        client_train_seconds: local training, summed over the clients; 0 for a method that needs none.
        client_statistics_seconds: seconds by statistic, summed over the clients.
        client_encode_seconds: encoding of uploads, or the clients' part of secure aggregation, summed over the
            clients; None where it was not counted.
        server_seconds: decoding and aggregation, the server's part of secure aggregation included.
        upload_bits: bits on the wire, all clients.
        upload_bits_formula: the paper's count of the same.
        download_bits: bits from the server, all clients: what they start from, and the global model as it is encoded.
        start_sent: what the server sends before the training, "seed", "model" or "nothing"; None where it was not
            counted.
        peak_memory_bytes: working memory of the aggregation at its peak.
        uses_validation: whether the method saw the server's validation set.
        reference: whether it is not compared with the methods of one network: an ensemble, or a bound or baseline of
            another kind.
        failed_clients: clients whose upload is missing.
        artifact: key of the artifact that the numbers were read from.
        epsilon: what the accountant gives for all that one client releases, to all methods together; None without
            differential privacy.
        audited_epsilon: what an audit of one client showed epsilon to be at least; None without an audit.
        track: how the benchmark sets its methods, "as_published" or "best_effort"; None for settings of its own.
        training: settings of the clients' training, with those of an objective that is not plain; None where they
            were not kept.
        num_networks: networks that prediction needs; None where they were not counted.
        train_size: training examples that were used; None for all of the data set.
        held_out: training examples that accuracy and losses are of, which nobody trained on; None for test examples.
        shift: how clients see their examples, such as "rotation"; None for as they are.
        shift_strength: of the shift, in its own unit; None without one.
        shift_classes: how many classes exchange their names; None for all, and without such a shift.
        objective: label of what the clients minimise.
        server_optimiser: label of what the server makes of an aggregate.
        cohort: clients that take part in a round; None for all.
        curve: what was reached after each round; empty where there is one.
        unseen_clients: clients that take part in no round, of num_clients; None where all may.
        barrier_accuracy: client-server barrier: accuracy of a client's own network less that of the global one, on the
            client's training examples; mean over the clients of the last round, all of the same weight. None where it
            was not measured, as everywhere below.
        barrier_loss: mean cross-entropy of the global network less that of the client's own, alike, in nats.
        unseen_accuracy: of the global network, on that part of each unseen client's examples that it does not train
            on; mean over unseen clients, all of the same weight.
        unseen_loss: the same of the mean cross-entropy, in nats.
        personalised_accuracy: on the same examples, after each unseen client trained the network on its other ones.
        personalised_loss: the same of the mean cross-entropy, in nats.
        fisher: estimator of the clients' Fishers, such as "truncated (0.01)"; None for methods without one, and where
            it was not kept.
        fisher_scatter: how far a Fisher is expected to be off at the network's outputs because directions were drawn,
            relative to its norm there; mean over the clients of the last round. None where nothing could be drawn.

    Raises:
        InputError: a measure is not finite, or beyond what it can be.
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
    """One round of one row, as a table of all rounds has it; see `Row` for its fields."""

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
    """List every round of every row.

    Args:
        rows: in any order.

    Returns:
        One a round, in the order of the rows; none for a row of one round.
    """
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
