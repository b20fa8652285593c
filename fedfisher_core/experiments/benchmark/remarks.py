"""What a page says of its images, of methods that share an algorithm, and of who clients are."""

from collections.abc import Iterable, Sequence

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.experiments.benchmark.rows import Row, method_of
from fedfisher_core.federation.secure import COARSE
from fedfisher_core.models.spec import ADAPTED
from fedfisher_core.models.trunks.trunk import parts_of_name

_LEVELS = {
    "rotation": "{:.3g}°",
    "blur": "σ = {:.3g} px",
    "contrast": "−{:.3g} %",
    "noise": "σ = {:.3g}",
}
_LONGEST = 20
"""The most characters of a maker's name."""
_HARDLY = 0.01
"""A client whose Fisher has a smaller part of the mean trace is hardly heard."""
_MOST_LISTED = 20
"""The most clients whose numbers a sentence lists."""
_SAID = {
    "rotation": "turned counter-clockwise by an angle of its own: the angles spread evenly from minus to plus that "
    "many degrees",
    "blur": "blurred by a Gaussian of its own: the standard deviations spread evenly from 0 to that many pixels",
    "contrast": "lacking a part of their contrast that is its own: the parts spread evenly from 0 to that number",
    "noise": "under normal noise of its own: its sigmas spread evenly from 0 to that number, where white is 1",
}


def level_names(shifts: Shifts | None) -> tuple[str, ...]:
    """Name the level of each client's shift in a few characters; empty without a shift."""
    if shifts is None:
        return ()
    if shifts.kind == "labels":
        return tuple("exchanged" if level else "true" for level in shifts.levels)
    scale = 100 if shifts.kind == "contrast" else 1
    return tuple(
        _LEVELS[shifts.kind].format(scale * level).replace("-", "−") if level else "as they are"
        for level in shifts.levels
    )


def client_names(makers: Sequence[Sequence[str]] | None, shifts: Shifts | None) -> tuple[str, ...]:
    """Say of each client in a few characters whose examples it holds, and how it sees them.

    Args:
        makers: whose examples each client holds; None where no column decides the split.
        shifts: how clients see their examples; None without a shift.

    Returns:
        One name a client; empty where there is nothing to say.
    """
    levels = level_names(shifts)
    owners = [_owner(own) for own in makers or ()]
    if not levels or not owners:
        return levels or tuple(owners)
    return tuple(", ".join(both) for both in zip(owners, levels, strict=True))


def _owner(makers: Sequence[str]) -> str:
    if len(makers) > 1:
        return f"{len(makers)} makers"
    (maker,) = makers
    return maker if len(maker) <= _LONGEST else f"{maker[: _LONGEST - 1]}…"


def natural_notes(
    makers: Sequence[Sequence[str]] | None,
    own_tests: Sequence[int] | None,
    nobodys_tests: int,
    unscaled: Sequence[Sequence[str]] | None,
) -> str:
    """Say what the worst client is measured on, and how clients scale numbers, where both are their own.

    Args:
        makers: whose examples each client holds; None where no column decides the split.
        own_tests: how many test examples each client has; None where they belong to no client.
        nobodys_tests: how many test examples have makers that are no clients.
        unscaled: features that a client's training examples give no scale; None where constants scale all.
    """
    said = []
    if own_tests is not None:
        sizes = f": {', '.join(map(str, own_tests))}" if len(own_tests) <= _MOST_LISTED else ""
        said.append(f"The worst client’s accuracy is of each client’s own test examples{sizes}.")
    if nobodys_tests:
        said.append(
            f"All other measures are of all test examples, {nobodys_tests} of makers that are no clients included."
        )
    if unscaled is not None:
        said.append(
            "Each client fills missing numbers and scales all by statistics of its own training examples, which stay "
            "with it; test and validation examples are scaled by the client whose they are."
        )
        names = client_names(makers, None) or [str(client) for client in range(len(unscaled))]
        zeros = [f"{name}: {', '.join(own)}" for name, own in zip(names, unscaled, strict=True) if own]
        if zeros:
            said.append(
                "A feature that a client never observed, or observed to be one and the same number, is 0 for it "
                f"({'; '.join(zeros)})."
            )
    return " ".join(said)


def exchanged_names(shifts: Shifts | None, class_names: Sequence[str]) -> str:
    """Say by which names clients call classes; empty where no labels are exchanged."""
    if shifts is None or not shifts.names:
        return ""
    pairs = (f"{class_names[true]} → {class_names[name]}" for true, name in enumerate(shifts.names) if name != true)
    return f"Counts are of true classes; the clients marked as exchanged call them by other names: {', '.join(pairs)}."


def shift_remarks(rows: Iterable[Row]) -> list[str]:
    """Say in the markup of notes how clients saw their examples, and what measures are of; empty without a shift."""
    strengths: dict[tuple[str, int | None], set[float]] = {}
    for row in rows:
        if row.shift is not None and row.shift_strength is not None:
            strengths.setdefault((row.shift, row.shift_classes), set()).add(row.shift_strength)
    said = [_said_of(kind, classes, sorted(values)) for (kind, classes), values in strengths.items()]
    if {kind for kind, _ in strengths} - {"labels"}:
        said.append(
            "Test images and the server’s validation images are as they are. Only the worst client’s accuracy is of "
            "test images as each client sees its own."
        )
    return said


def _said_of(kind: str, classes: int | None, strengths: Sequence[float]) -> str:
    some = "" if classes is None else f" of {classes} classes"
    under = f"Under “{kind} {' or '.join(f'{one:g}' for one in strengths)}{some}”"
    if kind == "labels":
        which = "each class" if classes is None else f"each of {classes} classes, drawn as well,"
        return (
            f"{under}, that fraction of the clients, drawn with the seed, calls {which} by the name of another. "
            "Test images and the server’s validation images have the true labels, and so has what the worst client is "
            "measured on."
        )
    return f"{under}, the images that each client trains on and computes its statistics from are {_SAID[kind]}."


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
        *_unheard(rows),
        *_secure_sums(rows),
        *_like_methods(rows),
        *_algorithms(rows),
    ]


def _images(rows: Sequence[Row]) -> list[str]:
    """Say where clients share a part of the training examples, and where accuracies are of training examples."""
    said = []
    for size in sorted({row.train_size for row in rows if row.train_size is not None}):
        said.append(
            f"The clients share {size:,} of the training examples, drawn at random with each class in its share, the "
            "same with every seed."
        )
    for size in sorted({row.held_out for row in rows if row.held_out is not None}):
        said.append(
            f"These accuracies choose settings, and are no results: they are of {size:,} training examples that no "
            "client and no server has. No test example was looked at."
        )
    return said


def _trunks(rows: Sequence[Row]) -> list[str]:
    """Say what clients do not train."""
    heads: dict[str, set[str]] = {}
    adapted: dict[str, set[str]] = {}
    for row in rows:
        trunk, _ = parts_of_name(row.model)
        if trunk is not None:
            (adapted if row.model.endswith(ADAPTED) else heads).setdefault(trunk, set()).add(f"`{row.model}`")
    beforehand = "All have its weights beforehand: they are in no upload and no download"
    return [
        f"Clients of {' and '.join(sorted(names))} train and send a network on the features that a frozen, pre-trained "
        f"{trunk} makes of examples, without augmentation. {beforehand}, and the time that it looks at examples is not "
        "in any client's."
        for trunk, names in sorted(heads.items())
    ] + [
        f"Clients of {' and '.join(sorted(names))} train and send adapters within a frozen, pre-trained {trunk}, and a "
        f"linear layer on its features. {beforehand}."
        for trunk, names in sorted(adapted.items())
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


def _unheard(rows: Sequence[Row]) -> list[str]:
    """Say where a client's Fisher is negligible next to the others'."""
    traces: dict[str, list[float]] = {}
    for row in rows:
        if row.least_trace is not None:
            traces.setdefault(row.method, []).append(row.least_trace)
    return [
        f"**Clients that are hardly heard.** In {sum(one < _HARDLY for one in found)} of {len(found)} federations a "
        f"client’s Fisher in `{method}`, weighted by its examples, has less than a hundredth of the mean client’s "
        f"trace, the least {min(found):.2g} of it. Such a client has few examples, or is sure of its classes, and "
        "others decide about its weights."
        for method, found in sorted(traces.items())
        if min(found) < _HARDLY
    ]


def _per_cent(fraction: float) -> str:
    """Write a fraction in per cent, to two digits, without an exponent."""
    return f"{float(f'{100 * fraction:.2g}'):g}"


def _scatter(scatters: Sequence[float]) -> str:
    if not scatters:
        return ""
    if not any(scatters):
        return " No direction had to be drawn."
    low, high = (_per_cent(one) for one in (min(scatters), max(scatters)))
    return (
        f" Directions were drawn, which put a client’s Fisher at the network’s outputs off by {low} to {high} % of its "
        "norm (root of the expected square, mean over clients)."
    )


def _secure_sums(rows: Sequence[Row]) -> list[str]:
    """Warn of secure sums of numbers that were cut off, or that rounding puts off by more than methods tolerate."""
    clipped: dict[str, float] = {}
    coarse: dict[str, float] = {}
    for row in rows:
        if row.secure_clipped:
            clipped[row.method] = max(row.secure_clipped, clipped.get(row.method, 0.0))
        if row.secure_rounding is not None and row.secure_rounding > COARSE:
            coarse[row.method] = max(row.secure_rounding, coarse.get(row.method, 0.0))
    return [
        f"**Warning:** up to {_per_cent(fraction)} % of the numbers in a secure sum of `{method}` were cut off, so "
        "that the sum is another. A larger `wire.secure.clip` or `most_examples` cuts off less."
        for method, fraction in sorted(clipped.items())
    ] + [
        f"**Warning:** the secure sums of `{method}` are coarse: rounding puts one of them off by up to "
        f"{_per_cent(rounding)} % of its root mean square, which may cost accuracy. `wire.secure.bits: 64`, a "
        "smaller `clip`, or a `most_examples` nearer to the largest client's, rounds less."
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
