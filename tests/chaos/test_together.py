"""Several commands at once on one store and one database, and disks that are full."""

import math
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.driver import NAME, PLAIN, Finished, recorded, require_equal, rerun, said_in_one_line
from tests.chaos.scale import SEED, scaled
from tests.end_to_end.conftest import Workplace
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.end_to_end

TIMES = scaled(test=0, chaos=4)
DISKS = scaled(test=0, chaos=4)
LIMITS = scaled(test=0, chaos=4)
OTHER = "other"
# Python itself ignores the signal that tells of the limit.
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); "
    "from flows.cli import main; main(['run'])"
)

Undisturbed = Callable[[str], Finished]
NewPlace = Callable[..., Workplace]


@pytest.mark.parametrize("number", range(TIMES))
def test_two_runs_and_a_prune_at_once(number: int, undisturbed: Undisturbed, new_place: NewPlace) -> None:
    wanted = undisturbed(PLAIN)
    place = new_place(f"together {number}")
    runs = [place.start("fedfisher", "run", *more) for more in ([], ["--set", f"name={OTHER}"])]
    while any(run.poll() is None for run in runs):
        prune(place)
        time.sleep(0.2)
    for run in runs:
        _, err = run.communicate()
        assert run.returncode == 0, err
        assert "Traceback" not in err
    assert [{**row, "benchmark": NAME} for row in place.rows(OTHER)] == wanted.rows
    both = {(name.replace(NAME, OTHER, 1), run): count for (name, run), count in wanted.recorded.items()}
    assert recorded(place) == wanted.recorded + Counter(both)
    prune(place)
    assert rerun(place).returncode == 0
    assert place.rows(NAME) == wanted.rows


def prune(place: Workplace) -> None:
    process = place.start("fedfisher", "store", "prune", "--yes")
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0 or said_in_one_line(err), err


@contextmanager
def disk(folder: Path) -> Iterator[Callable[[int], None]]:
    """Mount a disk of its own on a folder; what is yielded sets its size in kilobytes."""

    def mount(options: str) -> subprocess.CompletedProcess[str]:
        command = ["mount", "-t", "tmpfs", "-o", options, NAME, str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first = mount("size=1g")
    if first.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {first.stderr.strip()}")
    try:
        yield lambda kilobytes: mount(f"remount,size={kilobytes}k").check_returncode()
    finally:
        # A command that was cut off may still be leaving.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("number", range(DISKS))
def test_a_full_disk_costs_one_line_and_nothing_else(
    number: int, undisturbed: Undisturbed, new_place: NewPlace
) -> None:
    rng = random.Random(f"{SEED} disk {number}")
    wanted = undisturbed(PLAIN)
    needed = sum(path.stat().st_size for path in wanted.place.folder.rglob("*")) // 1024
    place = new_place(f"disk {number}")
    settings = (place.folder / "params.yaml").read_bytes()
    with disk(place.folder) as resize:
        (place.folder / "params.yaml").write_bytes(settings)
        kilobytes = rng.randint(8, needed)
        print(f"{kilobytes} kB of {needed}")
        resize(kilobytes)
        last = rerun(place)
        assert last.returncode == 0 or said_in_one_line(last.stderr), last.stderr
        resize(1024 * 1024)
        last = rerun(place)
        assert last.returncode == 0, last.stderr
        require_equal(place, wanted)


@pytest.mark.parametrize("number", range(LIMITS))
def test_files_that_may_not_grow_cost_one_line_and_nothing_else(
    number: int, undisturbed: Undisturbed, new_place: NewPlace
) -> None:
    rng = random.Random(f"{SEED} limit {number}")
    wanted = undisturbed(PLAIN)
    largest = max(path.stat().st_size for path in wanted.place.folder.rglob("*"))
    place = new_place(f"limit {number}")
    limit = round(math.exp(rng.uniform(math.log(1024), math.log(largest))))
    print(f"{limit} bytes")
    process = place.start("python", "-c", LIMITED, str(limit))
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0 or said_in_one_line(err), err
    last = rerun(place)
    assert last.returncode == 0, last.stderr
    require_equal(place, wanted)
