"""Artifacts that are intact and sealed, but hold something else than their kind should."""

import re
from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.performing import execute
from fedfisher_core.engine.store import Content, Recipe, Store
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.federation.data import INFO
from fedfisher_core.federation.partition import SUMMARY, class_names, label_counts, participants_of, shifts_of
from tests.tiny import tiny_settings


@pytest.mark.parametrize(
    ("read", "summary"),
    [
        (label_counts, {}),
        (class_names, []),
        (participants_of, {"label_counts": 3}),
        (shifts_of, {"shifts": [1]}),
        (shifts_of, "text"),
    ],
)
def test_a_reader_names_the_folder_to_remove(tmp_path: Path, read: Any, summary: Any) -> None:
    made = Store(tmp_path).write(Recipe("partition", 1, {}), Content(documents={SUMMARY: summary}))
    said = f"artifact {made.path} is intact, but no partition that can be used: "
    with pytest.raises(InputError, match=f"^{re.escape(said)}.*; allowed: to remove this folder and start again$"):
        read(made)


def test_every_rerun_says_so_until_it_is_removed(workplace: Path) -> None:
    settings = tiny_settings(workplace)
    jobs, store = make_plan(settings).jobs, Store(workplace / "artifacts")
    data = next(job for job in jobs if job.name.startswith("decode"))
    made = store.write(data.recipe, Content(documents={INFO: {"classes": "three"}}))
    for _ in range(2):
        with pytest.raises(InputError, match=f"^artifact {re.escape(str(made.path))} is intact, but no "):
            execute(jobs, store)
    store.remove([made.path])
    assert not execute(jobs, store).failed
