"""Commands that are killed at random moments, again and again: the next one goes on, and nothing is left of them.

`make chaos` kills 72 times, at other moments each time; `CHAOS_SEED` draws the same signals and delays again.
"""

import random
import shutil
from collections.abc import Callable

import pytest

from tests.chaos.driver import (
    PLAIN,
    Finished,
    Kill,
    left_in_temporary,
    require_equal,
    require_shared,
    rerun,
    run_and_kill,
)
from tests.chaos.scale import SEED, parts, scaled
from tests.end_to_end.conftest import Workplace

pytestmark = pytest.mark.end_to_end

KILLS = {
    "threads": scaled(test=0, chaos=12),
    "processes": scaled(test=0, chaos=12),
    "dask": scaled(test=0, chaos=6),
    "temporary": scaled(test=0, chaos=6),
    "secure": scaled(test=0, chaos=6),
    "dvc": scaled(test=0, chaos=12),
    "rounds": scaled(test=0, chaos=6),
}
RECORDING_KILLS = scaled(test=0, chaos=12)
OTHER_ROWS = ("secure", "rounds")
"""The variants whose results are not those of all others."""

KILLS_A_WORKPLACE = 6
RUN = ["fedfisher", "run"]
COMMANDS = {"dvc": [RUN, ["dvc", "repro"]]}

Undisturbed = Callable[[str], Finished]
NewPlace = Callable[..., Workplace]


def kill_repeatedly(
    place: Workplace, commands: list[list[str]], *, most: int, within: float, rng: random.Random
) -> tuple[int, float]:
    """Kill commands one after the other until one is done or the most were killed.

    Returns:
        How many were killed, and the seconds within which a command can be killed. They shrink where the first command
        is done sooner, as on a machine that is less busy than before.
    """
    for killed in range(most):
        command, kill = rng.choice(commands), Kill.drawn(rng, within)
        print(place.folder, *command, kill)
        seconds = run_and_kill(place, command, kill)
        if seconds is not None:
            return killed, within if killed else min(within, seconds)
        # DVC writes it in place; what a kill leaves of it is to be removed by hand.
        (place.folder / "dvc.lock").unlink(missing_ok=True)
    return most, within


def require_complete(place: Workplace, wanted: Finished) -> None:
    last = rerun(place)
    assert last.returncode == 0, last.stderr
    require_equal(place, wanted)
    assert left_in_temporary(place) <= left_in_temporary(wanted.place)
    if (place.folder / "dvc.yaml").exists():
        require_shared(place)
    shutil.rmtree(place.folder)


@pytest.mark.parametrize(
    ("variant", "number", "kills"),
    [(variant, *part) for variant in KILLS for part in parts(KILLS[variant], KILLS_A_WORKPLACE)],
)
def test_killed_commands_go_on(
    variant: str, number: int, kills: int, undisturbed: Undisturbed, new_place: NewPlace
) -> None:
    rng = random.Random(f"{SEED} {variant} {number}")
    wanted, left, places = undisturbed(variant if variant in OTHER_ROWS else PLAIN), kills, 0
    within, commands = wanted.seconds, COMMANDS.get(variant, [RUN])
    while left:
        place, places = new_place(str(places), variant), places + 1
        killed, within = kill_repeatedly(place, commands, most=left, within=within, rng=rng)
        left -= killed
        require_complete(place, wanted)


@pytest.mark.parametrize(("number", "kills"), parts(RECORDING_KILLS, KILLS_A_WORKPLACE))
def test_killed_recording_goes_on(number: int, kills: int, undisturbed: Undisturbed, new_place: NewPlace) -> None:
    rng = random.Random(f"{SEED} recording {number}")
    wanted, left, places = undisturbed(PLAIN), kills, 0
    within = wanted.seconds
    while left:
        place, places = new_place(str(places)), places + 1
        # All but the report and the records is there.
        shutil.copytree(wanted.place.folder / "artifacts", place.folder / "artifacts")
        killed, within = kill_repeatedly(place, [RUN], most=left, within=within, rng=rng)
        left -= killed
        require_complete(place, wanted)
