import torch
from torch.nn import functional

from fedfisher_core.alignment.activations import activation_distances
from fedfisher_core.models.streams import streams
from tests import tiny


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


def test_no_hook_is_left_behind() -> None:
    network = tiny.TINY.load(tiny.initial()).eval()
    activation_distances(network, network, tiny.examples(3).inputs, streams(tiny.TINY))
    assert not any(module._forward_hooks for module in network.modules())
