"""How a benchmark's accuracies stand to published ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedfisher_core.experiments.benchmark.pairs import LEVEL
from fedfisher_core.experiments.benchmark.published import PublishedResult
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.summary import Setting, summarise
from fedfisher_core.reporting.equivalence import WelchDifference
from fedfisher_core.reporting.formats import plural
from fedfisher_core.reporting.measure import DIGITS, Measure, gather
from fedfisher_core.reporting.ranks import holm
from fedfisher_core.settings import AVERAGE, PLAIN

MARGIN = 0.05
"""How far a mean may lie from the published one and still be equivalent to it, as a fraction: 5 percentage points.

It is fixed beforehand, and not by what was measured: half of the 10 points by which the FedFisher workshop paper says
that its method leads the next. Within it, what a paper concludes from its table stands.
"""


class Verdict(StrEnum):
    """What a comparison with a published mean shows."""

    EQUIVALENT = "equivalent"
    ABOVE = "above"
    BELOW = "below"
    OPEN = "not decided"
    NO_DEVIATION = "no deviation published"
    ONE_SEED = "one seed here"
    NO_SPREAD = "neither varies"


@dataclass(frozen=True)
class EquivalenceTest:
    """Whether a mean lies within `MARGIN` of a published one, as one of all tests of a page.

    Args:
        interval: of the difference, 90 %, as two one-sided tests at 5 % have it; of this test alone.
        p_equivalent: of a true difference beyond the margin, corrected by Holm's procedure.
        p_beyond: of one within the margin, corrected by Holm's procedure.
    """

    interval: tuple[float, float]
    p_equivalent: float
    p_beyond: float


@dataclass(frozen=True)
class Comparison:
    """Our accuracy beside a published one.

    Args:
        setting: our setting.
        published: the published result.
        ours: our accuracy over the seeds.
        test: of the difference; None where one of the two has no deviation, or both have one of 0.
    """

    setting: Setting
    published: PublishedResult
    ours: Measure
    test: EquivalenceTest | None

    @property
    def difference(self) -> float:
        """Our mean less the published one, a fraction."""
        return self.ours.mean - self.published.mean

    @property
    def deviations(self) -> float | None:
        """The difference as a multiple of the published deviation; None without one."""
        return self.difference / self.published.deviation if self.published.deviation else None

    @property
    def verdict(self) -> Verdict:
        """What the comparison shows."""
        if self.test is None:
            if self.published.deviation is None:
                return Verdict.NO_DEVIATION
            return Verdict.ONE_SEED if self.ours.deviation is None else Verdict.NO_SPREAD
        if self.test.p_equivalent <= LEVEL:
            return Verdict.EQUIVALENT
        if self.test.p_beyond <= LEVEL:
            return Verdict.ABOVE if self.difference > 0 else Verdict.BELOW
        return Verdict.OPEN


def compare(rows: Iterable[Row], published: Sequence[PublishedResult]) -> tuple[Comparison, ...]:
    """Set our accuracies beside the published ones of the same setting, split in the same way, and method.

    Only settings of one round with an alpha, without a shift, with plain training and averaging, and with all clients
    and examples are compared, as only such are published. Several papers may report the same setting and method: each
    gives a comparison. Each is tested twice, for a difference within `MARGIN` and for one beyond it, and Holm's
    procedure corrects for the number of all tests.

    Args:
        rows: our rows.
        published: published results.

    Returns:
        The comparisons, in the order of our settings and methods, then of the published results.
    """
    found = [
        (summary.setting, result, method.accuracy)
        for summary in summarise(rows)
        for method in summary.methods
        for result in published
        if _is_comparable(method.row) and _key(method.row) == _key(result)
    ]
    differences = [_difference(ours, result) for _, result, ours in found]
    tested = [one for one in differences if one is not None]
    p_values = [one.p_equivalent(MARGIN) for one in tested] + [one.p_beyond(MARGIN) for one in tested]
    corrected = holm(p_values)
    equivalent, beyond = iter(corrected[: len(tested)]), iter(corrected[len(tested) :])
    return tuple(
        Comparison(
            setting,
            result,
            ours,
            None if one is None else EquivalenceTest(one.interval(2 * LEVEL), next(equivalent), next(beyond)),
        )
        for (setting, result, ours), one in zip(found, differences, strict=True)
    )


def _difference(ours: Measure, result: PublishedResult) -> WelchDifference | None:
    if ours.deviation is None or result.deviation is None:
        return None
    # Where neither varies, how much others would scatter can't be told.
    difference = WelchDifference.of(ours, result.measure)
    return difference if difference.error > 10**-DIGITS else None


def not_run(rows: Iterable[Row], published: Sequence[PublishedResult]) -> list[str]:
    """List what papers report and no row of ours stands beside.

    Args:
        rows: our rows.
        published: published results.

    Returns:
        Settings that did not run at all, those of the same data set, network and alphas in one text; then methods
        that did not run in settings that did.
    """
    rows = [row for row in rows if _is_comparable(row)]
    settings, ours = {_key(row)[:-1] for row in rows}, {_key(row) for row in rows}
    absent = [result for result in published if _key(result)[:-1] not in settings]
    missing = [result for result in published if _key(result)[:-1] in settings and _key(result) not in ours]
    federations = gather(absent, lambda one: (one.dataset, one.model, one.num_clients))
    alphas = {key: tuple(dict.fromkeys(f"{one.alpha:g}" for one in own)) for key, own in federations.items()}
    together = gather(alphas.items(), lambda item: (*item[0][:2], item[1]))
    return [
        f"{dataset}, {model}, {', '.join(str(clients) for (*_, clients), _ in own)} clients, α = {', '.join(skews)}"
        for (dataset, model, skews), own in together.items()
    ] + [
        f"{method} in {plural(len(own), 'setting')} that ran"
        for method, own in gather(missing, lambda one: one.method).items()
    ]


def _is_comparable(row: Row) -> bool:
    """Whether papers report such a federation: one round of all clients and examples, plain training and averaging."""
    whole = row.cohort is None and row.unseen_clients is None and row.train_size is None and not row.failed_clients
    plain = row.shift is None and row.objective == PLAIN and row.server_optimiser == AVERAGE and row.epsilon is None
    return row.num_rounds == 1 and whole and plain and row.held_out is None


def _key(one: Row | PublishedResult) -> tuple[str, str, str, int, float | None, str]:
    return (one.dataset, one.model, one.partition, one.num_clients, one.alpha, one.method)
