"""Artifacts that tests write, and damage."""

from pathlib import Path

import torch

from fedfisher_core.engine.store import (
    Artifact,
    Content,
    Recipe,
    Store,
)

RECIPE = Recipe(kind="clients", version=1, settings={"epochs": 3, "model": {"name": "mlp"}}, inputs={"data": "abc"})


def content(value: float = 1.0, *, seconds: float = 0.5) -> Content:
    return Content(
        tensors={"tensors.safetensors": {"a.weight": torch.full((2, 3), value), "b": torch.arange(4)}},
        documents={"info.json": {"losses": [0.5, 0.25], "name": "größe"}},
        timings={"seconds": seconds},
    )


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def chain(store: Store) -> dict[str, Artifact]:
    """Data, two clients of it, and an aggregate of the first client."""
    data = store.write(Recipe("data", 1, {}), content(1))
    one = store.write(Recipe("clients", 1, {"client": 0}, {"data": data.key}), content(2))
    two = store.write(Recipe("clients", 1, {"client": 1}, {"data": data.key}), content(3))
    total = store.write(Recipe("aggregates", 1, {}, {"client_0": one.key}), content(4))
    return {"data": data, "one": one, "two": two, "total": total}
