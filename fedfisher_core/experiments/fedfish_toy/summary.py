"""FedAvg and FedFish over seeds, and whether they do what the FedFish paper says of its Figure 2."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedfisher_core.experiments.fedfish_toy.rows import METHODS, FedFishToyRow
from fedfisher_core.reporting.formats import MINUS, Table, plural, significant
from fedfisher_core.reporting.measure import PairedDifference, Repeated, gather, paired_difference

LEVEL = 0.05
"""Probability that an interval of a page misses the true difference, for all intervals together."""


@dataclass(frozen=True)
class Difference:
    """FedFish's error less FedAvg's, over seeds.

    Args:
        interval: of confidence, wide enough that all intervals of the page hold together; None for a single seed.
        lower: number of seeds with the lower error for FedFish.
    """

    paired: PairedDifference
    interval: tuple[float, float] | None
    lower: int

    @property
    def sign(self) -> int | None:
        """-1 where FedFish's error is lower, 1 where higher, 0 where the interval holds 0; None for one seed."""
        if self.interval is None:
            return None
        low, high = self.interval
        return -1 if high < 0 else 1 if low > 0 else 0


@dataclass(frozen=True)
class Setting:
    """Both methods at one overlap and number of local epochs.

    Args:
        overlap: part of its interval that a client shares with the next one.
        seeds: ascending.
        methods: the rows over the seeds, by method.
        global_error: difference of the methods' errors over the whole domain.
        barrier: difference of their client-server barriers.
    """

    overlap: float
    local_epochs: int
    seeds: tuple[int, ...]
    methods: Mapping[str, Repeated[FedFishToyRow]]
    global_error: Difference
    barrier: Difference


def settings_of(rows: Sequence[FedFishToyRow]) -> list[Setting]:
    """Gather the rows of each overlap and number of local epochs, from full overlap to none and by rising epochs.

    The intervals are Student's, of differences that are paired by seed. Their level is `LEVEL` over the number of all
    intervals (Bonferroni).

    Args:
        rows: of one benchmark, at least one.
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


Agreement = Literal["yes", "in part", "no", "not decided", "a single seed"]

_SAID = {-1: "lower than FedAvg’s", 1: "higher than FedAvg’s", 0: "not shown to differ from FedAvg’s"}


@dataclass(frozen=True)
class Finding:
    """What the paper says and what was measured.

    Args:
        measured: what the means over seeds and their intervals show.
        agrees: whether they agree at every number of local epochs.
    """

    where: str
    predicted: str
    measured: str
    agrees: Agreement


def overlap_name(overlap: float) -> str:
    """Name an overlap as the paper does; partial overlaps have their number."""
    return {0.0: "no overlap", 1.0: "full overlap"}.get(overlap, f"partial overlap, {overlap:g}")


def findings_of(settings: Sequence[Setting]) -> list[Finding]:
    """Compare each overlap with what the paper says, and all together where there are several."""
    by_overlap = gather(settings, lambda one: one.overlap)
    found = [barrier_finding(own) for own in by_overlap.values()]
    return [*found, growth_finding(settings)] if len(by_overlap) > 1 else found


def barrier_finding(settings: Sequence[Setting]) -> Finding:
    """Compare one overlap with what the paper says: FedFish's client-server barrier is lower than FedAvg's.

    "yes" if the interval of the difference is below 0 at every number of epochs, "in part" if it is at some, "no" if it
    is at none and above 0 at some, and "not decided" if all intervals hold 0.
    """
    signs = [one.barrier.sign for one in settings]
    parts = []
    for sign, said in _SAID.items():
        epochs = [str(one.local_epochs) for one in settings if one.barrier.sign == sign]
        if epochs:
            parts.append(f"{said} after {_listed(epochs)} local epochs")
    last = settings[-1]
    barriers = {method: last.methods[method].measure("barrier").mean for method in METHODS}
    means = (
        f"After {last.local_epochs} the mean barrier is {number(barriers['fedfish'])} with FedFish and "
        f"{number(barriers['fedavg'])} with FedAvg."
    )
    agrees: Agreement
    if None in signs:
        agrees = "a single seed"
    elif all(sign == -1 for sign in signs):
        agrees = "yes"
    elif -1 in signs:
        agrees = "in part"
    else:
        agrees = "no" if 1 in signs else "not decided"
    return Finding(
        where=overlap_name(last.overlap),
        predicted=_prediction(last.overlap),
        measured=f"FedFish’s barrier is {', '.join(parts)}. {means}" if parts else means,
        agrees=agrees,
    )


def growth_finding(settings: Sequence[Setting]) -> Finding:
    """Compare several overlaps with what the paper says: FedFish's lead in the barrier grows as they shrink.

    "yes" if the lead, the mean over epochs and seeds, is larger at each overlap than at the one above it, "in part" if
    it is larger at the smallest than at the largest, and "no" otherwise. A single seed decides nothing.
    """
    leads = {
        overlap: -statistics.fmean(one.barrier.paired.mean for one in own)
        for overlap, own in gather(settings, lambda one: one.overlap).items()
    }
    values, single = list(leads.values()), any(len(one.seeds) == 1 for one in settings)
    rising = all(after > before for before, after in itertools.pairwise(values))
    listed = ", ".join(f"{number(lead)} at {overlap_name(overlap)}" for overlap, lead in leads.items())
    return Finding(
        where="all overlaps",
        predicted="FedFish’s lead over FedAvg in the barrier grows as the overlap shrinks.",
        measured=f"FedAvg’s barrier less FedFish’s, the mean over epochs and seeds: {listed}.",
        agrees="a single seed" if single else "yes" if rising else "in part" if values[-1] > values[0] else "no",
    )


def _prediction(overlap: float) -> str:
    if overlap == 1:
        return "FedAvg and FedFish fit similar functions; FedFish’s barrier is lower, but not by much."
    if overlap == 0:
        return "FedAvg fits neither client’s data, FedFish matches both clients’ functions: its barrier is lower."
    return "FedAvg fits one client’s data and the other’s poorly, FedFish fits both: its barrier is lower."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def number(value: float) -> str:
    """Write a number that may be negative to three significant digits."""
    return significant(value).replace("-", MINUS)


def interval_text(interval: tuple[float, float] | None) -> str:
    """Write an interval; a dash where there is none."""
    return "–" if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def error_tables(rows: Sequence[FedFishToyRow]) -> list[Table]:
    """Write mean errors as a table for each overlap: a line a number of epochs, and whether the paper is right."""
    tables = []
    for overlap, own in gather(settings_of(rows), lambda one: one.overlap).items():
        lines = [
            [
                str(one.local_epochs),
                *(
                    number(one.methods[method].measure(field).mean)
                    for field in ("global_error", "barrier")
                    for method in METHODS
                ),
                interval_text(one.barrier.interval),
            ]
            for one in own
        ]
        seeds = plural(len(own[0].seeds), "seed")
        tables.append(
            Table(
                title=f"{overlap_name(overlap)} ({seeds}); as the paper says: {barrier_finding(own).agrees}",
                header=[
                    "epochs",
                    *(f"{field} {method}" for field in ("error", "barrier") for method in METHODS),
                    "barrier difference",
                ],
                lines=lines,
                words=0,
            )
        )
    return tables
