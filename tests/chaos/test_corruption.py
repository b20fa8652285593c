"""Files of a finished run that are damaged at random: the next run makes them again, or names what it may not touch.

`make chaos` damages 100 files.
`CHAOS_SEED` draws the same files and damages again.
"""

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.driver import NAME, finished, require_equal, rerun
from tests.chaos.scale import SEED, parts, scaled
from tests.end_to_end.conftest import Workplace

pytestmark = pytest.mark.end_to_end

DAMAGED_FILES = scaled(test=0, chaos=100)
FILES_A_WORKPLACE = 50
MOST_AT_ONCE = 5
FILES = {
    "manifest": "artifacts/*/*/manifest.json",
    "document": "artifacts/*/*/*[!t].json",
    "tensors": "artifacts/*/*/*.safetensors",
    "payload": "artifacts/*/*/*.bin",
    "lock": "artifacts/.locks/*",
    "results": f"results/{NAME}/*",
    "stage": f"stages/{NAME}/*/*/*",
    "MLflow's database": "mlflow.db",
    "lock of MLflow's database": "mlflow.db.lock",
    "note of MLflow's database": "mlflow.db.recorded",
    "figure": "mlartifacts/*/*/artifacts/figures/*",
}
OF_MLFLOW = {"MLflow's database", "lock of MLflow's database", "note of MLflow's database", "figure"}
OTHERS = {*OF_MLFLOW, "lock", "results"}
"""What may hold, or be in the place of, what can't be made again, or may be locked: it is named, and left as it is."""
REFUSAL = re.compile(r"^fedfisher: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Damage:
    """A file that is not what it was."""

    kind: str
    path: Path
    how: str


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] ^= rng.randint(1, 255)
    path.write_bytes(content)


def cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randint(0, path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    os.truncate(path, 0)


def remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def make_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_bytes(b"x" * rng.randint(0, 9))


def make_pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def make_dangling_link(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere/at/all")


def take_another(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.choice(peers(path)).read_bytes())


def link_to_another(path: Path, rng: random.Random) -> None:
    target = rng.choice(peers(path)).resolve()
    path.unlink()
    path.symlink_to(target)


def peers(path: Path) -> list[Path]:
    """Files that bear the same name, or lie in the same folder."""
    found = [*path.parent.parent.glob(f"*/{path.name}"), *path.parent.iterdir()]
    return sorted(one for one in found if one.is_file() and one != path)


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    flip,
    cut,
    empty,
    remove,
    make_folder,
    make_pipe,
    make_dangling_link,
]
DAMAGES_BY_PEERS: list[Callable[[Path, random.Random], None]] = [take_another, link_to_another]


def damaged(place: Workplace, rng: random.Random) -> Damage:
    """Damage a file: each kind of file is as likely as any other."""
    # What was written through a link that earlier damage left would damage a file of the user's.
    files = {kind: filter(_is_file, place.folder.glob(glob)) for kind, glob in FILES.items()}
    there = {kind: sorted(paths) for kind, paths in files.items()}
    kind = rng.choice([kind for kind, paths in there.items() if paths])
    path = rng.choice(there[kind])
    damage = rng.choice(DAMAGES + DAMAGES_BY_PEERS if peers(path) else DAMAGES)
    damage(path, rng)
    print(kind, path.relative_to(place.folder), damage.__name__)
    return Damage(kind, path, damage.__name__)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def restore(path: Path, copy: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if copy.exists():
        shutil.copy2(copy, path)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("number", "left"), parts(DAMAGED_FILES, FILES_A_WORKPLACE))
def test_damaged_files_are_made_again_or_named(
    number: int, left: int, new_place: Callable[..., Workplace], tmp_path: Path
) -> None:
    rng = random.Random(f"{SEED} harm {number}")
    place, copies = new_place("damaged", "dvc"), tmp_path / "copies"
    wanted = finished(place)
    place.run("dvc", "repro")
    shutil.copytree(place.folder, copies)
    others = set[Path]()
    while left:
        at_once = [damaged(place, rng) for _ in range(min(left, rng.randint(MOST_AT_ONCE // 2, MOST_AT_ONCE)))]
        left -= len(at_once)
        # What a run had no need of may be in the way of a later one.
        others |= {one.path for one in at_once if one.kind in OTHERS}
        last = rerun(place)
        while last.returncode != 0:
            (refusal,) = REFUSAL.findall(last.stderr)
            named = {path for path in others if re.search(rf"(?<!\w){re.escape(path.name)}(?!\w)", refusal)}
            assert named, refusal
            for path in named:
                restore(path, copies / path.relative_to(place.folder))
            others -= named
            last = rerun(place)
        # A database that is not what it was may still be one.
        for one in at_once:
            if one.kind == "MLflow's database":
                restore(one.path, copies / one.path.relative_to(place.folder))
                rerun(place)
        require_equal(place, wanted)
