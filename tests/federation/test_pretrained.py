"""Clients that all start from weights of a file."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedfisher_core.communication.wire.payload import bits_of
from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact
from fedfisher_core.experiments.benchmark.plan import make_plan
from fedfisher_core.federation.start import load_start, read_weights
from fedfisher_core.models.batch_norm import BatchNorm, read_running_statistics
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import PretrainedSettings
from tests import tiny
from tests.models.trunks import tiny_trunk
from tests.models.trunks.installed import weights_of
from tests.walked import Walked, walk_tiny

CPU = torch.device("cpu")


def weights() -> dict[str, Tensor]:
    return tiny.TINY.initialise(torch.Generator().manual_seed(99))


def settings(file: Path, **changes: Any) -> dict[str, Any]:
    return {"pretrained": {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} | changes}


def written(folder: Path, content: Any, name: str = "given.pth") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    save_file(content, file) if file.suffix == ".safetensors" else torch.save(content, file)
    return file


def start(done: Walked) -> Artifact:
    return done.made(done.plan.federations.start(done.federation, 1))


def refused(workplace: Path, message: str, model: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=message):
        make_plan(tiny.tiny_settings(workplace, model=model))


@pytest.mark.parametrize("name", ["given.pth", "given.safetensors"])
def test_all_clients_start_from_the_file(workplace: Path, name: str) -> None:
    file = written(workplace / "weights", weights(), name)
    # Steps that are too small for float32 lead nowhere else.
    done = walk_tiny(workplace, {"fedavg": {}}, model=settings(file), train={"learning_rate": 1e-30, "epochs": 1})
    assert all(torch.equal(tensor, weights()[name]) for name, tensor in load_start(start(done), CPU).items())
    row = done.rows["fedavg"]
    assert row.start_sent == "model"
    # Before the training and after it, to each of three clients.
    assert row.download_bits == 2 * 3 * bits_of(weights())


def test_weights_that_are_named_are_drawn_by_seed(workplace: Path) -> None:
    content = weights()
    content["head.weight"] = torch.zeros(9, 9)
    file = written(workplace / "weights", content)
    model = settings(file, drawn="head.weight")
    found = [load_start(start(walk_tiny(workplace, {"fedavg": {}}, model=model, seeds=[seed])), CPU) for seed in (0, 1)]
    for seed, one in enumerate(found):
        drawn = tiny.TINY.initialise(torch_generator(seed, Stream.INITIALISATION, 0))
        for name, tensor in one.items():
            expected = drawn[name] if name == "head.weight" else weights()[name]
            assert torch.equal(tensor, expected), name
    assert not torch.equal(found[0]["head.weight"], found[1]["head.weight"])


def test_the_file_may_be_anywhere_and_is_known_by_its_content(workplace: Path) -> None:
    first = start(walk_tiny(workplace, {"fedavg": {}}, model=settings(written(workplace / "one", weights()))))
    moved = start(walk_tiny(workplace, {"fedavg": {}}, model=settings(written(workplace / "two", weights()))))
    assert moved.key == first.key
    other = {name: tensor + 1 for name, tensor in weights().items()}
    assert (
        start(walk_tiny(workplace, {"fedavg": {}}, model=settings(written(workplace / "two", other)))).key != first.key
    )


def test_what_does_not_fit_is_refused_before_any_work(workplace: Path) -> None:
    folder = workplace / "weights"
    short = weights()
    del short["head.weight"]
    refused(workplace, r"given\.pth has 'head.weight' nowhere; model 'tiny' needs", settings(written(folder, short)))
    wide = weights() | {"head.weight": torch.zeros(9, 9)}
    refused(
        workplace,
        r"has 'head.weight' in shape \(9, 9\); model 'tiny' needs \(\d+, \d+\); allowed: this shape, or to name it in",
        settings(written(folder, wide)),
    )
    colour = weights() | {"conv.weight": weights()["conv.weight"].repeat(1, 3, 1, 1)}
    refused(
        workplace,
        r"has 'conv.weight' in shape \(2, 3, 3, 3\); model 'tiny' needs \(2, 1, 3, 3\)",
        settings(written(folder, colour)),
    )
    more = weights() | {"norm.weight": torch.zeros(1)}
    refused(workplace, "has norm.weight, which model 'tiny' has not", settings(written(folder, more)))
    refused(workplace, "holds a list; allowed: a mapping", settings(written(folder, [1])))
    nested = {"state_dict": weights()}
    refused(workplace, r"has 'state_dict', a dict; allowed: tensors by name", settings(written(folder, nested)))
    file = written(folder, weights())
    refused(workplace, r"drawn=\['tail'\]: model 'tiny' has no such weights", settings(file, drawn="tail"))
    refused(workplace, "has the SHA-256 .*; allowed: model.pretrained.sha256=0000", settings(file, sha256="0" * 64))
    refused(
        workplace, "initialisation='different' with model.pretrained", settings(file) | {"initialisation": "different"}
    )
    file.with_suffix(".safetensors").write_bytes(b"none")
    refused(workplace, r"given.safetensors can't be read", settings(file.with_suffix(".safetensors")))
    whole = file.read_bytes()
    for number, content in enumerate((b"", b"hello, this is text", whole[: len(whole) // 2], whole[:-10])):
        broken = folder / f"broken_{number}.pth"
        broken.write_bytes(content)
        refused(workplace, rf"broken_{number}\.pth (can't be read: .*|holds more .*); allowed: ", settings(broken))
    known = settings(file)
    file.unlink()
    refused(workplace, "given.pth: there is no such file", known)


@pytest.mark.parametrize(
    ("unusable", "message"),
    [
        (torch.full((1,), torch.nan), "with numbers that are not finite; allowed: finite ones"),
        (torch.full((1,), 1e300, dtype=torch.float64), "with numbers that are not finite"),
        (torch.ones(1, dtype=torch.complex64), r"as torch.complex64, .*; allowed: dense real numbers"),
        (torch.ones(1, dtype=torch.int64), r"as torch.int64, torch.strided; allowed: dense real numbers"),
        (torch.ones(1, dtype=torch.bool), r"as torch.bool, torch.strided; allowed: dense real numbers"),
        (torch.ones(1).to_sparse(), r"as torch.float32, torch.sparse_coo; allowed: dense real numbers"),
    ],
    ids=["NaN", "too large", "complex", "whole", "boolean", "sparse"],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_weights_that_are_no_numbers_are_refused(workplace: Path, unusable: Tensor, message: str) -> None:
    content = weights()
    shape = content["head.weight"].shape
    dense = unusable.to_dense().expand(shape).contiguous()
    content["head.weight"] = dense.to_sparse() if unusable.is_sparse else dense
    refused(workplace, f"given.pth has 'head.weight' {message}", settings(written(workplace / "weights", content)))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("head.weight", torch.ones(1, device="meta"), "has 'head.weight' on the device 'meta', without its numbers"),
        ("more", torch.ones(1, device="meta"), "has 'more' on the device 'meta', without its numbers"),
        ("more", torch.nested.nested_tensor([torch.ones(1)]), "has 'more' as torch.float32, nested; allowed: dense"),
        ("more", {"head.weight": torch.ones(1)}, "has 'more', a dict; allowed: tensors by name"),
        (7, torch.ones(1), "has a tensor under 7; allowed: names that are text"),
    ],
    ids=["meta", "another on meta", "nested", "mapping", "number"],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_files_of_something_else_than_dense_tensors_by_name_are_refused(
    workplace: Path, name: Any, given: Any, message: str
) -> None:
    refused(workplace, f"given.pth {message}", settings(written(workplace / "weights", weights() | {name: given})))


def test_weights_in_another_order_of_memory_are_kept(workplace: Path) -> None:
    shared = {name: tensor.transpose(0, -1).contiguous().transpose(0, -1) for name, tensor in weights().items()}
    assert not all(tensor.is_contiguous() for tensor in shared.values())
    done = walk_tiny(workplace, {"fedavg": {}}, model=settings(written(workplace / "weights", shared)))
    assert all(torch.equal(tensor, weights()[name]) for name, tensor in load_start(start(done), CPU).items())


def test_weights_of_fedfishers_authors_are_read_by_their_names(workplace: Path) -> None:
    """Those that Tiny-ImageNet trained (`ResNet18_tiny` of their models.py), without the layer of new classes."""
    filters = (64, 128, 256, 512)
    shapes = {"conv1": (64, 3, 7, 7), "fc": (1000, 512), "linear": (200, 1000)}
    for number, (inputs, outputs) in enumerate(zip((64, *filters), filters, strict=False), start=1):
        for block, own in enumerate((inputs, outputs)):
            shapes |= {f"layer{number}.{block}.conv1": (outputs, own, 3, 3)}
            shapes |= {f"layer{number}.{block}.conv2": (outputs, outputs, 3, 3)}
        if inputs != outputs:
            shapes |= {f"layer{number}.0.shortcut": (outputs, inputs, 1, 1)}
    theirs = {f"{name}.weight": torch.full(shape, float(place)) for place, (name, shape) in enumerate(shapes.items())}
    file = written(workplace / "weights", theirs)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    given = PretrainedSettings(file=file, sha256=digest, drawn=("final.weight",))
    found = read_weights(given, ModelSpec("resnet18_tiny_imagenet", Images(3, 32, 32), classes=10))
    assert found.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in found.items())


def test_weights_that_the_project_knows_need_no_file(workplace: Path, tmp_path: Path) -> None:
    trunk = tiny_trunk.register(tmp_path, weights())
    done = walk_tiny(workplace, {"fedavg": {}}, model={"pretrained": {"weights": trunk.name}})
    assert all(torch.equal(tensor, weights()[name]) for name, tensor in load_start(start(done), CPU).items())
    # The key is that of the content, regardless of its name.
    as_file = walk_tiny(workplace, {"fedavg": {}}, model=settings(Path(trunk.file)))
    assert start(as_file).key == start(done).key
    tiny_trunk.register(tmp_path, {name: tensor + 1 for name, tensor in weights().items()})
    other = walk_tiny(workplace, {"fedavg": {}}, model={"pretrained": {"weights": trunk.name}})
    assert start(other).key != start(done).key
    with pytest.raises(InputError, match=r"model\.pretrained\.weights=tiny_tree: unknown trunk 'tiny_tree'"):
        make_plan(tiny.tiny_settings(workplace, model={"pretrained": {"weights": "tiny_tree"}}))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"file": "a.pth"},
        {"sha256": "0" * 64},
        {"weights": "a", "file": "a.pth"},
        {"weights": "a", "licence": "MIT"},
        {"weights": "a", "trunk_sha256": "0" * 64},
    ],
)
def test_weights_have_one_source(workplace: Path, given: dict[str, str]) -> None:
    refused(workplace, "allowed: weights alone, or file and sha256 together", {"pretrained": given})


def test_running_statistics_of_torch_are_read() -> None:
    theirs = nn.BatchNorm2d(3)
    nn.init.uniform_(theirs.running_mean, -1, 1)
    nn.init.uniform_(theirs.running_var, 0.5, 2)
    inputs, own = torch.randn(5, 3, 4, 4), BatchNorm(3)
    read = read_running_statistics(
        nn.ModuleDict({"norm": own}), {f"norm.{k}": v for k, v in theirs.state_dict().items()}
    )
    assert read.keys() == {"norm.weight", "norm.bias", "norm.mean", "norm.log_variance"}
    own.load_state_dict({name.removeprefix("norm."): tensor for name, tensor in read.items()})
    torch.testing.assert_close(own.eval()(inputs), theirs.eval()(inputs))


def test_a_bias_of_a_layer_that_is_drawn_is_left(workplace: Path) -> None:
    content = weights() | {"head.bias": torch.zeros(9)}
    file = written(workplace / "weights", content)
    refused(workplace, "has head.bias, which model 'tiny' has not", settings(file))
    make_plan(tiny.tiny_settings(workplace, model=settings(file, drawn="head.weight")))


def torchvisions_mobilenet(file: Path) -> nn.Module:
    from torchvision.models import mobilenet_v2

    network = mobilenet_v2()
    network.load_state_dict(torch.load(file, weights_only=True))
    return network


def its_package_s_efficientnet(file: Path) -> nn.Module:
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet-lite-pytorch is not installed")
    network: nn.Module = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(file))
    return network


@pytest.mark.parametrize(
    ("name", "written_by_others"),
    [("mobilenet_v2", torchvisions_mobilenet), ("efficientnet_lite0", its_package_s_efficientnet)],
)
def test_a_whole_network_from_weights_of_a_package_says_what_the_network_of_others_says(
    name: str, written_by_others: Callable[[Path], nn.Module]
) -> None:
    file = weights_of(name)
    spec = ModelSpec(name, Images(3, 32, 32), classes=1000, bias=True)
    own = spec.load(read_weights(PretrainedSettings(weights=name), spec)).eval()
    images = spec.inputs.drawn(3, torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(own(images), written_by_others(file).eval()(images), rtol=1e-3, atol=1e-3)
