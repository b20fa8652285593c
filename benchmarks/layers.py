"""What Fishers of depthwise convolutions and normalisations cost; run as `python -m benchmarks.layers`.

Four layers of one kind stand between pointwise convolutions, on random images. A layer's time is what the network's
exact diagonal and K-FAC take beyond those of the same network without it. It is divided by the time of the forward
and backward passes that the layer adds, one a direction, as each Fisher needs these, and by the number of parameters.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.timing import alternate
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.models.batch_norm import BatchNorm

CHANNELS, SIZE, CLASSES, EXAMPLES = 64, 8, 10, 128
DEEP = 4
MOST = 2
"""Times the cost of an ordinary convolution, by the passes that each adds and by parameters."""


class _OverChannels(nn.Module):
    """Layer normalisation of the channels of each pixel, with pixels for tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise images, shape (batch, channels, height, width)."""
        tokens = self.norm(inputs.flatten(2).transpose(1, 2))
        return tokens.transpose(1, 2).unflatten(2, inputs.shape[2:])


KINDS: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
    "depthwise": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False),
    "BatchNorm": lambda: BatchNorm(CHANNELS),
    "GroupNorm": lambda: nn.GroupNorm(8, CHANNELS),
    "LayerNorm": _OverChannels,
}


def network(kind: Callable[[], nn.Module]) -> nn.Module:
    """Build the network with given layers between its own."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(DEEP):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False), kind(), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES, bias=False)]
    return nn.Sequential(*layers, *head).eval()


def passes(model: nn.Module, inputs: Tensor) -> None:
    """Go forward once, and backward once for each direction of an exact Fisher."""
    weights = [one for one in model.parameters() if one.requires_grad]
    outputs = model(inputs).sum(0)
    for place in range(CLASSES - 1):
        torch.autograd.grad(outputs[place], weights, retain_graph=True)


def main() -> None:
    """Print a line for each kind of layer, and which targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    inputs = torch.randn(EXAMPLES, CHANNELS, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    bare = network(nn.Identity)
    print(f"{DEEP} layers, {EXAMPLES} inputs of {CHANNELS} x {SIZE} x {SIZE}, threads: {given.threads}")
    print("                     milliseconds            us a parameter")
    print("                 Fisher   passes  ratio    Fisher   passes")
    found: dict[str, tuple[float, float]] = {}
    for name, kind in KINDS.items():
        model = network(kind)
        own, alone = alternate(
            partial(compute_fisher, model, inputs), partial(compute_fisher, bare, inputs), repeats=given.repeats
        )
        ours, others = alternate(partial(passes, model, inputs), partial(passes, bare, inputs), repeats=given.repeats)
        fisher, needed = 1e3 * (own - alone), 1e3 * (ours - others)
        size = sum(one.numel() for one in model.parameters()) - sum(one.numel() for one in bare.parameters())
        found[name] = (fisher / needed, fisher / size)
        print(
            f"  {name:12} {fisher:8.1f} {needed:8.1f} {fisher / needed:6.2f} {1e3 * fisher / size:9.2f} "
            f"{1e3 * needed / size:8.2f}"
        )
    ordinary = found.pop("convolution")
    for name, ratios in found.items():
        for what, ratio, own in zip(("beside its passes", "a parameter"), ratios, ordinary, strict=True):
            times = ratio / own
            print(f"{'met   ' if times <= MOST else 'MISSED'}  {name}, {what}: {times:.2f} times (at most {MOST})")


if __name__ == "__main__":
    main()
