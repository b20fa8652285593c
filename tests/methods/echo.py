"""What tests of MA-Echo and its variants share."""

import pytest
import torch

from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.uploads import Upload
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.methods.clients import (
    made_up_uploads,
)

SPECS = [tiny.TINY, tiny.TINY_WITH_BIAS]
by_bias = pytest.mark.parametrize("spec", SPECS, ids=["no bias", "bias"])


def different(spec: ModelSpec) -> list[Upload]:
    return made_up_uploads([tiny.initial(spec, seed=seed) for seed in range(3)], spec)


def replaced(upload: Upload, *statistics: Statistic) -> Upload:
    return Upload(upload.num_examples, {**upload.statistics, **{type(one): one for one in statistics}})


def close(one: Parameters, other: Parameters, *, atol: float = 1e-5) -> bool:
    assert list(one) == list(other)
    return all(torch.allclose(one[key], other[key], atol=atol) for key in one)
