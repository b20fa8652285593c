"""Networks in files of ONNX, which ONNX Runtime computes like torch."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from torch import Tensor, nn

from fedfisher.onnx_file import write_onnx
from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.trunks.trunk import load_trunk, trunks
from tests.models.trunks.installed import weights_of

GREY = Images(1, 28, 28)


def registered(name: str, inputs: Layout) -> nn.Module:
    spec = ModelSpec(name, inputs, 10, bias=True)
    return spec.load(spec.initialise(torch.Generator().manual_seed(0))).eval()


def require_equal(network: nn.Module, inputs: Layout, path: Path) -> None:
    """What ONNX Runtime makes of the file is what the network computes, for batches of other sizes too."""
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in (1, 3, 7):
        examples = inputs.drawn(count, torch.Generator().manual_seed(count))
        with torch.no_grad():
            expected = network(examples).numpy()
        assert expected.std() > 1e-3
        np.testing.assert_allclose(session.run(None, {"examples": examples.numpy()})[0], expected, rtol=0, atol=1e-5)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("mlp", GREY),
        ("mlp", Vectors(13)),
        ("lenet", GREY),
        ("resnet18_batch_norm", Images(3, 32, 32)),
        ("gru", Tokens(6, 20)),
        ("transformer", Tokens(6, 20)),
    ],
)
def test_a_file_computes_what_the_network_does(tmp_path: Path, name: str, inputs: Layout) -> None:
    network, path = registered(name, inputs), tmp_path / "network.onnx"
    write_onnx(network, inputs, path)
    require_equal(network, inputs, path)
    # The exporter's notes of where the code lies are left out, and one file is all that there is.
    assert not re.findall(rb"[\w/]*fedfisher[\w/]*\.py", path.read_bytes())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.drawn(0)
def test_a_pre_trained_trunk_is_written(tmp_path: Path) -> None:
    weights_of("mobilenet_v2")
    network, inputs = load_trunk(trunks.get("mobilenet_v2")), Images(3, 96, 96)
    write_onnx(network, inputs, tmp_path / "network.onnx")
    require_equal(network, inputs, tmp_path / "network.onnx")


class Otherwise(nn.Module):
    """Computes something else while it is exported."""

    def __init__(self, inexact: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.inexact = inexact

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs) + (self.inexact if torch.compiler.is_exporting() else 0.0)


class Branching(nn.Module):
    """Depends on the numbers, which no exported graph can."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs if inputs.sum() > 0 else -inputs)


@pytest.mark.parametrize("inexact", [2e-4, float("nan")])
def test_a_file_that_computes_something_else_is_refused(tmp_path: Path, inexact: float) -> None:
    with pytest.raises(InputError, match=r"^the network's outputs differ by (0.0002|nan) .*; allowed: 1\S*e-05$"):
        write_onnx(Otherwise(inexact).eval(), Vectors(4), tmp_path / "network.onnx")


def test_a_network_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^the network can't be written as ONNX: ") as caught:
        write_onnx(Branching().eval(), Vectors(4), tmp_path / "network.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
