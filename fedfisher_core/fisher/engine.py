"""The Fisher information of a network on a data set."""

import math
from collections.abc import Set
from enum import StrEnum

import torch
from torch import Tensor, nn

from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher import nngeometry_backend
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import evaluation_mode
from fedfisher_core.fisher.estimators import (
    Empirical,
    Estimator,
    Exact,
    Truncated,
    directions_per_example,
    draws_directions,
    nominal_directions,
    sampling_noise,
)
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.fisher.single_pass import FisherPass
from fedfisher_core.fisher.truncation import plan_chunks
from fedfisher_core.fisher.weight_sharing import WeightSharing

MEMORY_LIMIT = 256 * 2**20
"""Default of `memory_limit`, in bytes."""


class Backend(StrEnum):
    """The code that computes a Fisher."""

    NATIVE = "native"
    """This package: everything in one pass."""

    NNGEOMETRY = "nngeometry"
    """The library nngeometry 0.3, which the paper used: exact, *expand* alone, one pass an approximation."""


EXACT = Exact()
DIAGONAL_AND_KFAC = frozenset({Approximation.DIAGONAL, Approximation.KFAC})


def compute_fisher(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor | None = None,
    *,
    approximations: Set[Approximation] = DIAGONAL_AND_KFAC,
    estimator: Estimator = EXACT,
    weight_sharing: WeightSharing = WeightSharing.EXPAND,
    memory_limit: int = MEMORY_LIMIT,
    generator: torch.Generator | None = None,
    backend: Backend = Backend.NATIVE,
) -> Fisher:
    """Compute the Fisher information of a classifier, the mean over examples of J^T H J; see `estimators`.

    The model runs in evaluation mode and is left unchanged. A bias is a column of ones after the layer's inputs. Sums
    over examples are kept in double precision.

    Args:
        model: a network of `nn.Linear`, `nn.Conv2d`, `nn.Embedding`, `nn.LayerNorm`, `nn.RMSNorm`, `nn.GroupNorm` and
            `BatchNorm` layers, each used once, and functions without parameters between them. Modules of other packages
            than torch may hold parameters themselves, of which K-FAC has the diagonal. K-FAC excludes normalisations
            over several dimensions. It doesn't count positions whose token is an embedding's `padding_idx`.
        inputs: examples, shape (examples, ...), of the model's type, or integers such as tokens; on any device.
        labels: for the empirical estimator, classes of shape (examples,).
        approximations: the forms to compute; they share one pass.
        estimator: how the expectation over targets is taken.
        weight_sharing: the form of K-FAC for layers that are applied at several positions, convolutions included.
        memory_limit: most bytes of working memory; it decides how many examples are in flight at a time.
        generator: for an estimator that draws.

    Returns:
        The approximations that were asked for, on the model's device.

    Raises:
        InputError: an argument is not usable; the message names it.
        UnsupportedLayerError: a layer has no Fisher block; the message names it.
        DivergedClientError: the Fisher is not finite; the message names the layer.
    """
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise InputError("model has no parameters; a Fisher needs at least one Linear or Conv2d layer")
    if not approximations:
        raise InputError(f"approximations is empty; allowed: {', '.join(Approximation)}")
    if len(inputs) == 0 or inputs.dtype not in (parameter.dtype, torch.int64):
        raise InputError(
            f"inputs have shape {tuple(inputs.shape)} and type {inputs.dtype}; allowed: at least one example, of the "
            f"model's type {parameter.dtype} or torch.int64"
        )
    if backend is Backend.NNGEOMETRY:
        if not isinstance(estimator, Exact) or weight_sharing is not WeightSharing.EXPAND:
            raise InputError(
                f"backend 'nngeometry' with {estimator} and weight_sharing={weight_sharing.value!r}; allowed: Exact() "
                "and 'expand'"
            )
        with evaluation_mode(model):
            return nngeometry_backend.compute(model, inputs, approximations=approximations)
    with evaluation_mode(model):
        one_pass = FisherPass(
            model,
            inputs[:1].to(parameter.device),
            approximations=approximations,
            estimator=estimator,
            memory_limit=memory_limit,
            sharing=weight_sharing,
        )
        targets = _targets(labels, len(inputs), one_pass.outputs, estimator)
        noise = _noise(len(inputs), one_pass.outputs, estimator, generator)
        if isinstance(estimator, Truncated):
            _add_leading(one_pass, model, inputs, noise, estimator, device=parameter.device)
            return one_pass.result(nominal_directions=nominal_directions(estimator, one_pass.outputs))
        # Chunks of one size: a small one at the end would take nearly the time of a full one.
        chunks = math.ceil(len(inputs) / one_pass.examples_per_chunk)
        size = math.ceil(len(inputs) / chunks)
        for start in range(0, len(inputs), size):
            chunk = slice(start, start + size)
            one_pass.add(
                inputs[chunk].to(parameter.device),
                None if targets is None else targets[chunk].to(parameter.device),
                None if noise is None else noise[chunk].to(parameter.device),
            )
        return one_pass.result(nominal_directions=nominal_directions(estimator, one_pass.outputs))


def _add_leading(
    one_pass: FisherPass,
    model: nn.Module,
    inputs: Tensor,
    noise: Tensor | None,
    estimator: Truncated,
    *,
    device: torch.device,
) -> None:
    """Add all examples, each together with others that need as many directions."""
    outputs = _outputs(model, inputs, one_pass.fitting(1), device=device)
    for chunk in plan_chunks(outputs, estimator.tolerance, one_pass.fitting, most=estimator.most):
        some = inputs[chunk.examples.to(inputs.device)].to(device)
        own = None
        if noise is not None and chunk.drawn:
            own = noise[chunk.examples.to(noise.device), : chunk.drawn].to(device)
        one_pass.add(some, None, own, leading=chunk.directions)


def _outputs(model: nn.Module, inputs: Tensor, batch_size: int, *, device: torch.device) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(some.to(device)) for some in inputs.split(batch_size)])


def _targets(labels: Tensor | None, examples: int, outputs: int, estimator: Estimator) -> Tensor | None:
    if not isinstance(estimator, Empirical):
        return None
    if labels is None:
        raise InputError("labels are missing; the empirical estimator needs the true targets")
    if labels.shape != (examples,) or labels.is_floating_point():
        raise InputError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}; allowed: integers of shape {(examples,)}"
        )
    if labels.min() < 0 or labels.max() >= outputs:
        raise InputError(f"labels reach from {labels.min()} to {labels.max()}; allowed: 0 to {outputs - 1}")
    return labels.long()


def _noise(examples: int, outputs: int, estimator: Estimator, generator: torch.Generator | None) -> Tensor | None:
    if not draws_directions(estimator):
        return None
    if generator is None:
        raise InputError(f"generator is missing; {estimator} draws, and needs an explicit torch.Generator")
    return sampling_noise(examples, directions_per_example(estimator, outputs), generator)
