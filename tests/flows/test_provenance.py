"""What a page says of how it was made."""

import pytest

from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.experiments.privacy_attack.settings import AttackSettings
from fedfisher_core.models.trunks.trunk import trunks
from fedfisher_core.settings import ExperimentSettings
from flows.provenance import page_of


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
    weights = page_of(settings, command="fedfisher run", failed=(), shown={}).weights
    assert weights.keys() == named
    for name, said in weights.items():
        assert trunks.get(name).sha256 in said
        assert trunks.get(name).licence in said
