import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fedfisher_core.data.layouts import Vectors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.experiments.benchmark.plan import make_plan, make_rows
from fedfisher_core.experiments.benchmark.remarks import remarks
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.decoding import ExtractFeatures
from fedfisher_core.federation.start import load_start
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.trunks.trunk import load_trunk, prepare
from tests import tiny
from tests.models.trunks import tiny_trunk
from tests.walked import Walked, walk_tiny

METHODS: dict[str, dict[str, Any]] = {"fedavg": {}, "fedfisher_kfac": {}, "regmean": {}}
HEAD = "tiny_trunk/linear"


@pytest.fixture(autouse=True)
def _trunk(tmp_path: Path) -> None:
    tiny_trunk.register(tmp_path / "weights")


def walked(workplace: Path, **changes: Any) -> Walked:
    return walk_tiny(workplace, METHODS, **({"model": {"name": HEAD}} | changes))


def refused(workplace: Path, message: str, **changes: Any) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(tiny.tiny_settings(workplace, **changes))


def test_clients_train_on_the_features_of_all_images(workplace: Path) -> None:
    done = walked(workplace)
    decoded = load_data(done.outcome.artifacts["decode tiny"])
    featured = load_data(done.data)
    assert featured.spec.inputs == Vectors(tiny_trunk.FEATURES)
    trunk = tiny_trunk.trunks.get("tiny_trunk")
    with torch.inference_mode():
        for images, rows in ((decoded.train, featured.train), (decoded.test, featured.test)):
            expected = load_trunk(trunk)(prepare(trunk, images.inputs, trunk.size))
            torch.testing.assert_close(rows.inputs, expected)
            assert torch.equal(rows.labels, images.labels)
    rows = done.rows
    assert {row.model for row in rows.values()} == {HEAD}
    # Each of three clients sends the head alone.
    assert rows["fedavg"].upload_bits_formula == 3 * 32 * tiny_trunk.FEATURES * tiny.CLASSES
    assert rows["fedfisher_kfac"].accuracy > 0.5


def test_images_are_looked_at_once_for_all_that_stands_on_them(workplace: Path) -> None:
    plan = make_plan(
        tiny.tiny_settings(workplace, seeds=[0, 1], model={"name": [HEAD, "tiny_trunk/mlp", "tiny"]}, methods=METHODS)
    )
    extracting = {job.name for job in plan.jobs if isinstance(job, ExtractFeatures)}
    assert extracting == {"features of tiny by tiny_trunk"}
    first = walked(workplace).data
    assert walked(workplace, seeds=[1]).data.digest == first.digest
    assert walked(workplace, model={"name": HEAD, "trunk_size": 6}).data.digest != first.digest


def test_other_weights_make_other_features(workplace: Path, tmp_path: Path) -> None:
    first = walked(workplace).data
    tiny_trunk.register(tmp_path / "weights", tiny_trunk.weights(seed=1))
    other = walked(workplace).data
    assert other.key != first.key
    assert not torch.equal(load_data(other).train.inputs, load_data(first).train.inputs)


def test_splits_do_not_depend_on_the_trunk(workplace: Path) -> None:
    plan = make_plan(tiny.tiny_settings(workplace, model={"name": [HEAD, "tiny"]}))
    (head, images) = plan.federations.all
    decoded = plan.federations.partition(head).needs
    assert decoded == plan.federations.partition(images).needs


def test_the_page_says_what_clients_do_not_train(workplace: Path) -> None:
    done = walked(workplace)
    (said,) = [one for one in remarks(done.rows.values()) if "frozen" in one]
    assert f"Clients of `{HEAD}` train and send a network on the features that a frozen, pre-trained tiny_trunk" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "no_trunk/linear"}}, "unknown trunk 'no_trunk'"),
        ({"model": {"name": "tiny_trunk/liner"}}, "unknown model 'liner'"),
        ({"model": {"name": "tiny_trunk/lenet"}}, "model 'lenet' takes images; the data has 7 numbers"),
        (
            {"model": {"name": "tiny", "trunk_size": 64}},
            r"model\.trunk_size=64, but no trunk of images is among .*\['tiny'\]",
        ),
        ({"model": {"name": HEAD, "trunk_size": 0}}, r"model\.trunk_size=0"),
        (
            {"model": {"name": HEAD}, "partition": {"shift": {"kind": "rotation", "strength": 30}}},
            r"partition\.shift=rotation 30 with model\.name='tiny_trunk/linear': features are made once",
        ),
    ],
)
def test_what_a_trunk_cannot_do_is_refused_before_any_work(
    workplace: Path, changes: dict[str, Any], message: str
) -> None:
    refused(workplace, message, **changes)


def test_features_that_are_not_finite_are_no_data(workplace: Path, tmp_path: Path) -> None:
    weights = tiny_trunk.weights()
    weights["conv.bias"][2] = torch.inf
    tiny_trunk.register(tmp_path / "weights", weights)
    with pytest.raises(InputError, match="trunk 'tiny_trunk' makes features that are not finite"):
        walked(workplace)


def test_weights_that_do_not_fit_are_refused_before_any_work(workplace: Path, tmp_path: Path) -> None:
    tiny_trunk.register(tmp_path / "weights", tiny_trunk.weights(features=5))
    refused(workplace, "trunk 'tiny_trunk': the weights in .* do not fit", model={"name": HEAD})


def test_a_head_is_given_the_features_that_it_learned_from(workplace: Path, tmp_path: Path) -> None:
    head = ModelSpec(name="linear", inputs=Vectors(tiny_trunk.FEATURES), classes=tiny.CLASSES)
    save_file(head.initialise(torch.Generator()), tmp_path / "head.safetensors")
    file = tmp_path / "head.safetensors"
    given = {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    digest = tiny_trunk.trunks.get("tiny_trunk").sha256
    known = walked(workplace, model={"name": HEAD, "pretrained": given | {"trunk_sha256": digest}})
    assert known.rows["fedavg"].start_sent == "model"
    for said in ({}, {"trunk_sha256": "0" * 64}):
        message = rf"trunk_sha256={said.get('trunk_sha256')} is .* model\.name={HEAD} is given .* allowed: {digest}"
        refused(workplace, message, model={"name": HEAD, "pretrained": given | said})
    whole = {"name": "tiny", "pretrained": given | {"trunk_sha256": digest}}
    refused(workplace, r"but no trunk is among model\.name=\['tiny'\]; allowed: null", model=whole)


def test_a_head_stands_beside_the_whole_network_that_starts_from_weights(workplace: Path, tmp_path: Path) -> None:
    given = tiny.TINY.initialise(torch.Generator().manual_seed(99))
    whole = tiny_trunk.register(tmp_path / "weights", given, name="tiny_whole")
    pretrained = {"weights": whole.name}
    done = walked(workplace, model={"name": ["tiny", HEAD], "pretrained": pretrained})
    federations, artifacts = done.plan.federations, done.outcome.artifacts
    starts = {
        place.setting.model: load_start(artifacts[federations.start(place, 1).name], torch.device("cpu"))
        for place in federations.all
    }
    assert all(torch.equal(tensor, given[name]) for name, tensor in starts["tiny"].items())
    (drawn,) = (place for place in federations.all if place.setting.model == HEAD)
    assert {row.model: row.start_sent for row in make_rows(done.plan, done.outcome)} == {"tiny": "model", HEAD: "seed"}
    expected = drawn.spec.initialise(torch_generator(drawn.setting.seed, Stream.INITIALISATION))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in starts[HEAD].items())
    refused(workplace, "trains a head alone; allowed", model={"name": HEAD, "pretrained": pretrained})


def test_missing_weights_are_refused_before_any_work(workplace: Path) -> None:
    Path(tiny_trunk.trunks.get("tiny_trunk").file).unlink()
    refused(workplace, "trunk 'tiny_trunk': there is no file", model={"name": HEAD})
