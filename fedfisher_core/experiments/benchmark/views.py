"""Words for how clients see their examples: the level of each, and what a page says of them all."""

from collections.abc import Iterable, Sequence

from fedfisher_core.data.shifts import Shifts
from fedfisher_core.experiments.benchmark.rows import Row

_LEVELS = {
    "rotation": "{:.3g}°",
    "blur": "σ = {:.3g} px",
    "contrast": "−{:.3g} %",
    "noise": "σ = {:.3g}",
}
_SAID = {
    "rotation": "turned counter-clockwise by an angle of its own: the angles spread evenly from minus to plus that "
    "many degrees",
    "blur": "blurred by a Gaussian of its own: the standard deviations spread evenly from 0 to that many pixels",
    "contrast": "lacking a part of their contrast that is its own: the parts spread evenly from 0 to that number",
    "noise": "under normal noise of its own: its sigmas spread evenly from 0 to that number, where white is 1",
}


def level_names(shifts: Shifts | None) -> tuple[str, ...]:
    """Name the level of each client in a few characters.

    Args:
        shifts: how clients see their examples; None for as they are.

    Returns:
        One name a client; nothing where there is no shift.
    """
    if shifts is None:
        return ()
    if shifts.kind == "labels":
        return tuple("exchanged" if level else "true" for level in shifts.levels)
    scale = 100 if shifts.kind == "contrast" else 1
    return tuple(
        _LEVELS[shifts.kind].format(scale * level).replace("-", "−") if level else "as they are"
        for level in shifts.levels
    )


def exchanged_names(shifts: Shifts | None, class_names: Sequence[str]) -> str:
    """Say which class clients call by which name.

    Args:
        shifts: how clients see their examples; None for as they are.
        class_names: the true names.

    Returns:
        A sentence; nothing where no labels are exchanged.
    """
    if shifts is None or not shifts.names:
        return ""
    pairs = (f"{class_names[true]} → {class_names[name]}" for true, name in enumerate(shifts.names))
    return f"Counts are of true classes; the clients marked as exchanged call them by other names: {', '.join(pairs)}."


def shift_remarks(rows: Iterable[Row]) -> list[str]:
    """Say how clients saw their examples, and what the numbers are of.

    Args:
        rows: of a page.

    Returns:
        Sentences in the little markup of notes; none without a shift.
    """
    strengths: dict[str, set[float]] = {}
    for row in rows:
        if row.shift is not None and row.shift_strength is not None:
            strengths.setdefault(row.shift, set()).add(row.shift_strength)
    said = [_said_of(kind, sorted(values)) for kind, values in strengths.items()]
    if strengths.keys() - {"labels"}:
        said.append(
            "Test images and the server’s validation images are as they are. Only the worst client’s accuracy is of "
            "test images as each client sees its own."
        )
    return said


def _said_of(kind: str, strengths: Sequence[float]) -> str:
    under = f"Under “{kind} {' or '.join(f'{one:g}' for one in strengths)}”"
    if kind == "labels":
        return (
            f"{under}, that fraction of the clients, drawn with the seed, calls each class by the name of another. "
            "Test images and the server’s validation images have the true labels, and so has what the worst client is "
            "measured on."
        )
    return f"{under}, the images that each client trains on and computes its statistics from are {_SAID[kind]}."
