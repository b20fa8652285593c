"""Whatever settings say, they are planned or refused in one InputError, at once."""

import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from fedfisher_core.errors import InputError
from fedfisher_core.experiments.contract import experiment_of, experiments
from fedfisher_core.experiments.loading import load
from fedfisher_core.jobs import graph_of
from fedfisher_core.methods.method import methods
from fedfisher_core.privacy.accountant import spent
from tests import tiny
from tests.chaos.fragments import Place, Schema, changed, fragments_of, places_of, written
from tests.chaos.scale import SEED, scaled

_LIMIT_SECONDS = 2
_LONGEST_MESSAGE = 5000
BASE = {
    "benchmark": {"seeds": "[0]", "data": {"dataset": "tiny", "validation_size": "20"}, "model": {"name": "tiny"}},
    "privacy_attack": {
        "seeds": "[0]",
        "model": {"name": "tiny"},
        "threat": {"extra_images": "5", "target_labels": "[0]"},
        "methods": {"fedavg": "{}", "fedfisher_diag": "{}"},
    },
    "two_layer": {"name": "chaos"},
}
CHAOS = settings(
    max_examples=scaled(test=20, chaos=1700),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


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
def known(experiment: str) -> dict[str, list[tuple[Place, Schema]]]:
    """Every setting of an experiment, and every method's own, by the first key."""
    found = list(places_of(experiments.get(experiment).settings.model_json_schema()))
    if any(place == ("methods",) for place, _ in found):
        for name in methods:
            own = methods.get(name).settings.model_json_schema()
            found += [(("methods", name, *place), schema) for place, schema in places_of(own)]
            found += [(("methods", name), {"type": "object"}), (("methods", name, "method"), {"type": "string"})]
    by_key: dict[str, list[tuple[Place, Schema]]] = {}
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
@seed(SEED)
@CHAOS
@given(data=st.data())
def test_any_value_of_any_setting_is_planned_or_refused(place: Path, experiment: str, data: st.DataObject) -> None:
    places = st.sampled_from(list(known(experiment).values())).flatmap(st.sampled_from)
    content: dict[str, Any] = {"experiment": experiment, "name": "chaos", **BASE[experiment]}
    for _ in range(data.draw(st.sampled_from([1, 1, 2, 3]))):
        where, schema = data.draw(places)
        changed(content, where, data.draw(fragments_of(schema)))
    overrides = []
    if data.draw(st.booleans()):
        where, schema = data.draw(places)
        overrides.append(f"{'.'.join(where)}={data.draw(fragments_of(schema))}")
    config = place / "chaos.yaml"
    config.write_text(written(content))
    note(f"{config.read_text()} {overrides}")
    answer(config, overrides)


@seed(SEED)
@CHAOS
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_are_planned_or_refused(place: Path, content: bytes) -> None:
    config = place / "chaos.yaml"
    config.write_bytes(content)
    assert "chaos.yaml" in answer(config, [])


@seed(SEED)
@CHAOS
@given(text=st.text(alphabet="[]{}:,-?&*!|>'\"%@ \n\tab01.x~<=", max_size=60))
def test_any_override_is_planned_or_refused(place: Path, text: str) -> None:
    config = place / "chaos.yaml"
    config.write_text("experiment: two_layer\n")
    answer(config, [f"report.title={text}", f"two_layer.noise={text}", text])
