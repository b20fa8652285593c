"""Few numbers that stand for many: they move with a formula, and hardly with the order of a sum."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedfisher_core.engine.registry import Registry

TOLERANCE = 1e-4
"""Of a tensor's norm, or of a number. Processors and libraries that round differently moved none by a tenth of this."""
ROUNDING = 2e-8
"""Of an entry that is next to nothing because larger ones cancel."""
DIGITS = 8
"""Significant digits that are kept; single precision has fewer."""

Numbers = dict[str, Any]
"""By name, a number or text, or what `summary` makes of a tensor."""


@dataclass(frozen=True)
class Golden:
    """The numbers of one thing.

    Args:
        title: what it is, and its name.
        file: defines it.
        numbers: of its result, seconds left out.
    """

    title: str
    file: str
    numbers: Numbers


def file_of(thing: Any) -> str:
    """Name the file that defines a class or function, from the project's root."""
    return f"{thing.__module__.replace('.', '/')}.py"


def own(registry: Registry[Any]) -> dict[str, Any]:
    """List the project's own things of a registry by name, without those that tests and plug-ins add."""
    found = {name: registry.get(name) for name in registry}
    definitions = {name: getattr(thing, "function", thing) for name, thing in found.items()}
    return {name: found[name] for name, one in definitions.items() if one.__module__.startswith("fedfisher_core.")}


def summary(tensor: Tensor) -> dict[str, Any]:
    """Describe a tensor: its shape, its norm, its product with a fixed vector, and its first entry."""
    flat = tensor.detach().double().flatten()
    fixed = (37 * torch.arange(len(flat), dtype=torch.float64) % 101) / 50 - 1
    first = flat[0].item() if len(flat) else 0.0
    values = {"norm": flat.norm().item(), "product": (flat @ fixed).item(), "first": first}
    return {"shape": list(tensor.shape)} | {name: rounded(value) for name, value in values.items()}


def summaries(tensors: Mapping[str, Tensor], prefix: str = "") -> Numbers:
    """Describe named tensors."""
    return {f"{prefix}{name}": summary(tensor) for name, tensor in tensors.items()}


def shapes(numbers: Numbers) -> Numbers:
    """Leave nothing of tensors but their shapes."""
    return {name: {"shape": one["shape"]} if isinstance(one, dict) else one for name, one in numbers.items()}


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def leaves(document: Any, name: str) -> Iterator[tuple[str, float | str]]:
    """List all numbers and texts of a JSON document by where they are."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from leaves(value, f"{name}: {key}")
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            yield from leaves(value, f"{name}: {index}")
    elif isinstance(document, bool | str) or document is None:
        yield name, str(document)
    else:
        yield name, rounded(document)


def moved(frozen: Numbers, found: Numbers) -> list[str]:
    """Say what differs by more than rounding, one line each."""
    lines = [f"{name} is gone" for name in frozen if name not in found]
    lines += [f"{name} is new" for name in found if name not in frozen]
    for name in frozen.keys() & found.keys():
        was, now = frozen[name], found[name]
        if not same(was, now):
            lines.append(f"{name} was {was}, is {now}")
    return sorted(lines)


def same(was: Any, now: Any) -> bool:
    """Compare two numbers, two texts or two summaries."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        if isinstance(was, str) or isinstance(now, str):
            return was == now
        return math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE * 1e-2)
    if "norm" not in was:
        return was == now
    scale = TOLERANCE * max(was["norm"], now["norm"]) + ROUNDING * math.prod(was["shape"]) ** 0.5
    # A single entry is held to what entries are like on the whole.
    typical = scale / max(1, math.prod(was["shape"])) ** 0.5
    return (
        was["shape"] == now["shape"]
        and abs(was["norm"] - now["norm"]) <= scale
        and abs(was["product"] - now["product"]) <= scale
        and abs(was["first"] - now["first"]) <= typical + TOLERANCE * abs(was["first"])
    )
