"""Federations of networks with batch normalisation, whose running statistics are sent as weights are."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.errors import InputError
from fedfisher_core.federation.start import NETWORK
from fedfisher_core.federation.uploads import TENSORS
from fedfisher_core.store import read_tensors
from tests.models.test_batch_norm import SPEC
from tests.walked import walk_tiny

PLAIN = (
    *("best_local", "dare", "ensemble", "fedavg", "fedbens", "fedfish", "fedfisher_diag", "fedfisher_full"),
    *("fedfisher_kfac", "fisher_merge", "gradient_matching", "iso_c", "local_mean", "mats", "regmean", "ties"),
    *("tsv_m", "wudi"),
)
SERVED: dict[str, dict[str, Any]] = {
    **{method: {} for method in PLAIN},
    "dense": {"epochs": 2, "generator_steps": 2, "images": 8},
    "fedlpa": {"rate": 0.01},
    # A tiny network's budget has no room for moments of inputs.
    "gaussian_distillation": {"steps": 3, "samples": 4, "wire": {"budget": "none"}},
}
REFUSED = ("ma_echo", "otfusion", "pfnm")


@pytest.mark.parametrize("method", SERVED)
def test_methods_that_know_of_no_layer_serve_it(workplace: Path, method: str) -> None:
    done = walk_tiny(workplace, {method: SERVED[method]}, model={"name": SPEC.name})
    assert 0 <= done.rows[method].accuracy <= 1
    assert torch.isfinite(torch.tensor(done.rows[method].loss))


@pytest.mark.parametrize("method", REFUSED)
def test_methods_of_matrices_refuse_it_by_name(workplace: Path, method: str) -> None:
    with pytest.raises(InputError, match=f"method '{method}' can't serve model 'batch_norm': .*'norm' is a BatchNorm"):
        walk_tiny(workplace, {method: {}}, model={"name": SPEC.name})


def test_fedavg_averages_the_running_statistics_that_clients_send(workplace: Path) -> None:
    exact = {"budget": "none", "format": "float32"}
    done = walk_tiny(workplace, {"fedavg": {"wire": exact}}, model={"name": SPEC.name}, partition={"scheme": "iid"})
    clients = [read_tensors(done.client(one, "fedavg")["weights"], TENSORS) for one in range(3)]
    label = done.plan.federations.aggregation(done.place, "fedavg").name
    merged = read_tensors(done.outcome.artifacts[label], NETWORK.format(0))
    for name in ("norm.mean", "norm.log_variance"):
        seen = torch.stack([one[name] for one in clients])
        assert seen.std(0).min() > 1e-4
        assert (merged[name] >= seen.amin(0)).all()
        assert (merged[name] <= seen.amax(0)).all()
    assert done.rows["fedavg"].upload_bits_formula == 3 * 32 * sum(one.numel() for one in merged.values())
