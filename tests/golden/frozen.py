"""Golden numbers in files of the repository: how they are made, kept and compared."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedfisher_core.client.objectives.objective import objectives
from fedfisher_core.client.statistics.statistic import statistics
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server_optimisers.optimiser import server_optimisers
from tests.golden.experiments import CASES, numbers_of_case, numbers_of_objective
from tests.golden.numbers import Golden, Numbers, moved, own
from tests.golden.registered import numbers_of_method, numbers_of_server_optimiser, numbers_of_statistic

FOLDER = Path(__file__).with_name("frozen")
ANEW = "freeze anew by `python -m tests.golden`"
SHOWN = 5


@dataclass(frozen=True)
class Sort:
    """Things whose numbers are frozen in one file.

    Args:
        names: of what is computed at once.
        compute: takes such a name, and makes its numbers, by a label that begins with the name.
    """

    names: tuple[str, ...]
    compute: Callable[[str], dict[str, Golden]]


SORTS: Mapping[str, Sort] = {
    "jobs": Sort(tuple(CASES), numbers_of_case),
    "statistics": Sort(tuple(own(statistics)), numbers_of_statistic),
    "objectives": Sort(tuple(own(objectives)), numbers_of_objective),
    "server_optimisers": Sort(tuple(own(server_optimisers)), numbers_of_server_optimiser),
    "methods": Sort(tuple(own(methods)), numbers_of_method),
}


def read(sort: str) -> dict[str, Numbers]:
    """Read the frozen numbers of a sort, by label."""
    return json.loads((FOLDER / f"{sort}.json").read_text())


def freeze(sort: str) -> None:
    """Write the numbers of a sort as the code makes them now."""
    found = {}
    for name in SORTS[sort].names:
        found |= SORTS[sort].compute(name)
    write(sort, {label: golden.numbers for label, golden in found.items()})


def write(sort: str, found: Mapping[str, Numbers]) -> None:
    """Write numbers by label, one line a number."""
    lines = []
    for label, numbers in found.items():
        entries = ",\n".join(f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in numbers.items())
        lines.append(f" {json.dumps(label)}: {{\n{entries}\n }}")
    (FOLDER / f"{sort}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def complaints(sort: str, name: str) -> list[str]:
    """Say what of a thing's numbers is not as it was frozen, with what is to be done about it."""
    found, frozen = SORTS[sort].compute(name), read(sort)
    said = [
        f"{label!r} has golden numbers and is computed no more; {ANEW}"
        for label in frozen
        if label not in found and (label == name or label.startswith(f"{name}: "))
    ]
    for label, golden in found.items():
        if label not in frozen:
            said.append(f"{golden.title} ({label!r}) has no golden numbers; {ANEW}")
        elif lines := moved(frozen[label], golden.numbers):
            # What is registered by name is named by a digest of its own file; jobs and what is shared have a version.
            own_file = f"`version` of it, in {golden.file}, or" if sort == "jobs" else "`version`"
            note = "" if sort == "jobs" else f" (an edit of {golden.file} itself needs none)"
            shown = "".join(f"\n    {line}" for line in lines[:SHOWN])
            said.append(
                f"the result of {golden.title} ({label!r}) has moved: if that is wanted, raise {own_file} of the "
                f"shared mathematics that was changed{note}, and {ANEW}{shown}"
            )
    return said
