import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Images, Vectors
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.distillation import student as student_module
from fedfisher_core.methods.distillation.student import Pool, distillation_loss
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import ModelSpec, Parameters
from tests import tiny
from tests.methods.clients import SIZES, bind_written, empty, server, trained_uploads

QUICK: dict[str, Any] = {"epochs": 3, "generator_steps": 3, "images": 12, "latent": 8, "batch_size": 8}
COMPACT = ModelSpec("compact", Images(1, 16, 16), classes=3)
SHADES = DatasetSpec("shades", "nobody/shades", 3, Images(1, tiny.SIZE, tiny.SIZE), mean=(0.9,), std=(0.05,))


@pytest.fixture(scope="module")
def clients() -> list[Upload]:
    return trained_uploads()


def untrained(spec: ModelSpec, count: int = 3) -> list[Upload]:
    weights = [tiny.initial(spec, seed=seed) for seed in range(1, count + 1)]
    return [Upload(size, {Weights: Weights(one)}) for size, one in zip(SIZES, weights, strict=False)]


def dense(
    uploads: Sequence[Upload],
    *,
    spec: ModelSpec = tiny.TINY,
    validation: Examples | None = None,
    dataset: DatasetSpec = tiny.TINY_DATA,
    **settings: Any,
) -> Aggregate:
    return bind_written("dense", QUICK | settings, [spec])(
        server(spec, validation=validation, dataset=dataset), uploads
    )


def same(one: Parameters, other: Parameters) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """Every pool that is made, in order."""
    made: list[Pool] = []
    original = Pool.__init__

    def remember(self: Pool, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self)

    monkeypatch.setattr(student_module.Pool, "__init__", remember)
    return made


def shown(pool: Pool) -> tuple[Tensor, Tensor]:
    """All inputs of a pool with the teacher's logits."""
    ((inputs, logits),) = pool.batches(len(pool), torch.Generator().manual_seed(0))
    return inputs, logits


def mean_logits(uploads: Sequence[Upload], weights: Sequence[float], inputs: Tensor) -> Tensor:
    with torch.no_grad():
        each = [tiny.TINY.load(upload[Weights].tensors).eval()(inputs) for upload in uploads]
    return sum((weight * one for weight, one in zip(weights, each, strict=True)), torch.zeros(()))


def test_the_student_comes_nearer_to_the_teacher(clients: list[Upload], pools: list[Pool]) -> None:
    start = mean_parameters(clients)
    (network,) = dense(clients, select=False, epochs=10, learning_rate=0.05).networks
    inputs, taught = shown(pools[0])
    assert inputs.shape == (120, 1, tiny.SIZE, tiny.SIZE)

    def distance(parameters: Parameters) -> float:
        with torch.no_grad():
            return distillation_loss(tiny.TINY.load(parameters)(inputs), taught, 20.0).item()

    assert distance(network) < 0.7 * distance(start)


@pytest.mark.parametrize(
    ("choice", "weights"),
    [("examples", [size / sum(SIZES) for size in SIZES]), ("uniform", [1 / 3] * 3)],
)
def test_the_teacher_is_the_weighted_mean_of_logits(
    clients: list[Upload], pools: list[Pool], choice: str, weights: list[float]
) -> None:
    dense(clients, teacher_weights=choice)
    inputs, taught = shown(pools[0])
    assert torch.allclose(taught, mean_logits(clients, weights, inputs), atol=1e-5)


def test_images_enter_networks_as_the_clients_images_did(clients: list[Upload], pools: list[Pool]) -> None:
    for space in ("pixels", "official"):
        dense(clients, dataset=SHADES, space=space)
    # Pixels between 0 and 1 lie between (0 - 0.9) / 0.05 and (1 - 0.9) / 0.05.
    inputs = shown(pools[0])[0]
    assert inputs.min() < -5
    assert inputs.min() > -18
    assert inputs.max() < 2
    official = shown(pools[1])[0]
    assert official.min() > 0
    assert official.max() < 1


def test_the_generator_is_trained_on_what_networks_see(clients: list[Upload]) -> None:
    losses = [dense(clients, dataset=one, epochs=1).details["synthesis_loss"] for one in (tiny.TINY_DATA, SHADES)]
    assert losses[0] != pytest.approx(losses[1], rel=0.01)


def test_pixels_can_have_eight_bits(clients: list[Upload], pools: list[Pool]) -> None:
    for eight_bits in (False, True):
        dense(clients, official_8bit=eight_bits, space="official", epochs=1)
    full, short = (255 * shown(pool)[0] for pool in pools)
    assert torch.equal(short, full.floor())
    assert not torch.equal(full, full.floor())


@pytest.mark.parametrize(
    ("dataset", "augmentation", "expected"),
    [
        (tiny.TINY_DATA, "as_clients", False),
        (tiny.TINY_AUGMENTED, "as_clients", True),
        (tiny.TINY_DATA, "official", True),
        (tiny.TINY_AUGMENTED, "never", False),
    ],
)
def test_images_are_cropped_and_mirrored_where_the_clients_were(
    clients: list[Upload], pools: list[Pool], dataset: DatasetSpec, augmentation: str, expected: bool
) -> None:
    dense(clients, dataset=dataset, augmentation=augmentation)
    first, taught = shown(pools[0])
    again, _ = shown(pools[0])
    assert torch.equal(first, again) is not expected
    weights = [size / sum(SIZES) for size in SIZES]
    assert torch.allclose(taught, mean_logits(clients, weights, first), atol=1e-5)


@pytest.mark.parametrize("dataset", [tiny.TINY_DATA, tiny.TINY_AUGMENTED], ids=lambda dataset: dataset.name)
def test_officially_the_student_sees_crops_only_where_clients_did(
    clients: list[Upload], pools: list[Pool], dataset: DatasetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Tensor] = []
    add = Pool.add
    monkeypatch.setattr(Pool, "add", lambda self, inputs: [kept.append(inputs), add(self, inputs)][1])
    dense(clients, dataset=dataset, augmentation="official", epochs=1)
    (images,) = kept
    plain = [*images, *images.flip(3)]
    known = [any(torch.equal(one, other) for other in plain) for one in shown(pools[0])[0]]
    assert all(known) is not dataset.augment


def test_the_best_epoch_is_kept(clients: list[Upload]) -> None:
    settings = {"epochs": 4, "learning_rate": 3.0}
    validation = tiny.examples(40, seed=5)
    last = [dense(clients, select=False, **settings | {"epochs": n}).networks[0] for n in range(1, 5)]
    scores = [accuracy(tiny.TINY.load(one).eval(), validation) for one in last]
    assert len(set(scores)) > 1
    result = dense(clients, validation=validation, **settings)
    best = scores.index(max(scores))
    assert best < 3
    assert same(result.networks[0], last[best])
    assert result.details["selected_epoch"] == best + 1
    assert result.details["validation_accuracy"] == pytest.approx(max(scores))


def test_selection_needs_a_validation_set_and_nothing_else_does(clients: list[Upload], pools: list[Pool]) -> None:
    with pytest.raises(InputError, match="validation images, of which it has none"):
        dense(clients, validation=empty())
    assert not pools
    held = server(validation=empty())
    result = bind_written("dense", QUICK | {"select": False}, [tiny.TINY])(held, clients)
    assert not held.used_validation
    assert result.details["selected_epoch"] == QUICK["epochs"]


def test_the_student_starts_where_it_is_told(clients: list[Upload]) -> None:
    starts = {"fedavg": mean_parameters(clients), "initial": tiny.initial()}
    for start, parameters in starts.items():
        (network,) = dense(clients, start=start, learning_rate=1e-6, epochs=1, select=False).networks
        for name, tensor in parameters.items():
            assert torch.allclose(network[name], tensor, atol=1e-4), (start, name)
    assert not torch.allclose(starts["fedavg"]["head.weight"], starts["initial"]["head.weight"], atol=1e-2)


def test_the_same_seed_gives_the_same_bits_whatever_ran_before(clients: list[Upload]) -> None:
    torch.manual_seed(0)
    first = dense(clients).networks[0]
    torch.manual_seed(1)
    assert same(dense(clients).networks[0], first)


def test_uploads_stay_as_they_are(clients: list[Upload]) -> None:
    before = [{name: tensor.clone() for name, tensor in upload[Weights].tensors.items()} for upload in clients]
    dense(clients)
    for upload, weights in zip(clients, before, strict=True):
        assert same(dict(upload[Weights].tensors), weights)
        assert not any(tensor.requires_grad or tensor.grad is not None for tensor in upload[Weights].tensors.values())


def test_a_server_goes_through_the_epochs_by_name(clients: list[Upload], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="fedfisher.progress"):
        dense(clients)
    assert "epoch 3 of 3" in caplog.text


def test_nothing_is_written_to_disk(clients: list[Upload], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    dense(clients)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "spec", [tiny.TINY, tiny.TINY_WITH_BIAS, COMPACT, ModelSpec("resnet18", Images(3, 8, 5), classes=4)], ids=str
)
def test_any_network_can_be_taught(spec: ModelSpec) -> None:
    mean, std = (0.5,) * spec.inputs.channels, (0.2,) * spec.inputs.channels
    dataset = DatasetSpec("any", None, spec.classes, spec.inputs, mean, std)
    settings = {"epochs": 1, "generator_steps": 2, "images": 4, "select": False}
    uploads = untrained(spec, 2)
    (network,) = dense(uploads, spec=spec, dataset=dataset, validation=empty(), **settings).networks
    assert list(network) == list(uploads[0][Weights].tensors)
    assert all(torch.isfinite(tensor).all() for tensor in network.values())


def test_one_client_teaches_alone(clients: list[Upload], pools: list[Pool]) -> None:
    (network,) = dense(clients[:1]).networks
    inputs, taught = shown(pools[0])
    assert torch.allclose(taught, mean_logits(clients[:1], [1.0], inputs), atol=1e-5)
    # The student starts as the only client, and has nothing to learn from it.
    for name, tensor in clients[0][Weights].tensors.items():
        assert torch.allclose(network[name], tensor, atol=1e-3), name


def test_clients_that_know_nothing_give_a_finite_student() -> None:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in tiny.initial().items()}
    uploads = [Upload(size, {Weights: Weights(zeros)}) for size in SIZES]
    for start in ("fedavg", "initial"):
        result = dense(uploads, start=start)
        assert all(torch.isfinite(tensor).all() for tensor in result.networks[0].values())
        assert all(torch.isfinite(torch.tensor(one)) for one in result.details.values())


@pytest.mark.parametrize("select", [False, True])
def test_a_student_that_diverges_is_given_up(
    clients: list[Upload], select: bool, caplog: pytest.LogCaptureFixture
) -> None:
    result = dense(clients, learning_rate=1e30, select=select)
    assert same(result.networks[0], mean_parameters(clients))
    assert result.details["selected_epoch"] == 0
    assert "learning_rate=1e+30 is too large" in caplog.text


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(InputError, match="method 'dense' can't serve model 'tiny': images of 3x3 pixels"):
        bind_written("dense", {}, [ModelSpec("tiny", Images(1, 3, 3), classes=3)])
    bind_written("dense", {}, [ModelSpec("tiny", Images(1, 4, 4), classes=3)])


def test_examples_that_are_no_images_are_refused() -> None:
    message = "method 'dense' can't serve model 'mlp': the generator takes images; the data has 13 numbers"
    with pytest.raises(InputError, match=message):
        bind_written("dense", {}, [ModelSpec("mlp", Vectors(13), classes=3)])
