"""Means, deviations and paired differences over the seeds of each setting."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Row, sorted_rows
from fedfisher_core.reporting.measure import BASELINE, Measure, PairedDifference, paired_difference


@dataclass(frozen=True)
class Setting:
    """What is common to all methods and seeds that are compared with each other."""

    dataset: str
    model: str
    partition: str
    alpha: float | None
    num_clients: int
    num_rounds: int

    @classmethod
    def of(cls, row: Row) -> "Setting":
        """The setting of a row."""
        return cls(row.dataset, row.model, row.partition, row.alpha, row.num_clients, row.num_rounds)

    @property
    def split(self) -> str:
        """How the data is split, in words."""
        return self.partition if self.alpha is None else f"{self.partition}, α = {self.alpha:g}"

    @property
    def family(self) -> str:
        """All but how the data is split, in words."""
        clients = f"{self.num_clients} client{'s' if self.num_clients != 1 else ''}"
        rounds = f"{self.num_rounds} round{'s' if self.num_rounds != 1 else ''}"
        return f"{self.dataset}, {self.model}, {clients}, {rounds}"

    @property
    def label(self) -> str:
        """The whole setting in words."""
        return f"{self.family}, {self.split}"


@dataclass(frozen=True)
class MethodSummary:
    """One method in one setting, over its seeds.

    Args:
        method: its label.
        reference: whether it is no one-shot method.
        uses_validation: whether it saw the server's validation set.
        best: whether no one-shot method of the setting has a higher mean accuracy.
        seeds: its seeds, ascending.
        accuracy: as a fraction.
        difference: accuracy less the baseline's; None for the baseline, and without common seeds.
        worst_client_accuracy: as a fraction.
        worst_class_accuracy: as a fraction.
        loss: in nats.
        client_seconds: training, statistics and encoding, summed over the clients.
        server_seconds: decoding and aggregation.
        upload_bits: on the wire, all clients.
        download_bits: from the server, all clients.
        upload_ratio: mean upload over the baseline's; None without a baseline that uploads.
        uploads: what the server must see of each upload, by its name.
        memory_bytes: working memory of the aggregation at its peak.
    """

    method: str
    reference: bool
    uses_validation: bool
    best: bool
    seeds: tuple[int, ...]
    accuracy: Measure
    difference: PairedDifference | None
    worst_client_accuracy: Measure
    worst_class_accuracy: Measure
    loss: Measure
    client_seconds: Measure
    server_seconds: Measure
    upload_bits: Measure
    download_bits: Measure
    upload_ratio: float | None
    uploads: Mapping[str, str]
    memory_bytes: Measure


@dataclass(frozen=True)
class SettingSummary:
    """One setting; its methods by falling accuracy, the references after the one-shot methods."""

    setting: Setting
    methods: tuple[MethodSummary, ...]

    @property
    def one_shot(self) -> tuple[MethodSummary, ...]:
        """The methods that compete."""
        return tuple(method for method in self.methods if not method.reference)

    @property
    def references(self) -> tuple[MethodSummary, ...]:
        """The methods that don't."""
        return tuple(method for method in self.methods if method.reference)

    @property
    def num_seeds(self) -> int:
        """The largest number of seeds that a method has."""
        return max(len(method.seeds) for method in self.methods)


def by_setting(rows: Iterable[Row]) -> dict[Setting, dict[str, list[Row]]]:
    """Group rows by setting, then by method; in each group by seed.

    Args:
        rows: the rows, in any order.

    Returns:
        Rows by method label, by setting, in the order of `sorted_rows`.

    Raises:
        InputError: two rows share setting, method and seed.
    """
    groups: dict[Setting, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted_rows(rows):
        group = groups[Setting.of(row)][row.method]
        if any(row.seed == other.seed for other in group):
            raise InputError(
                f"method {row.method!r} has two rows for seed {row.seed} in {Setting.of(row).label}; "
                "labels must tell methods apart"
            )
        group.append(row)
    return {setting: dict(methods) for setting, methods in groups.items()}


def summarise(rows: Iterable[Row]) -> tuple[SettingSummary, ...]:
    """Summarise rows by setting and method.

    Args:
        rows: the rows, in any order.

    Returns:
        One summary a setting. Methods that tie for the best mean accuracy are all marked.

    Raises:
        InputError: two rows share setting, method and seed.
    """
    return tuple(_summarise_setting(setting, methods) for setting, methods in by_setting(rows).items())


def _summarise_setting(setting: Setting, methods: Mapping[str, Sequence[Row]]) -> SettingSummary:
    baseline = methods.get(BASELINE, ())
    means = [
        statistics.fmean(row.accuracy for row in rows)
        for rows in methods.values()
        if not any(row.reference for row in rows)
    ]
    top = max(means, default=math.inf)
    summaries = [_summarise_method(rows, baseline, top) for rows in methods.values()]
    summaries.sort(key=lambda summary: (summary.reference, -summary.accuracy.mean, summary.method))
    return SettingSummary(setting, tuple(summaries))


def _summarise_method(rows: Sequence[Row], baseline: Sequence[Row], top: float) -> MethodSummary:
    accuracy = {row.seed: row.accuracy for row in rows}
    measure = Measure.of(list(accuracy.values()))
    reference = any(row.reference for row in rows)
    upload = Measure.of([row.upload_bits for row in rows])
    baseline_bits = statistics.fmean(row.upload_bits for row in baseline) if baseline else 0.0
    return MethodSummary(
        method=rows[0].method,
        reference=reference,
        uses_validation=any(row.uses_validation for row in rows),
        # Sums of the same accuracies in another order may differ in the last bit; that is a tie.
        best=not reference and math.isclose(measure.mean, top, rel_tol=0.0, abs_tol=1e-12),
        seeds=tuple(accuracy),
        accuracy=measure,
        difference=(
            None
            if rows[0].method == BASELINE
            else paired_difference(accuracy, {row.seed: row.accuracy for row in baseline})
        ),
        worst_client_accuracy=Measure.of([row.worst_client_accuracy for row in rows]),
        worst_class_accuracy=Measure.of([row.worst_class_accuracy for row in rows]),
        loss=Measure.of([row.loss for row in rows]),
        client_seconds=Measure.of([row.client_seconds for row in rows]),
        server_seconds=Measure.of([row.server_seconds for row in rows]),
        upload_bits=upload,
        download_bits=Measure.of([row.download_bits for row in rows]),
        upload_ratio=upload.mean / baseline_bits if baseline_bits else None,
        uploads=rows[0].uploads,
        memory_bytes=Measure.of([row.peak_memory_bytes for row in rows]),
    )


def families(rows: Iterable[Row]) -> dict[str, list[SettingSummary]]:
    """Summarise rows and group the settings that differ only in how the data is split.

    Args:
        rows: the rows, in any order.

    Returns:
        Summaries by `Setting.family`, in the order of `sorted_rows`.

    Raises:
        InputError: two rows share setting, method and seed.
    """
    groups: dict[str, list[SettingSummary]] = defaultdict(list)
    for summary in summarise(rows):
        groups[summary.setting.family].append(summary)
    return dict(groups)


@dataclass(frozen=True)
class OverviewLine:
    """One method over the settings of a family.

    Args:
        method: its label.
        reference: whether it is no one-shot method.
        cells: its summary in each setting; None where it has no rows.
    """

    method: str
    reference: bool
    cells: tuple[MethodSummary | None, ...]

    @property
    def present(self) -> list[MethodSummary]:
        """The summaries that there are."""
        return [cell for cell in self.cells if cell is not None]


def overview(summaries: Sequence[SettingSummary]) -> list[OverviewLine]:
    """Turn summaries of several settings into one line a method.

    Args:
        summaries: the settings, as columns.

    Returns:
        The lines by falling accuracy (the mean over settings), the references last.
    """
    cells = [{method.method: method for method in summary.methods} for summary in summaries]
    lines = []
    for label in {label: None for column in cells for label in column}:
        found = tuple(column.get(label) for column in cells)
        reference = any(cell is not None and cell.reference for cell in found)
        lines.append(OverviewLine(label, reference, found))
    return sorted(
        lines,
        key=lambda line: (
            line.reference,
            -statistics.fmean(cell.accuracy.mean for cell in line.present),
            line.method,
        ),
    )
