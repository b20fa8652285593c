import torch
from torch.nn import functional

from fedfisher_core.methods.matching.transport import activation_distances
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.models.streams import streams
from tests import arranged, tiny


def test_units_are_compared_by_their_outputs_before_the_nonlinearity() -> None:
    spec = tiny.TINY_WITH_BIAS
    ours, theirs = (tiny.initial(spec, seed=seed) for seed in (0, 1))
    inputs = tiny.examples(230).inputs
    found = activation_distances(spec.load(ours).eval(), spec.load(theirs).eval(), inputs, streams(spec))

    def outputs(one: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        maps = functional.conv2d(inputs, one["conv.weight"], one["conv.bias"], stride=2, padding=1)
        hidden = functional.linear(maps.relu().flatten(1), one["hidden.weight"], one["hidden.bias"])
        return {"conv": maps, "hidden": hidden, "head": functional.linear(hidden.relu(), one["head.weight"])}

    a, b = outputs(ours), outputs(theirs)
    for layer in ("conv", "hidden"):
        expected = [
            [float(((a[layer][:, i] - b[layer][:, j]) ** 2).sum() / 230) for j in range(b[layer].shape[1])]
            for i in range(a[layer].shape[1])
        ]
        assert torch.allclose(found[layer], torch.tensor(expected).double(), rtol=1e-4)
    assert list(found) == ["conv", "hidden", "head"]


def test_units_that_see_several_places_are_compared_at_all_of_them() -> None:
    spec = ModelSpec("places", arranged.NUMBERS, classes=3)
    ours, theirs = (tiny.initial(spec, seed=seed) for seed in (0, 1))
    inputs = torch.randn(7, 6, generator=torch.Generator().manual_seed(2))
    found = activation_distances(spec.load(ours).eval(), spec.load(theirs).eval(), inputs, streams(spec))["each"]
    a, b = (torch.stack([inputs[:, :3], inputs[:, 3:]], 1) @ one["each.weight"].T for one in (ours, theirs))
    expected = ((a[..., :, None] - b[..., None, :]) ** 2).sum((0, 1)) / 7
    assert torch.allclose(found, expected.double(), rtol=1e-4)


def test_no_hook_is_left_behind() -> None:
    network = tiny.TINY.load(tiny.initial()).eval()
    activation_distances(network, network, tiny.examples(3).inputs, streams(tiny.TINY))
    assert not any(module._forward_hooks for module in network.modules())
