"""What crosses the network is frozen: the bytes of made-up uploads of every statistic, in every format."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.class_gaussians import ClassGaussians
from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.dense_fisher import DenseFisher
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.null_space import NullSpaceProjection, OfficialProjection
from fedfisher_core.client.statistics.squared_gradients import SquaredGradients
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import encode, upload_schema
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import WireSettings
from tests.tiny import LINEAR, TINY, TINY_WITH_BIAS

RECORDED = Path(__file__).with_name("frozen_payloads.json")
SPECS = {"tiny": TINY, "tiny with bias": TINY_WITH_BIAS, "linear": LINEAR}
EXTRAS: tuple[type[Statistic], ...] = (
    LabelCounts,
    Gram,
    SquaredGradients,
    DiagonalFisher,
    KFAC,
    DenseFisher,
    NullSpaceProjection,
    OfficialProjection,
    InputMoments,
)
UPLOADS: tuple[tuple[type[Statistic], ...], ...] = (
    (Weights,),
    *((Weights, one) for one in EXTRAS),
    *((one, LabelCounts, Weights) for one in EXTRAS if one is not LabelCounts),
    (Weights, KFAC, DiagonalFisher),
    (Weights, *EXTRAS),
    (LabelCounts, ClassSums, Gram),
    (LabelCounts, ClassGaussians),
    (Weights, ClassMoments),
    (ClassMoments, Weights, KFAC),
)
REFUSED = "refused"


def spectrum(size: int) -> Tensor:
    """A diagonal matrix, of which every library finds the same eigenvectors."""
    return (torch.arange(size, dtype=torch.float32) + 1).pow(-2).diag()


def made_up(statistic: type[Statistic], spec: ModelSpec) -> Statistic:
    """Tensors of the statistic's shapes that are the same on every machine."""
    shapes = statistic.shapes(spec)
    if statistic in (Gram, KFAC, DenseFisher, NullSpaceProjection, OfficialProjection):
        return statistic.of({name: spectrum(shape[0]) for name, shape in shapes.items()})
    tensors = {name: (37 * torch.arange(shape.numel()) % 101 / 64).reshape(shape) for name, shape in shapes.items()}
    if statistic is ClassMoments:
        tensors["owners"] = torch.arange(len(tensors["owners"])) % float(spec.classes)
    return statistic.of({name: tensor - 0.5 for name, tensor in tensors.items()} if statistic is Weights else tensors)


def payloads() -> Iterator[tuple[str, str]]:
    """Names and digests of all payloads."""
    for label, spec in SPECS.items():
        for uploads in UPLOADS:
            for wire_format in ("float32", "paper", "fedfisher"):
                for budget in ("none", "fedavg", 2000, 6000):
                    wire = WireSettings(budget=budget, format=wire_format, factor_bits=7 if budget == 6000 else 9)
                    name = f"{label}: {', '.join(one.name for one in uploads)}; {wire_format}, {budget}"
                    try:
                        schema = upload_schema(configure_statistics(uploads, {}), spec, wire)
                    except InputError:
                        yield name, REFUSED
                        continue
                    payload = encode(schema, [made_up(one, spec) for one in uploads], num_examples=7)
                    yield name, hashlib.sha256(payload).hexdigest()[:24]


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    return json.loads(RECORDED.read_text())


def test_payloads_are_those_that_were_recorded(recorded: dict[str, str]) -> None:
    assert dict(payloads()) == recorded


def test_the_record_says_something(recorded: dict[str, str]) -> None:
    sent = [digest for digest in recorded.values() if digest != REFUSED]
    # Without a budget, all three families send the same.
    assert len(set(sent)) > len(recorded) / 4
    assert REFUSED in recorded.values()
