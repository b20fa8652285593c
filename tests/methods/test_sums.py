"""What methods that are written in sums make of sums that are known up to rounding."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.shared.averaging import Sums
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import bind_written, made_up_uploads, server

OF_FEATURES = ["afl", "fedcgs", "gh_lda"]
METHODS = ["fedavg", "fisher_merge", "fedfisher_diag", "fedfish", "iso_c", "gradient_matching"]
WIRE = {"wire": {"budget": "none", "server_view": "secure_sum"}}


def exact_sums(name: str, uploads: Sequence[Upload], spec: ModelSpec = tiny.TINY) -> Sums:
    summation = bind_written(name, WIRE, [spec]).summation
    assert summation is not None
    each = [(upload.num_examples, summation.terms(upload)) for upload in uploads]
    totals = {
        term: {key: sum((count * terms[term][key] for count, terms in each), torch.tensor(0.0)) for key in tensors}
        for term, tensors in each[0][1].items()
    }
    errors = {term: dict.fromkeys(tensors, 0.0) for term, tensors in totals.items()}
    return Sums(sum(count for count, _ in each), totals, errors)


CASES = [
    *((name, spec) for name in METHODS for spec in (tiny.TINY, tiny.TINY_WITH_BIAS)),
    *((name, tiny.LINEAR_WITH_BIAS) for name in OF_FEATURES),
]


@pytest.mark.parametrize(("name", "spec"), CASES, ids=lambda one: one if isinstance(one, str) else f"bias={one.bias}")
@pytest.mark.parametrize("clients", [1, 3])
def test_exact_sums_give_what_the_uploads_give(name: str, spec: ModelSpec, clients: int) -> None:
    uploads = made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(clients)], spec)
    plain = bind_written(name, {}, [spec])(server(spec), uploads)
    summed = bind_written(name, WIRE, [spec]).of_sums(server(spec), exact_sums(name, uploads, spec))
    assert list(summed.networks[0]) == list(plain.networks[0])
    for key, tensor in plain.networks[0].items():
        assert summed.networks[0][key].dtype == tensor.dtype
        torch.testing.assert_close(summed.networks[0][key], tensor)


def one(value: float) -> dict[str, Tensor]:
    return {"x": torch.tensor([value], dtype=torch.float64)}


@pytest.mark.parametrize("name", ["fisher_merge", "fedfisher_diag", "fedfish"])
@pytest.mark.parametrize(("error", "expected"), [(1e-4, 5.0), (1e-2, 3.0)])
def test_a_weight_that_rounding_decides_gives_the_mean(name: str, error: float, expected: float) -> None:
    sums = Sums(
        num_examples=2,
        totals={"weights": one(6.0), "fisher": one(1.0), "product": one(5.0), "energy": {"total": torch.tensor(25.0)}},
        errors={"fisher": {"x": error}},
    )
    held = server(initial=one(0.5))
    result = bind_written(name, WIRE, [tiny.TINY]).of_sums(held, sums)
    assert result.networks[0]["x"].item() == pytest.approx(expected)
