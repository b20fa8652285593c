"""What a page says of methods that stand on it together."""

from collections.abc import Iterable

from fedfisher_core.experiments.benchmark.roles import method_of
from fedfisher_core.experiments.benchmark.rows import Row


def remarks(rows: Iterable[Row]) -> list[str]:
    """Say which methods of a page are one and the same but for a detail.

    Args:
        rows: of the page.

    Returns:
        Sentences in the little markup of notes.
    """
    rows = list(rows)
    floors = {row.method_settings.get("fisher_floor") for row in rows if method_of(row) == "fisher_merge"}
    closed = any(method_of(row) == "fedfisher_diag" and _solver(row) == "closed_form" for row in rows)
    if not floors or not closed:
        return []
    known = [f"{floor:g}" for floor in sorted(one for one in floors if one is not None)]
    below = f" is below {' or '.join(known)}" if known else " is below its floor"
    return [
        "In closed form, FedFisher(Diag) is FisherMerge up to a floor: FisherMerge takes the mean of the clients where "
        f"the sum of their Fishers{below}, FedFisher(Diag) only where it is 0."
    ]


def _solver(row: Row) -> str | None:
    solver = row.method_settings.get("solver")
    return solver.get("name") if isinstance(solver, dict) else None
