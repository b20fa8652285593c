"""What clients can't train by prototypes is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.checks import check_federations
from tests import tiny
from tests.methods import heads  # noqa: F401


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": {"dataset": "table"}, "model": {"name": "mlp"}},
            r"train\.objective='prototypes' with model 'mlp' takes images; the data has 6 numbers; allowed: .*images",
        ),
        (
            {"model": {"name": "linear"}},
            r"train\.objective='prototypes' with model 'linear': .*no feature map.*allowed",
        ),
        ({"model": {"name": "head_and_norm"}}, r"'prototypes' with model 'head_and_norm': .*no feature map.*allowed"),
        ({"model": {"name": "rows_of_pixels"}}, r"'prototypes' with model 'rows_of_pixels': layer 'head'.*; allowed"),
        ({"model": {"name": "pairs_of_outputs"}}, r"'prototypes' with model 'pairs_of_outputs': .*; allowed: one row"),
        (
            {"privacy": {"epsilon": 4.0, "delta": 1e-3}},
            r"train\.objective='prototypes' with privacy: 'prototypes' adds a gradient .*; allowed: .*plain",
        ),
        (
            {"train": {"objective": "prototypes", "together": 3}},
            r"train\.together=3 with train\.objective='prototypes', which reads .*; allowed: null",
        ),
        (
            {"train": {"objective": {"prototypes": {"temperature": 0}}}},
            r"train\.objective\.prototypes\.temperature=0: .*greater than 0",
        ),
    ],
)
def test_what_clients_can_not_train_by_it_is_refused_before_any_work(
    arranged_workplace: Path, changes: dict[str, Any], message: str
) -> None:
    chosen = {"methods": {"fedavg": {}}, "train": {"objective": "prototypes"}}
    with pytest.raises(InputError, match=message) as caught:
        check_federations(tiny.tiny_settings(arranged_workplace, **(chosen | changes)))
    assert "\n" not in str(caught.value)
