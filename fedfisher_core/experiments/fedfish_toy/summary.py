"""FedAvg and FedFish over seeds, at each overlap and number of local epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfisher_core.experiments.fedfish_toy.rows import METHODS, FedFishToyRow
from fedfisher_core.reporting.measure import PairedDifference, Repeated, gather, paired_difference

LEVEL = 0.05
"""Probability that any interval of a page misses the true difference."""


@dataclass(frozen=True)
class Difference:
    """FedFish's error less FedAvg's, over seeds.

    Args:
        paired: the mean difference.
        interval: of confidence, wide enough that all intervals of the page hold at once; None for a single seed.
        lower: in how many seeds FedFish's error is the lower one.
    """

    paired: PairedDifference
    interval: tuple[float, float] | None
    lower: int

    @property
    def sign(self) -> int | None:
        """-1 where FedFish's error is lower, 1 where it is higher, 0 where the seeds don't tell; None for one seed."""
        if self.interval is None:
            return None
        low, high = self.interval
        return -1 if high < 0 else 1 if low > 0 else 0


@dataclass(frozen=True)
class Setting:
    """Both methods at one overlap and number of local epochs.

    Args:
        overlap: part of its interval that a client shares with the next one.
        local_epochs: of every client.
        seeds: ascending.
        methods: the rows over the seeds, by method.
        global_error: how the methods' errors over the whole domain differ.
        barrier: how their client-server barriers differ.
    """

    overlap: float
    local_epochs: int
    seeds: tuple[int, ...]
    methods: Mapping[str, Repeated[FedFishToyRow]]
    global_error: Difference
    barrier: Difference


def settings_of(rows: Sequence[FedFishToyRow]) -> list[Setting]:
    """Gather the rows of each overlap and number of local epochs.

    The intervals are Student's, of differences that are paired by seed. Their level is `LEVEL` over the number of all
    of them (Bonferroni).

    Args:
        rows: of one benchmark, at least one.

    Returns:
        From full overlap to none, and by rising numbers of epochs.
    """
    ordered = sorted(rows, key=lambda row: (-row.overlap, row.local_epochs, row.seed))
    groups = gather(ordered, lambda row: (row.overlap, row.local_epochs))
    level = LEVEL / (2 * len(groups))
    return [_setting(own, level) for own in groups.values()]


def _setting(rows: Sequence[FedFishToyRow], level: float) -> Setting:
    by_method = gather(rows, lambda row: row.method)
    return Setting(
        overlap=rows[0].overlap,
        local_epochs=rows[0].local_epochs,
        seeds=tuple(dict.fromkeys(row.seed for row in rows)),
        methods={method: Repeated(by_method[method]) for method in METHODS},
        global_error=_difference(by_method, "global_error", level),
        barrier=_difference(by_method, "barrier", level),
    )


def _difference(by_method: Mapping[str, Sequence[FedFishToyRow]], field: str, level: float) -> Difference:
    fedavg, fedfish = ({row.seed: getattr(row, field) for row in by_method[method]} for method in METHODS)
    paired = paired_difference(fedfish, fedavg)
    # Every federation has a row of each method.
    assert paired is not None
    return Difference(
        paired=paired,
        interval=paired.interval_at(level),
        lower=sum(fedfish[seed] < fedavg[seed] for seed in fedfish),
    )
