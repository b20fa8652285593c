"""Keys, digests, and what a manifest says of an artifact."""

import json
from io import FileIO
from pathlib import Path

import pytest
import torch

from fedfisher_core.engine.store import (
    Content,
    Recipe,
    Store,
)
from fedfisher_core.engine.store.manifest import digest_of, file_has_digest, has_digest
from tests.engine.store.artifacts import RECIPE, content

EMPTY = "blake3-af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
"""The digest of nothing, among the standard's own test vectors."""
LARGE = bytes(range(256)) * 5000


def test_the_digest_is_that_of_the_standard() -> None:
    assert digest_of(b"") == EMPTY


def test_a_changed_file_has_another_digest(tmp_path: Path) -> None:
    digest = digest_of(LARGE)
    for changed, intact in ((LARGE, True), (LARGE[:-1], False), (LARGE + b"\0", False), (b"\1" + LARGE[1:], False)):
        (tmp_path / "file").write_bytes(changed)
        with FileIO(tmp_path / "file") as file:
            assert file_has_digest(file, digest) == has_digest(changed, digest) == intact


@pytest.mark.parametrize(
    "other",
    [
        Recipe(kind="statistics", version=1, settings=RECIPE.settings, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=2, settings=RECIPE.settings, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=1, settings={"epochs": 4, "model": {"name": "mlp"}}, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=1, settings={"epochs": 3, "model": {"name": "cnn"}}, inputs=RECIPE.inputs),
        Recipe(kind=RECIPE.kind, version=1, settings=RECIPE.settings, inputs={"data": "abd"}),
        Recipe(kind=RECIPE.kind, version=1, settings=RECIPE.settings, inputs={"date": "abc"}),
        Recipe(kind=RECIPE.kind, version=1, settings=RECIPE.settings),
    ],
    ids=["kind", "version", "setting", "nested setting", "input", "role", "no inputs"],
)
def test_every_ingredient_changes_the_key(store: Store, other: Recipe) -> None:
    assert other.key != RECIPE.key
    store.write(RECIPE, content())
    assert store.find(other) is None


def test_the_order_of_settings_does_not_change_the_key() -> None:
    turned = Recipe(kind="clients", version=1, settings=dict(reversed(RECIPE.settings.items())), inputs=RECIPE.inputs)
    assert turned.key == RECIPE.key


def test_the_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    def digest(name: str, made: Content) -> str:
        return Store(tmp_path / name).write(RECIPE, made).digest

    first = digest("a", content(seconds=0.5))
    assert digest("b", content(seconds=9.0)) == first
    assert digest("c", content(value=2.0)) != first
    assert digest("d", Content(tensors=content().tensors)) != first


def test_the_manifest_tells_what_made_an_artifact(store: Store) -> None:
    manifest = json.loads((store.write(RECIPE, content()).path / "manifest.json").read_text())
    assert manifest["version"] == RECIPE.version
    assert manifest["settings"] == RECIPE.settings
    assert manifest["inputs"] == RECIPE.inputs
    assert manifest["libraries"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"python", "torch", "numpy", "nngeometry", "fedfisher"} <= manifest["libraries"].keys()
