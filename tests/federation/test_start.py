"""The weights that clients start from are an artifact of their own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact, read_tensors
from fedfisher_core.federation.federation import POOLED
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import TENSORS
from tests import tiny
from tests.walked import Walked, walk_tiny

CPU = torch.device("cpu")


def stored(folder: Path, kind: str = "starts") -> list[Path]:
    return sorted((folder / "artifacts" / kind).iterdir())


def start(done: Walked, client: int) -> Artifact:
    return done.made(done.plan.federations.start(done.federation, client))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def inputs(artifact: Artifact) -> dict[str, str]:
    return json.loads((artifact.path / "manifest.json").read_text())["inputs"]


def test_all_clients_share_one(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "centralised": {}})
    assert len(stored(workplace)) == 1
    assert len({start(done, client) for client in (POOLED, 0, 1, 2)}) == 1
    expected = tiny.TINY.initialise(torch_generator(0, Stream.INITIALISATION, 0))
    assert same(load_start(start(done, 0), CPU), expected)


def test_each_may_have_its_own(workplace: Path) -> None:
    done = walk_tiny(workplace, {"fedavg": {}, "centralised": {}}, model={"initialisation": "different"})
    assert len(stored(workplace)) == 4
    drawn = [load_start(start(done, client), CPU) for client in (POOLED, 0, 1, 2)]
    for i, one in enumerate(drawn):
        expected = tiny.TINY.initialise(torch_generator(0, Stream.INITIALISATION, i))
        assert same(one, expected)
        # Not one tensor of a network is another's.
        assert not any(torch.equal(one[name], other[name]) for other in drawn[i + 1 :] for name in one)


def test_they_are_read_once_and_whoever_changes_its_own_changes_no_other(workplace: Path) -> None:
    artifact = start(walk_tiny(workplace, {"fedavg": {}}), 0)
    expected = tiny.TINY.initialise(torch_generator(0, Stream.INITIALISATION, 0))
    load_start(artifact, CPU)
    (artifact.path / "weights.safetensors").unlink()
    for tensor in load_start(artifact, CPU).values():
        tensor.zero_()
    assert same(load_start(artifact, CPU), expected)


@pytest.mark.parametrize("initialisation", ["same", "different"])
def test_what_rests_on_them_has_them_as_an_input(workplace: Path, initialisation: str) -> None:
    done = walk_tiny(workplace, {"fisher_merge": {}}, model={"initialisation": initialisation})
    federations = done.plan.federations
    for client in range(3):
        own = start(done, client).key
        assert inputs(done.made(federations.training(done.federation, client)))["start"] == own
        assert inputs(done.client(client, "fisher_merge")["diagonal_fisher"])["start"] == own
    # The server's are those that clients share.
    assert inputs(done.aggregate("fisher_merge"))["start"] == done.made(federations.start(done.federation)).key


@pytest.mark.parametrize("initialisation", ["same", "different"])
def test_training_begins_there(workplace: Path, initialisation: str) -> None:
    # Steps that are too small for float32 lead nowhere else.
    train = {"learning_rate": 1e-30, "epochs": 1}
    done = walk_tiny(workplace, {"fedavg": {}}, train=train, model={"initialisation": initialisation})
    for client in range(3):
        (trained,) = done.client(client, "fedavg").values()
        assert same(load_start(start(done, client), CPU), read_tensors(trained, TENSORS))


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"partition": {"alpha": [0.1, 0.5], "clients": [3, 4]}}, 1),
        ({"train": {"epochs": 1}}, 1),
        ({"data": {"dataset": ["tiny", "tiny_augmented"]}}, 1),
        ({"seeds": [0, 1]}, 2),
        ({"model": {"name": ["tiny", "linear"]}}, 2),
        ({"model": {"initialisation": "different"}, "partition": {"clients": [3, 4]}}, 5),
    ],
)
def test_federations_of_one_network_and_seed_share_them(workplace: Path, changes: dict[str, Any], count: int) -> None:
    walk_tiny(workplace, {"fedavg": {}}, **({"train": {"epochs": 1}} | changes))
    assert len(stored(workplace)) == count


def test_biases_make_other_ones(workplace: Path) -> None:
    one = walk_tiny(workplace, {"fedavg": {}})
    other = walk_tiny(workplace, {"fedavg": {}}, model={"bias": True})
    assert start(one, 0).key != start(other, 0).key
    assert load_start(start(other, 0), CPU).keys() > load_start(start(one, 0), CPU).keys()
