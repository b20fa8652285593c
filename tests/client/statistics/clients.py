"""Clients with small networks, on images and sequences."""

from typing import Any

import pytest
import torch

from fedfisher_core.client.local import Local
from fedfisher_core.data.tensors import Examples
from fedfisher_core.models.spec import ModelSpec
from tests import arranged, tiny

SPECS = [tiny.TINY, tiny.TINY_WITH_BIAS, tiny.LINEAR]
EXAMPLES = tiny.examples(23)
OF_SEQUENCES = [
    ModelSpec(name, arranged.SEQUENCES, classes=3, bias=True, widths=(4, 6)) for name in ("gru", "transformer")
]
by_any_spec = pytest.mark.parametrize(
    "spec", [*SPECS, *OF_SEQUENCES], ids=["tiny", "tiny with bias", "linear", "gru", "transformer"]
)


def local(spec: ModelSpec, *, examples: Examples = EXAMPLES, **settings: Any) -> Local:
    # Larger weights make probabilities that are neither uniform nor certain.
    parameters = {name: 2 * tensor for name, tensor in tiny.initial(spec).items()}
    return tiny.local(spec.load(parameters), examples, **settings)


def examples_of(spec: ModelSpec) -> Examples:
    if spec not in OF_SEQUENCES:
        return EXAMPLES
    return Examples(spec.inputs.drawn(len(EXAMPLES), torch.Generator().manual_seed(0)), EXAMPLES.labels)
