"""What a page says of how it was made."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedfisher_core.engine.store import Content, Recipe, Store, manifest, read_libraries
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.models.trunks.trunk import trunks
from fedfisher_core.settings import ExperimentSettings
from flows import provenance
from flows.provenance import command, made_with, page_of


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (BenchmarkSettings(), set()),
        (AttackSettings(), set()),
        (BenchmarkSettings(model={"name": "mobilenet_v2/linear"}), {"mobilenet_v2"}),
        (BenchmarkSettings(model={"name": "efficientnet_lite0/linear"}), {"efficientnet_lite0"}),
        (
            BenchmarkSettings(model={"name": "mobilenet_v2", "pretrained": {"weights": "mobilenet_v2"}}),
            {"mobilenet_v2"},
        ),
        # A file's digest and licence are settings of their own.
        (BenchmarkSettings(model={"pretrained": {"file": "weights.pt", "sha256": "0" * 64, "licence": "MIT"}}), set()),
    ],
)
def test_a_page_names_digest_and_licence_of_weights_that_settings_have_by_name(
    settings: ExperimentSettings, named: set[str]
) -> None:
    weights = page_of(settings, command="fedfisher run", libraries={}, failed=(), shown={}).weights
    assert weights.keys() == named
    for name, said in weights.items():
        assert trunks.get(name).sha256 in said
        assert trunks.get(name).licence in said


def test_a_page_names_the_libraries_that_made_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "artifacts")
    store.prepare()
    made = []
    for number, version in enumerate(["2.0", "2.0", "3.0"]):
        monkeypatch.setattr(manifest, "libraries", lambda version=version: {"torch": version, "numpy": "1"})
        written = store.write(Recipe(kind="a", version=1, settings={"number": number}), Content(documents={"b": 1}))
        made.append(read_libraries(written))
    assert made_with(made[:2], anew=False) == {"torch": "2.0", "numpy": "1"}
    assert made_with(made, anew=False) == {"torch": "2.0 and 3.0", "numpy": "1"}
    # What this process computes is made with its own.
    torch, both = (made_with(one, anew=True)["torch"] for one in ([], made[:1]))
    assert both == " and ".join(sorted(["2.0", torch]))


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"config": "few_shot", "settings": BenchmarkSettings()}, " --param config=few_shot"),
        ({"config": None, "settings": BenchmarkSettings()}, ""),
        ({"config": None, "settings": BenchmarkSettings(name="mine")}, """ --param 'settings={"name":"mine"}'"""),
    ],
)
def test_a_deployment_is_run_again_with_what_it_was_given(
    given: dict[str, Any], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "deployment", SimpleNamespace(name="demo"))
    monkeypatch.setattr(provenance, "flow_run", SimpleNamespace(parameters=given))
    assert command("benchmark") == f"prefect deployment run 'benchmark/demo'{chosen}"
