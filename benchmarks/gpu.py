"""What a GPU gives: training, Fishers, and several tasks on it at a time; run as `python -m benchmarks.gpu`.

Local training on the GPU is compared with a bare loop there and with one core of the processor. The cost of adding in
a fixed order and of keeping all digits is measured. The exact diagonal and K-FAC Fisher are compared with nngeometry's
two passes on the same GPU. Clients that several processes train on one GPU are compared with clients that train one
after another. Images are random: what they show makes no difference to the seconds.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Barrier
from time import perf_counter

import torch
from torch.nn import functional

from benchmarks.timing import alternate
from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.arithmetic import reproducible_gpu
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.nngeometry_backend import compute as compute_by_nngeometry
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import TrainSettings

EXAMPLES, BATCH_SIZE = 2048, 64
SPECS = {
    "mlp": ModelSpec("mlp", Images(1, 28, 28), classes=10),
    "lenet": ModelSpec("lenet", Images(1, 28, 28), classes=10),
    "cnn": ModelSpec("cnn", Images(3, 32, 32), classes=10),
    "ma_echo_cnn": ModelSpec("ma_echo_cnn", Images(3, 32, 32), classes=10),
}
BOTH = frozenset({Approximation.DIAGONAL, Approximation.KFAC})
MEMORY = 256, 4096
"""MiB of a pass: the defaults of `fisher.memory_mib` on a processor and on a GPU."""

CLIENTS, PROCESSES = 16, (1, 2, 4, 8)
SETTINGS = TrainSettings(epochs=2, batch_size=BATCH_SIZE)


def drawn(spec: ModelSpec, device: torch.device) -> Examples:
    """Draw images and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(spec.classes, (EXAMPLES,), generator=generator)
    return Examples(inputs=spec.inputs.drawn(EXAMPLES, generator), labels=labels).to(device)


def ours(spec: ModelSpec, examples: Examples) -> None:
    """Train as a client does."""
    generator = torch.Generator().manual_seed(0)
    start = {name: tensor.to(examples.inputs.device) for name, tensor in spec.initialise(generator).items()}
    train(spec.load(start), examples, SETTINGS, generator=generator)


def bare(spec: ModelSpec, examples: Examples) -> None:
    """Train with nothing but what training needs."""
    generator = torch.Generator().manual_seed(0)
    device = examples.inputs.device
    network = spec.load({name: tensor.to(device) for name, tensor in spec.initialise(generator).items()})
    begin_training(network, generator)
    optimiser = torch.optim.SGD(network.parameters(), lr=SETTINGS.learning_rate, momentum=SETTINGS.momentum, fused=True)
    for _ in range(SETTINGS.epochs or 0):
        order = torch.randperm(len(examples), generator=generator).to(device)
        for batch in order.split(BATCH_SIZE):
            optimiser.zero_grad()
            functional.cross_entropy(network(examples.inputs[batch]), examples.labels[batch]).backward()
            optimiser.step()
    torch.cuda.synchronize()


def finished(work: Callable[[], object]) -> None:
    """Do work on the GPU, and wait for it."""
    work()
    torch.cuda.synchronize()


def reproducibly(work: Callable[[], object]) -> None:
    """Do work as tasks do it on a GPU."""
    with reproducible_gpu():
        work()


def measure_network(name: str, *, repeats: int) -> None:
    """Print one network's ratios."""
    spec, gpu = SPECS[name], torch.device("cuda")
    here, there = drawn(spec, torch.device("cpu")), drawn(spec, gpu)
    trained = partial(ours, spec, there)
    seconds, reference = alternate(trained, partial(bare, spec, there), repeats=repeats)
    fixed, free = alternate(partial(reproducibly, trained), trained, repeats=repeats)
    on_gpu, on_cpu = alternate(partial(reproducibly, trained), partial(ours, spec, here), repeats=1)
    print(f"{name}: {SETTINGS.epochs} epochs over {EXAMPLES} images in batches of {BATCH_SIZE}")
    print(f"  training: {seconds:.3f} s, bare loop {reference:.3f} s, ratio {seconds / reference:.2f}")
    print(f"  in a fixed order, all digits: {fixed:.3f} s, left to torch {free:.3f} s, ratio {fixed / free:.2f}")
    print(f"  one core of the processor: {on_cpu:.2f} s, the GPU {on_cpu / on_gpu:.1f} times faster", flush=True)
    model = spec.load({key: one.to(gpu) for key, one in spec.initialise(torch.Generator().manual_seed(0)).items()})
    by_peer = partial(compute_by_nngeometry, model, there.inputs, approximations=BOTH, batch_size=256)
    for limit in MEMORY:
        by_ours = partial(compute_fisher, model, there.inputs, approximations=BOTH, memory_limit=limit * 2**20)
        fisher, peer = alternate(partial(finished, by_ours), partial(finished, by_peer), repeats=repeats)
        print(
            f"  Fishers in {limit} MiB: {fisher:.3f} s, nngeometry {peer:.3f} s, {peer / fisher:.2f} times faster",
            flush=True,
        )


def _train_some(name: str, clients: int, started: Barrier) -> None:
    torch.set_num_threads(1)
    spec = SPECS[name]
    with reproducible_gpu():
        examples = drawn(spec, torch.device("cuda"))
        ours(spec, examples)
        started.wait()
        for _ in range(clients):
            ours(spec, examples)


def measure_sharing(name: str) -> None:
    """Print the seconds of clients that several processes train on one GPU, without those of starting processes."""
    context = multiprocessing.get_context("spawn")
    alone = None
    for count in PROCESSES:
        started = context.Barrier(count + 1)
        workers = [context.Process(target=_train_some, args=(name, CLIENTS // count, started)) for _ in range(count)]
        for one in workers:
            one.start()
        started.wait()
        begun = perf_counter()
        for one in workers:
            one.join()
        seconds = perf_counter() - begun
        alone = alone or seconds
        print(
            f"{name}: {CLIENTS} clients, {count} at a time: {seconds:.2f} s, {alone / seconds:.2f} times faster",
            flush=True,
        )


def main() -> None:
    """Measure the networks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(SPECS), help=f"of {', '.join(SPECS)}")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each side (5)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, median of {given.repeats}")
    for name in given.networks:
        measure_network(name, repeats=given.repeats)
    for name in given.networks:
        measure_sharing(name)


if __name__ == "__main__":
    main()
