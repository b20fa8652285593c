"""How images are prepared for clients and servers: normalised, and cropped and mirrored or not."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from tests import tiny
from tests.walked import walk_tiny

seen_by_servers: list[Server] = []


@method("looking", uploads=(Weights,), reference="https://example.org")
def looking(server: Server, uploads: Sequence[Upload]) -> Aggregate:
    """Remember the server."""
    seen_by_servers.append(server)
    return Aggregate.of(uploads[0][Weights].tensors)


@pytest.mark.parametrize("dataset", [tiny.TINY_DATA, tiny.TINY_AUGMENTED], ids=lambda spec: spec.name)
def test_a_server_knows_how_images_were_prepared(workplace: Path, dataset: DatasetSpec) -> None:
    walk_tiny(workplace, {"looking": {}}, data={"dataset": dataset.name})
    assert seen_by_servers[-1].dataset == dataset


def test_images_that_are_never_augmented_are_those_of_a_data_set_that_is_not(workplace: Path) -> None:
    """The networks are the same to the bit; of DENSE, the server's views as well."""
    methods = {"fedavg": {}, "dense": {"epochs": 1, "generator_steps": 1, "images": 8, "select": False}}
    plain = walk_tiny(workplace, methods).rows
    usual = walk_tiny(workplace, methods, data={"dataset": "tiny_augmented"}).rows
    never = walk_tiny(workplace, methods, data={"dataset": "tiny_augmented", "augment": "never"}).rows
    for label in methods:
        assert never[label].loss == plain[label].loss != usual[label].loss
    assert "augment" not in usual["fedavg"].training
    assert never["fedavg"].training["augment"] == "never"
