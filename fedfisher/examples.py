"""Examples of the caller: a loader, or a pair of tensors."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedfisher_core.data.layouts import Layout, Tokens
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, in_one_line

Pairs = Iterable[Any] | tuple[Tensor, Tensor]
"""A loader of pairs of inputs and labels, such as a `torch.utils.data.DataLoader`, or one such pair."""


def gather(data: Pairs, *, who: str) -> Examples:
    """Concatenate the examples of one pass over a loader, on the device of its tensors.

    Args:
        who: the owner of the examples, for messages.

    Raises:
        InputError: there are no examples, they have no labels, or labels are not integers, one an example.
    """
    if isinstance(data, Dataset) or not isinstance(data, Iterable):
        raise InputError(
            f"{who} have type {type(data).__name__}; allowed: DataLoader(dataset, batch_size=...), or a tuple of two "
            "tensors, inputs and labels"
        )
    batches = [data] if isinstance(data, tuple) else list(data)
    if not batches:
        raise InputError(f"{who} has no examples; allowed: one or more")
    for batch in batches:
        if not _is_pair(batch):
            parts = batch if isinstance(batch, tuple | list) and len(batch) < 4 else []
            what = f"({', '.join(type(one).__name__ for one in parts)})" if parts else type(batch).__name__
            raise InputError(f"{who} has batches of {what}; allowed: a tuple of two tensors, inputs and labels")
    try:
        inputs, labels = (torch.cat([batch[part] for batch in batches]) for part in (0, 1))
    except RuntimeError as error:
        raise InputError(
            f"{who} has batches that differ: {in_one_line(error)}; allowed: examples of one shape"
        ) from error
    if labels.shape != inputs.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(
            f"{who} has labels of shape {tuple(labels.shape)} in {labels.dtype} for inputs of shape "
            f"{tuple(inputs.shape)}; allowed: whole numbers, one an example"
        )
    if len(inputs) == 0:
        raise InputError(f"{who} has no examples; allowed: one or more")
    if not is_finite(inputs):
        raise InputError(f"{who} has inputs that are not finite; allowed: finite numbers")
    return Examples(inputs=inputs, labels=labels.long())


def require_classes(examples: Examples, classes: int, *, who: str) -> None:
    """Check that each label is one of the network's classes; `who` owns the examples, for messages."""
    least, most = int(examples.labels.min()), int(examples.labels.max())
    if least < 0 or most >= classes:
        wrong = least if least < 0 else most
        raise InputError(
            f"{who} has the label {wrong}; allowed: 0 to {classes - 1}, as the network has {classes} outputs"
        )


def require_tokens(examples: Examples, layout: Layout, *, who: str) -> None:
    """Check that each token is one of the network's; `who` owns the examples, for messages."""
    if not isinstance(layout, Tokens):
        return
    least, most = int(examples.inputs.min()), int(examples.inputs.max())
    if least < 0 or most >= layout.vocabulary:
        wrong = least if least < 0 else most
        raise InputError(f"{who} has the token {wrong}; allowed: 0 to {layout.vocabulary - 1}, as the network has")


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(one, Tensor) for one in batch)
