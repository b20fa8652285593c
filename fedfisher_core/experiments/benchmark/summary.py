"""Means, deviations and paired differences over the seeds of each setting."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.rows import Role, Row, is_local_mean, networks_of, role_of, sorted_rows
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import (
    BASELINE,
    DIGITS,
    Measure,
    PairedDifference,
    Repeated,
    gather,
    paired_difference,
    with_most_seeds,
)
from fedfisher_core.settings import AVERAGE, PLAIN, FederationSettings, SeededSetting

_ORDER = tuple(Role)

_EQUAL_BITS = 1.05
"""Up to so many times FedAvg's upload, bits count as equal: counts of labels and the paper's format add less."""


@dataclass(frozen=True)
class Setting:
    """What is common to all methods and seeds that are compared with each other."""

    dataset: str
    model: str
    partition: str
    alpha: float | None
    num_clients: int
    num_rounds: int
    shift: str | None = None
    objective: str = PLAIN
    server_optimiser: str = AVERAGE
    cohort: int | None = None
    unseen_clients: int | None = None
    canary: int | None = None

    @classmethod
    def of(cls, row: Row) -> "Setting":
        """The setting of a row."""
        federation = (row.dataset, row.model, row.partition, row.alpha, row.num_clients, row.num_rounds)
        training = (row.shift_name, row.objective, row.server_optimiser, row.cohort, row.unseen_clients)
        return cls(*federation, *training, row.canary_times)

    @classmethod
    def of_seeded(cls, setting: SeededSetting, settings: FederationSettings) -> "Setting":
        """The setting of a federation."""
        return cls(
            dataset=setting.dataset,
            model=setting.model,
            partition=setting.scheme,
            alpha=setting.alpha,
            num_clients=setting.clients,
            num_rounds=settings.rounds.count,
            shift=str(setting.shift) if setting.shift else None,
            objective=setting.objective,
            server_optimiser=setting.server_optimiser,
            cohort=settings.rounds.cohort,
            unseen_clients=settings.unseen_clients or None,
            canary=canary.times if (canary := settings.measures.canary) else None,
        )

    @property
    def split(self) -> str:
        """How the data is split, and how clients see it, in words."""
        skew = "" if self.alpha is None else f", α = {self.alpha:g}"
        canary = "" if self.canary is None else f", a canary {self.canary} times"
        return f"{self.partition}{skew}{'' if self.shift is None else f', {self.shift}'}{canary}"

    @property
    def family(self) -> str:
        """All but how the data is split, in words; plain training is not named."""
        network = self.model if self.objective == PLAIN else f"{self.model}, objective {self.objective}"
        server = "" if self.server_optimiser == AVERAGE else f", server optimiser {self.server_optimiser}"
        clients = plural(self.num_clients, "client") + ("" if self.cohort is None else f", {self.cohort} a round")
        clients += "" if self.unseen_clients is None else f", {self.unseen_clients} unseen"
        return f"{self.dataset}, {network}{server}, {clients}, {plural(self.num_rounds, 'round')}"

    @property
    def label(self) -> str:
        """The whole setting in words."""
        return f"{self.family}, {self.split}"


@dataclass(frozen=True)
class MethodSummary(Repeated[Row]):
    """One method in one setting, over its seeds.

    Args:
        rows: one a seed, by rising seed.
        best: whether it is one network with the highest mean accuracy among those with the most seeds of the setting
            that do not stand apart.
        below_local: whether its mean accuracy is below that of the clients' own models, over common seeds.
        difference: accuracy less the baseline's; None for the baseline, and without common seeds.
        upload_ratio: mean upload over the baseline's; None without a baseline that uploads.
        apart: whether it is not compared with others, as its own budget lets it send more than the baseline.
    """

    best: bool
    below_local: bool
    difference: PairedDifference | None
    upload_ratio: float | None
    apart: bool

    @property
    def method(self) -> str:
        """Its label."""
        return self.row.method

    @property
    def role(self) -> Role:
        """Its role in comparisons."""
        return role_of(self.row)

    @property
    def networks(self) -> int:
        """How many networks one prediction needs."""
        return max(map(networks_of, self.rows))

    @property
    def uses_validation(self) -> bool:
        """Whether it saw the server's validation set."""
        return any(row.uses_validation for row in self.rows)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Its seeds, ascending."""
        return tuple(row.seed for row in self.rows)

    @property
    def accuracy(self) -> Measure:
        """Over the seeds, as a fraction."""
        return self.measure("accuracy")


@dataclass(frozen=True)
class SettingSummary:
    """One setting; its methods by role, then by falling accuracy."""

    setting: Setting
    methods: tuple[MethodSummary, ...]

    @property
    def by_role(self) -> dict[Role, list[MethodSummary]]:
        """The methods by role."""
        return gather(self.methods, lambda method: method.role)

    @property
    def compared(self) -> list[MethodSummary]:
        """The methods that make one network in one shot."""
        return self.by_role.get(Role.ONE_NETWORK, [])

    @property
    def num_seeds(self) -> int:
        """The largest number of seeds that a method has."""
        return max(len(method.seeds) for method in self.methods)


def by_setting(rows: Iterable[Row]) -> dict[Setting, dict[str, list[Row]]]:
    """Group rows by setting, then by method label, in the order of `sorted_rows`; in each group by seed.

    Raises:
        InputError: two rows share setting, method and seed.
    """
    settings = gather(sorted_rows(rows), Setting.of)
    groups = {setting: gather(own, lambda row: row.method) for setting, own in settings.items()}
    for setting, methods in groups.items():
        for method, own in methods.items():
            seed, times = Counter(row.seed for row in own).most_common(1)[0]
            if times > 1:
                raise InputError(
                    f"method {method!r} has two rows for seed {seed} in {setting.label}; labels of methods must differ"
                )
    return groups


def summarise(rows: Iterable[Row]) -> tuple[SettingSummary, ...]:
    """Summarise rows by setting and method; all that tie for the best mean accuracy are marked, but those apart.

    Raises:
        InputError: two rows share setting, method and seed.
    """
    return tuple(_summarise_setting(setting, methods) for setting, methods in by_setting(rows).items())


def _summarise_setting(setting: Setting, methods: Mapping[str, Sequence[Row]]) -> SettingSummary:
    baseline = methods.get(BASELINE, ())
    local: Sequence[Row] = next((rows for rows in methods.values() if is_local_mean(rows[0])), ())
    of_one = {label: rows for label, rows in methods.items() if role_of(rows[0]) is Role.ONE_NETWORK}
    equal = {label: rows for label, rows in of_one.items() if not _stands_apart(rows, baseline)}
    best = _best_of(equal or of_one)
    summaries = [_summarise_method(rows, baseline, local, best=label in best) for label, rows in methods.items()]
    summaries.sort(key=lambda summary: (_ORDER.index(summary.role), -summary.accuracy.mean, summary.method))
    return SettingSummary(setting, tuple(summaries))


def _best_of(methods: Mapping[str, Sequence[Row]]) -> set[str]:
    """Find the methods with the highest mean among those with the most seeds."""
    whole = with_most_seeds({label: len(rows) for label, rows in methods.items()})
    means = {label: round(Repeated(methods[label]).measure("accuracy").mean, DIGITS) for label in whole}
    top = max(means.values(), default=None)
    return {label for label, mean in means.items() if mean == top}


def _summarise_method(
    rows: Sequence[Row], baseline: Sequence[Row], local: Sequence[Row], *, best: bool
) -> MethodSummary:
    own = Repeated(rows)
    accuracies, others, locals_ = ({row.seed: row.accuracy for row in group} for group in (rows, baseline, local))
    above_local = paired_difference(accuracies, locals_)
    return MethodSummary(
        rows=rows,
        best=best,
        below_local=above_local is not None and above_local.mean < 0,
        difference=None if own.row.method == BASELINE else paired_difference(accuracies, others),
        upload_ratio=_upload_ratio(rows, baseline),
        apart=_stands_apart(rows, baseline),
    )


def _stands_apart(rows: Sequence[Row], baseline: Sequence[Row]) -> bool:
    """Whether a method has another budget than the baseline, and sends more."""
    budgets = [own[0].method_settings.get("wire", {}).get("budget") for own in (rows, baseline or rows)]
    return budgets[0] != budgets[1] and (_upload_ratio(rows, baseline) or 0.0) > _EQUAL_BITS


def _upload_ratio(rows: Sequence[Row], baseline: Sequence[Row]) -> float | None:
    bits = Repeated(baseline).measure("upload_bits").mean if baseline else 0.0
    return Repeated(rows).measure("upload_bits").mean / bits if bits else None


def families(rows: Iterable[Row]) -> dict[str, list[SettingSummary]]:
    """Summarise rows and group the settings that differ only in how the data is split, in the order of `sorted_rows`.

    Raises:
        InputError: two rows share setting, method and seed.
    """
    return gather(summarise(rows), lambda summary: summary.setting.family)


@dataclass(frozen=True)
class OverviewLine:
    """One method over the settings of a family.

    Args:
        cells: its summary in each setting; None where it has no rows.
    """

    method: str
    cells: tuple[MethodSummary | None, ...]

    @property
    def present(self) -> list[MethodSummary]:
        """The summaries that exist."""
        return [cell for cell in self.cells if cell is not None]

    @property
    def role(self) -> Role:
        """Its role in comparisons."""
        return self.present[0].role

    @property
    def apart(self) -> bool:
        """Whether its own budget lets it send more than the baseline, in any setting."""
        return any(cell.apart for cell in self.present)

    @property
    def networks(self) -> list[int]:
        """How many networks one prediction needs, over the settings."""
        return sorted({cell.networks for cell in self.present})

    @property
    def upload_ratio(self) -> float | None:
        """Mean over the settings of the upload over the baseline's; None without such a ratio."""
        ratios = [cell.upload_ratio for cell in self.present if cell.upload_ratio is not None]
        return statistics.fmean(ratios) if ratios else None

    def mean(self, field: str) -> float:
        """Mean over the settings of one field's mean over seeds."""
        return statistics.fmean(cell.measure(field).mean for cell in self.present)


def overview(summaries: Sequence[SettingSummary]) -> list[OverviewLine]:
    """Turn summaries of several settings, the columns, into one line a method.

    Lines are sorted by role, then by falling accuracy (the mean over settings); within a role, lines that lack settings
    come last, and before these those that lack seeds.
    """
    columns = [{method.method: method for method in summary.methods} for summary in summaries]
    labels = {label for column in columns for label in column}
    lines = [OverviewLine(label, tuple(column.get(label) for column in columns)) for label in labels]
    return sorted(lines, key=_place)


def _place(line: OverviewLine) -> tuple[int, int, int, float, str]:
    seeds = sum(len(cell.rows) for cell in line.present)
    return _ORDER.index(line.role), line.cells.count(None), -seeds, -line.mean("accuracy"), line.method


def recorded_seconds(rows: Iterable[Row]) -> float:
    """Add up the seconds of the work that rows rest on; what methods of a federation share counts once.

    They share the training of the first round, and the statistics of it.
    """
    seconds = 0.0
    for own in gather(rows, lambda row: (Setting.of(row), row.seed)).values():
        first, shared = 1 / own[0].num_rounds, dict[str, float]()
        for row in own:
            parts = {"": row.client_train_seconds, **row.client_statistics_seconds}
            shared |= {name: max(value * first, shared.get(name, 0.0)) for name, value in parts.items()}
            seconds += (1 - first) * sum(parts.values()) + row.server_seconds + (row.client_encode_seconds or 0.0)
        seconds += sum(shared.values())
    return seconds
