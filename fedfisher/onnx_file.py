"""A network as a file of ONNX, which other runtimes than torch load."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Layout
from fedfisher_core.engine.errors import InputError, in_one_line

_TOLERANCE = 1e-5
"""Of the largest output, or of 1 where outputs are smaller."""


def write_onnx(network: nn.Module, inputs: Layout, path: Path) -> None:
    """Write a network for any number of examples, after a comparison of the file's outputs with the network's own.

    Args:
        network: in evaluation mode, on the CPU.
        inputs: layout of an example.

    Raises:
        InputError: the network can't be written as ONNX, or ONNX Runtime computes other outputs.
    """
    generator = torch.Generator().manual_seed(0)
    try:
        with warnings.catch_warnings():
            # The exporter warns of its own use of torch.
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                network,
                (inputs.drawn(2, generator),),
                dynamo=True,
                verbose=False,
                input_names=["examples"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim("examples")},),
            )
    # The exporter fails in many ways, and the network may be of a plug-in.
    except Exception as error:
        raise InputError(f"the network can't be written as ONNX: {in_one_line(error)}") from error
    assert program is not None
    for node in program.model.graph.all_nodes():
        # They hold where on this machine the network's code lies.
        node.metadata_props.clear()
    program.save(path, external_data=False)
    _require_same(network, path, [inputs.drawn(count, generator) for count in (1, 5)])


def _require_same(network: nn.Module, path: Path, batches: list[Tensor]) -> None:
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    for examples in batches:
        with torch.no_grad():
            expected = network(examples)
        (found,) = session.run(["outputs"], {"examples": examples.numpy()})
        difference = (torch.from_numpy(found) - expected).abs().max().item()
        allowed = _TOLERANCE * max(1.0, expected.abs().max().item())
        # Written so that NaN fails.
        if not difference <= allowed:
            raise InputError(
                f"the network's outputs differ by {difference:.2g} from those that ONNX Runtime computes; allowed: "
                f"{allowed:.2g}"
            )
