"""What a page says of the images behind its numbers, and of methods that share an algorithm."""

from collections.abc import Iterable, Sequence

from fedfisher_core.experiments.benchmark.roles import method_of
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.experiments.benchmark.views import shift_remarks
from fedfisher_core.federation.secure import COARSE
from fedfisher_core.models.trunks.trunk import SEPARATOR


def remarks(rows: Iterable[Row]) -> list[str]:
    """Say which images a page's numbers come from, how clients saw them, and which methods differ only in a detail.

    The sentences are in the markup of notes.
    """
    rows = list(rows)
    return [
        *_images(rows),
        *_trunks(rows),
        *shift_remarks(rows),
        *_fishers(rows),
        *_secure_sums(rows),
        *_like_methods(rows),
        *_algorithms(rows),
    ]


def _images(rows: Sequence[Row]) -> list[str]:
    """Say where clients share a part of the training images, and where accuracies are of training images."""
    said = []
    for size in sorted({row.train_size for row in rows if row.train_size is not None}):
        said.append(
            f"The clients share {size:,} of the training images, drawn at random with each class in its share, the "
            "same with every seed."
        )
    for size in sorted({row.held_out for row in rows if row.held_out is not None}):
        said.append(
            f"These accuracies choose settings, and are no results: they are of {size:,} training images that no "
            "client and no server has. No test image was looked at."
        )
    return said


def _trunks(rows: Sequence[Row]) -> list[str]:
    """Say what clients do not train."""
    heads: dict[str, set[str]] = {}
    for row in rows:
        trunk, found, _ = row.model.partition(SEPARATOR)
        if found:
            heads.setdefault(trunk, set()).add(f"`{row.model}`")
    return [
        f"Clients of {' and '.join(sorted(names))} train and send a network on the features that a frozen, pre-trained "
        f"{trunk} makes of images, without augmentation. All have its weights beforehand: they are in no upload and no "
        "download, and the time that it looks at images is not in any client's."
        for trunk, names in sorted(heads.items())
    ]


def _fishers(rows: Sequence[Row]) -> list[str]:
    """Say where Fishers are not exact, and how far drawn directions put them off."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.fisher not in (None, "exact"):
            scatters = found.setdefault((row.fisher, row.dataset), [])
            scatters += [] if row.fisher_scatter is None else [row.fisher_scatter]
    return [
        f"Fishers of {dataset} are not exact but {fisher}, as `fisher.estimator` has it.{_scatter(scatters)}"
        for (fisher, dataset), scatters in sorted(found.items())
    ]


def _scatter(scatters: Sequence[float]) -> str:
    if not scatters:
        return ""
    if not any(scatters):
        return " No direction had to be drawn."
    low, high = (f"{100 * one:.2g}" for one in (min(scatters), max(scatters)))
    return (
        f" Directions were drawn, which put a client’s Fisher at the network’s outputs off by {low} to {high} % of its "
        "norm (root of the expected square, mean over clients)."
    )


def _secure_sums(rows: Sequence[Row]) -> list[str]:
    """Warn of secure sums that rounding puts off by more than methods tolerate."""
    coarse: dict[str, float] = {}
    for row in rows:
        if row.secure_rounding is not None and row.secure_rounding > COARSE:
            coarse[row.method] = max(row.secure_rounding, coarse.get(row.method, 0.0))
    return [
        f"**Warning:** the secure sums of `{method}` are coarse: rounding puts one of them off by up to "
        f"{100 * rounding:.2g} % of its root mean square, which may cost accuracy. `wire.secure.bits: 64`, or a "
        "smaller `clip` or `most_examples`, rounds less."
        for method, rounding in sorted(coarse.items())
    ]


def _like_methods(rows: Sequence[Row]) -> list[str]:
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


def _algorithms(rows: Sequence[Row]) -> list[str]:
    """Say what is compared where it is more than a method."""
    over_rounds = {(row.objective, row.server_optimiser) for row in rows if row.num_rounds > 1}
    if len(over_rounds) < 2:
        return []
    return [
        "Over several rounds an algorithm is compared as a method of its own: a method, with what its clients minimise "
        "and its server’s optimiser where these are not plain training and the average. The same seed means the same "
        "clients, first start and cohorts."
    ]


def _solver(row: Row) -> str | None:
    solver = row.method_settings.get("solver")
    return solver.get("name") if isinstance(solver, dict) else None
