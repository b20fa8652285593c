"""Settings at random: they are planned, or refused in one InputError, at once."""

import copy
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, seed, settings
from hypothesis import strategies as st

from fedfisher_core.client.objectives.objective import objectives
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.plan import graph_of
from fedfisher_core.experiments.contract import experiment_of, experiments, load
from fedfisher_core.methods.method import methods
from fedfisher_core.privacy.accountant import spent
from tests import tiny
from tests.chaos.fragments import KeyPath, Schema, changed, fragments_of, key_paths_of, written
from tests.chaos.scale import SEED, scaled

_LIMIT_SECONDS = 60
"""Of processor time; only what grows without bound takes so long."""
_LONGEST_MESSAGE = 5000
BASE = {
    "benchmark": {"seeds": "[0]", "data": {"dataset": "tiny", "validation_size": "20"}, "model": {"name": "tiny"}},
    "privacy_attack": {
        "seeds": "[0]",
        "model": {"name": "tiny"},
        "threat": {"extra_images": "5", "target_labels": "[0]"},
        "methods": {"fedavg": "{}", "fedfisher_diag": "{}"},
    },
    "fedfish_toy": {"name": "chaos"},
    "two_layer": {"name": "chaos"},
}
_EXAMPLES_A_ROUND = 10
_ROUNDS = scaled(test=2, chaos=100)


def attempt(one: Callable[[Any], None], **strategies: st.SearchStrategy[Any]) -> None:
    """Give a function values at random, in rounds: after some ten examples Hypothesis mostly alters former ones."""
    for number in range(_ROUNDS):
        few = settings(max_examples=_EXAMPLES_A_ROUND, deadline=None, database=None)
        seed(SEED + number)(few(given(**strategies)(one)))()


@pytest.fixture
def place(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that finds small data under the name of the default set, too."""
    tiny.write_tiny(tmp_path / "sets")
    tiny.write_tiny(tmp_path / "sets", "mnist5k")
    monkeypatch.setenv("FEDFISHER_DATA_DIR", str(tmp_path / "sets"))
    # The first call imports what takes seconds; no command waits for it but one with privacy.
    spent([(1.0, 1.0, 1)], delta=1e-5)
    return workplace


@cache
def known(experiment: str) -> dict[str, list[tuple[KeyPath, Schema]]]:
    """Every setting of an experiment, and every method's and objective's own, by the first key."""
    found = list(key_paths_of(experiments.get(experiment).settings.model_json_schema()))
    if any(place == ("methods",) for place, _ in found):
        for where, registry, named_by in (
            (("methods",), methods, "method"),
            (("train", "objective"), objectives, "name"),
        ):
            for name in registry:
                own = registry.get(name).settings.model_json_schema()
                found += [((*where, name, *place), schema) for place, schema in key_paths_of(own)]
                found += [((*where, name), {"type": "object"}), ((*where, name, named_by), {"type": "string"})]
    by_key: dict[str, list[tuple[KeyPath, Schema]]] = {}
    for where, schema in found:
        by_key.setdefault(where[0], []).append((where, schema))
    return by_key


def answer(config: Path, overrides: list[str]) -> str:
    """Load and plan; "planned", or the message of the refusal."""
    begun = time.process_time()
    try:
        chosen = load(config, overrides)
        graph_of(experiment_of(chosen).plan(chosen).jobs)
        return "planned"
    except InputError as error:
        refusal, seconds = str(error), time.process_time() - begun
    assert seconds < _LIMIT_SECONDS, f"{seconds:.1f} s: {refusal}"
    assert 0 < len(refusal) < _LONGEST_MESSAGE
    assert len(refusal.splitlines()) <= 6
    return refusal


@pytest.mark.parametrize("experiment", sorted(BASE))
def test_any_value_of_any_setting_is_planned_or_refused(place: Path, experiment: str) -> None:
    config = place / "chaos.yaml"
    where_and_schema = st.sampled_from(list(known(experiment).values())).flatmap(st.sampled_from)
    change = where_and_schema.flatmap(lambda one: st.tuples(st.just(one[0]), fragments_of(one[1])))

    def one(changes: list[tuple[KeyPath, str]], override: tuple[KeyPath, str] | None) -> None:
        content: dict[str, Any] = {"experiment": experiment, "name": "chaos", **copy.deepcopy(BASE[experiment])}
        for where, fragment in changes:
            changed(content, where, fragment)
        config.write_text(written(content))
        overrides = [] if override is None else [f"{'.'.join(override[0])}={override[1]}"]
        note(f"{config.read_text()} {overrides}")
        answer(config, overrides)

    attempt(one, changes=st.lists(change, min_size=1, max_size=3), override=st.none() | change)


def test_any_bytes_are_planned_or_refused(place: Path) -> None:
    config = place / "chaos.yaml"

    def one(content: bytes) -> None:
        config.write_bytes(content)
        refusal = answer(config, [])
        # Bytes that happen to be a mapping, such as "(:", are settings that are not known, and {} is the default ones,
        # which do not go with the small data here.
        assert "chaos.yaml" in refusal or refusal.startswith(("unknown setting", "data set 'mnist5k'"))

    text = st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass"))
    attempt(one, content=st.binary(max_size=200) | text)


def test_any_override_is_planned_or_refused(place: Path) -> None:
    config = place / "chaos.yaml"
    config.write_text("experiment: two_layer\n")

    def one(text: str) -> None:
        answer(config, [f"report.title={text}", f"two_layer.noise={text}", text])

    attempt(one, text=st.text(alphabet="[]{}:,-?&*!|>'\"%@ \n\tab01.x~<=", max_size=60))
