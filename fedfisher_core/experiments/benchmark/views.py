"""Words for who clients are and how they see their examples: for each client, and for a page."""

from collections.abc import Iterable, Sequence

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.experiments.benchmark.rows import Row

_LEVELS = {
    "rotation": "{:.3g}°",
    "blur": "σ = {:.3g} px",
    "contrast": "−{:.3g} %",
    "noise": "σ = {:.3g}",
}
_LONGEST = 20
"""The most characters of a maker's name."""
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
