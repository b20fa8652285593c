"""Max pooling by whole maps against torch's own, on the CPU; run as `python -m benchmarks.pooling`.

The two are timed in turn, by themselves and within networks: a step of training on 64 images, and a prediction of 500.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import alternate
from fedfisher_core.data.layouts import Images
from fedfisher_core.models import convolutional
from fedfisher_core.models.layers import max_pool
from fedfisher_core.models.spec import ModelSpec

Pool = Callable[[Tensor], Tensor]
NETWORKS = (("lenet", Images(1, 28, 28)), ("lenet", Images(3, 32, 32)), ("cnn", Images(3, 32, 32)))
TRAINED, PREDICTED = 64, 500


def pool_by_pixels(maps: Tensor) -> Tensor:
    """The alternative."""
    return functional.max_pool2d(maps, 2)


def differentiate(pool: Pool, maps: Tensor, slope: Tensor) -> None:
    """Pool, and take the gradient."""
    torch.autograd.grad(pool(maps), maps, slope)


def step(pool: Pool, network: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Take the gradient of a batch's loss with networks that pool in one way."""
    vars(convolutional)["max_pool"] = pool
    network.zero_grad()
    functional.cross_entropy(network(inputs), labels).backward()


def predict(pool: Pool, network: nn.Module, inputs: Tensor) -> None:
    """Compute logits with networks that pool in one way."""
    vars(convolutional)["max_pool"] = pool
    with torch.no_grad():
        network(inputs)


def report(what: str, ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> None:
    """Print milliseconds and their ratio."""
    fast, slow = alternate(ours, theirs, repeats=repeats)
    print(f"  {what:32} {1e3 * fast:8.2f} ms, torch's {1e3 * slow:8.2f} ms, ratio {slow / fast:.2f}")


def main() -> None:
    """Print all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print("pooling alone")
    for shape in ((64, 6, 24, 24), (64, 32, 28, 28)):
        maps = torch.randn(shape, generator=generator)
        slope = torch.randn_like(pool_by_pixels(maps))
        learned = maps.clone().requires_grad_()
        label = "x".join(map(str, shape))
        report(label, partial(max_pool, maps), partial(pool_by_pixels, maps), repeats)
        ours, theirs = (partial(differentiate, pool, learned, slope) for pool in (max_pool, pool_by_pixels))
        report(f"{label}, with gradient", ours, theirs, repeats)
    for name, images in NETWORKS:
        print(f"{name}, {images}")
        network = ModelSpec(name, images, classes=10).load(ModelSpec(name, images, classes=10).initialise(generator))
        inputs = torch.randn(PREDICTED, *images.shape, generator=generator)
        labels = torch.randint(10, (TRAINED,), generator=generator)
        ours, theirs = (partial(step, pool, network, inputs[:TRAINED], labels) for pool in (max_pool, pool_by_pixels))
        report(f"gradient of {TRAINED} images", ours, theirs, repeats)
        ours, theirs = (partial(predict, pool, network, inputs) for pool in (max_pool, pool_by_pixels))
        report(f"prediction of {PREDICTED} images", ours, theirs, repeats)


if __name__ == "__main__":
    main()
