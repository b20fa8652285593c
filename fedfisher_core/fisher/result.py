"""The Fisher information of a model, as the approximations that were asked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.fisher.kronecker import Kronecker


@dataclass(frozen=True)
class Fisher:
    """The Fisher of a model, mean over examples; an approximation that was not asked for is None.

    Args:
        diagonal: by parameter, in the parameter's shape.
        kfac: by matrix (see `matrix_names`), its block.
        dense: the whole matrix, shape (parameters, parameters), in the order of `model.parameters()`.
        scatter: expected error of the mean of H that comes from drawn directions, relative to its Frobenius norm; None
            if no direction could be drawn.
    """

    diagonal: dict[str, Tensor] | None = None
    kfac: dict[str, Kronecker] | None = None
    dense: Tensor | None = None
    scatter: float | None = None


def require_finite(fisher: Fisher, parameters: Mapping[str, Tensor]) -> None:
    """Refuse a Fisher with an infinite element or NaN, by a DivergedClientError that names the first such layer."""
    for name, tensor in (fisher.diagonal or {}).items():
        _require_finite(tensor, "diagonal Fisher", name)
    for layer, block in (fisher.kfac or {}).items():
        _require_finite(block.inputs, "second moment of the inputs", f"{layer}.weight")
        _require_finite(block.outputs, "second moment of the output gradients", f"{layer}.weight")
    if fisher.dense is not None:
        sizes = [parameter.numel() for parameter in parameters.values()]
        for name, rows in zip(parameters, fisher.dense.split(sizes), strict=True):
            _require_finite(rows, "dense Fisher", name)


def _require_finite(tensor: Tensor, quantity: str, parameter: str) -> None:
    if not is_finite(tensor):
        layer, _, kind = parameter.rpartition(".")
        raise DivergedClientError(f"layer {layer!r}: the {quantity} of its {kind} is not finite")
