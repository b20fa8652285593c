"""What is done with Kronecker factors of layers with many matrices: convolutions of groups, and normalisations."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client import uploads as transport
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload, upload_schema
from fedfisher_core.data.layouts import Images
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.methods.fedlpa import factor_scales
from fedfisher_core.models.spec import ModelSpec, model
from fedfisher_core.settings import WireSettings
from tests import tiny
from tests.methods.clients import SIZES, aggregate, positive_definite, server

SHARES = [size / sum(SIZES) for size in SIZES]
SPEC = ModelSpec("grouped_channels", Images(1, tiny.SIZE, tiny.SIZE), classes=tiny.CLASSES, bias=True)
MATRICES = [
    "conv",
    *("grouped[1 of 2]", "grouped[2 of 2]"),
    *(f"norm[{i} of 4]" for i in range(1, 5)),
    *(f"each[{i} of 4]" for i in range(1, 5)),
    "head",
]


@model("grouped_channels")
class GroupedChannels(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.conv = nn.Conv2d(spec.inputs.channels, 4, kernel_size=3, stride=2, bias=spec.bias)
        self.grouped = nn.Conv2d(4, 4, kernel_size=1, groups=2, bias=spec.bias)
        self.norm = nn.GroupNorm(2, 4)
        self.each = nn.Conv2d(4, 4, kernel_size=2, groups=4, bias=spec.bias)
        self.head = nn.Linear(4, spec.classes, bias=spec.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = functional.relu(self.norm(self.grouped(functional.relu(self.conv(inputs)))))
        return self.head(functional.relu(self.each(maps)).flatten(1))


def uploads() -> list[Upload]:
    made = []
    for client, size in enumerate(SIZES):
        generator = torch.Generator().manual_seed(client)
        factors = {name: positive_definite(shape[0], generator) for name, shape in KFAC.shapes(SPEC).items()}
        weights = Weights(tiny.initial(SPEC, seed=client))
        made.append(Upload(num_examples=size, statistics={Weights: weights, KFAC: KFAC.of(factors)}))
    return made


def solved(clients: list[Upload], matrix: str, shares: list[float], *, scale: float = 1, damping: float = 0) -> Tensor:
    """The stationary point of one matrix, by a dense solve."""
    left, right = torch.zeros(()), torch.zeros(())
    for one, share in zip(clients, shares, strict=True):
        block = one[KFAC].factors[matrix]
        inputs, outputs = block.inputs.double() / scale, block.outputs.double() * scale
        inputs, outputs = (factor + damping * torch.eye(len(factor)) for factor in (inputs, outputs))
        product = share * torch.kron(outputs, inputs)
        left, right = left + product, right + product @ to_matrix(one[Weights].tensors, matrix).double().flatten()
    return torch.linalg.solve(left, right)


@pytest.mark.parametrize(
    ("method", "settings", "shares"),
    [
        ("mats", {"off_diagonal": [1.0], "steps": 500, "tolerance": 1e-7}, [1 / 3] * 3),
        (
            "fedfisher_kfac",
            {
                "solver": {
                    "name": "conjugate_gradients",
                    "steps": 500,
                    "damping": 0.0,
                    "tolerance": 1e-7,
                    "select": False,
                }
            },
            SHARES,
        ),
    ],
    ids=["mats", "fedfisher_kfac"],
)
def test_each_group_ends_at_its_own_stationary_point(
    method: str, settings: dict[str, Any], shares: list[float]
) -> None:
    clients = uploads()
    (network,) = aggregate(method, clients, spec=SPEC, **settings).networks
    assert list(clients[0][KFAC].factors) == MATRICES
    for matrix in MATRICES:
        assert torch.allclose(to_matrix(network, matrix).double().flatten(), solved(clients, matrix, shares), atol=1e-4)
    assert {name: tensor.shape for name, tensor in network.items()} == dict(Weights.shapes(SPEC))


def test_fedlpa_ends_each_group_at_its_own_stationary_point() -> None:
    clients = uploads()
    scales = factor_scales(server(SPEC))
    # The outputs of the convolutions have 2 x 2, 2 x 2 and 1 places.
    assert scales == pytest.approx(
        {name: 3**0.5 * (16 if name.startswith(("conv", "grouped")) else 1) for name in MATRICES}
    )
    (network,) = aggregate("fedlpa", clients, spec=SPEC, damping=0.3, steps=10**6, rate=0.01).networks
    for matrix in MATRICES:
        expected = solved(clients, matrix, SHARES, scale=scales[matrix], damping=0.3)
        assert torch.allclose(to_matrix(network, matrix).double().flatten(), expected, atol=1e-4), matrix


def test_the_announced_shapes_are_those_of_the_factors() -> None:
    client = tiny.local(SPEC.load(tiny.initial(SPEC)), tiny.examples(9))
    tensors = KFAC.compute(client).tensors
    assert list(KFAC.shapes(SPEC).items()) == [(name, tensor.shape) for name, tensor in tensors.items()]
    assert list(KFAC.of(tensors).factors) == MATRICES


@pytest.mark.parametrize(
    ("wire_format", "halved", "error"), [("float32", False, 0), ("fedfisher", True, 0.2), ("paper", True, 0.5)]
)
def test_uploads_travel(wire_format: str, halved: bool, error: float) -> None:
    statistics = configure_statistics([Weights, KFAC], {})
    size = sum(one.wire_spec(SPEC).size for one in statistics)
    wire = WireSettings(budget=16 * size if halved else "none", format=wire_format)
    schema = upload_schema(statistics, SPEC, wire)
    upload = uploads()[0]
    data = transport.encode(schema, list(upload.statistics.values()), num_examples=7)
    factors = transport.decode(data, schema, [Weights, KFAC], torch.device("cpu"))[KFAC].factors
    assert list(factors) == MATRICES
    for name, block in upload[KFAC].factors.items():
        for sent, received in ((block.inputs, factors[name].inputs), (block.outputs, factors[name].outputs)):
            assert (received - sent).norm() <= error * sent.norm(), name
