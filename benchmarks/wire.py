"""The wire format: speed beside numpy.packbits, sizes, and errors beside the paper's format at equal bits.

python -m benchmarks.wire
"""

import os
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.timing import alternate
from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.statistic import Local, Statistic
from fedfisher_core.client.training import train
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.partitions import split
from fedfisher_core.data.sources import DATA_DIR_VARIABLE, find_source, read_dataset
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.evaluation.predictions import accuracy
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.settings import Cell, FisherSettings, PartitionSettings, TrainSettings
from fedfisher_core.solvers.paper import paper_diagonal, paper_kronecker
from fedfisher_core.solvers.quadratic import diagonal_quadratic, kronecker_quadratic
from fedfisher_core.wire import (
    Codec,
    Family,
    Float32,
    Kind,
    Root,
    Schema,
    Section,
    Spectral,
    StatisticSpec,
    TensorSpec,
    Uniform,
    decode,
    encode,
    fedavg_bits,
    fit,
    formula_bits,
)
from fedfisher_core.wire.packing import BitReader, BitWriter, Codes

_ENTRIES = 1_000_000
_REPEATS = 7
_CLIENTS = 5
_EXAMPLES = 4000
_STEPS = 500
_KINDS: dict[type[Statistic], Kind] = {
    Weights: Kind.WEIGHTS,
    KFAC: Kind.SYMMETRIC,
    DiagonalFisher: Kind.NONNEGATIVE,
}

Tensors = dict[str, Tensor]


def spec_of(kind: type[Statistic], model: ModelSpec) -> StatisticSpec:
    """Describe a statistic as the wire does."""
    shapes = kind.shapes(model).items()
    return StatisticSpec(kind.name, _KINDS[kind], tuple(TensorSpec(name, tuple(shape)) for name, shape in shapes))


def packbits(codes: Codes, width: int) -> bytes:
    """The alternative: one byte a bit, then numpy.packbits."""
    bits = (codes[:, None] >> np.arange(width, dtype=np.uint32)) & np.uint32(1)
    return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()


def unpackbits(stream: bytes, count: int, width: int) -> Codes:
    """Undo `packbits`."""
    bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=count * width, bitorder="little")
    powers: NDArray[np.uint32] = np.uint32(1) << np.arange(width, dtype=np.uint32)
    return bits.reshape(count, width).astype(np.uint32) @ powers


def packing_speed() -> None:
    """Print how many MB of float32 a second are packed and unpacked."""
    print(f"packing {_ENTRIES} codes, MB of float32 a second, median of {_REPEATS}, one thread")
    for width in (5, 8, 9, 16):
        codes = np.random.default_rng(0).integers(0, 2**width, _ENTRIES, dtype=np.uint32)
        stream = packbits(codes, width)

        def pack(codes: Codes = codes, width: int = width) -> bytes:
            writer = BitWriter()
            writer.write(codes, width)
            return writer.to_bytes()

        if pack() != stream:
            raise AssertionError(f"both must make the same stream of {width} bits a code")
        for name, first, second in (
            ("pack", pack, lambda codes=codes, width=width: packbits(codes, width)),
            (
                "unpack",
                lambda stream=stream, width=width: BitReader(stream).read(_ENTRIES, width),
                lambda stream=stream, width=width: unpackbits(stream, _ENTRIES, width),
            ),
        ):
            print_speed(f"{name:6} {width:2} bits", first, second, "numpy.packbits")


def print_speed(label: str, ours: Callable[[], object], theirs: Callable[[], object], name: str) -> None:
    """Print both speeds and their ratio."""
    seconds, reference = alternate(ours, theirs, repeats=_REPEATS)
    speeds = [4e-6 * _ENTRIES / each for each in (seconds, reference)]
    print(f"  {label}: ours {speeds[0]:6.0f}, {name} {speeds[1]:6.0f}, ratio {speeds[0] / speeds[1]:.1f}")


def codec_speed() -> None:
    """Print the speed of whole payloads."""
    print(
        f"payloads of {_ENTRIES} entries, MB of float32 a second, beside torch.quantize_per_tensor (8 bits, no packing)"
    )
    values = torch.randn(_ENTRIES, generator=torch.Generator().manual_seed(0)).abs()
    spec = (TensorSpec("x", (_ENTRIES,)),)
    scale = float(values.max()) / 127
    quantised = torch.quantize_per_tensor(values, scale, 0, torch.qint8)
    codecs: tuple[Codec, ...] = (Float32(), Uniform(15), Uniform(8), Root((16,)), Root((9,)))
    for codec in codecs:
        schema = Schema((Section("x", spec, codec),))
        payload = encode(schema, {"x": {"x": values}}, num_examples=1)
        print_speed(
            f"encode {codec!s:24}",
            lambda schema=schema: encode(schema, {"x": {"x": values}}, num_examples=1),
            lambda: torch.quantize_per_tensor(values, scale, 0, torch.qint8).int_repr().numpy().tobytes(),
            "torch",
        )
        print_speed(
            f"decode {codec!s:24}",
            lambda payload=payload, schema=schema: decode(payload, schema),
            quantised.dequantize,
            "torch",
        )


def sizes() -> None:
    """Print each format's size beside FedAvg's."""
    print("bits beside FedAvg's 32 d + 256")
    for name, model in (
        ("lenet", ModelSpec("lenet", channels=1, size=28, classes=10)),
        ("cnn", ModelSpec("cnn", channels=3, size=32, classes=10)),
    ):
        for kind in (KFAC, DiagonalFisher):
            statistics = [spec_of(Weights, model), spec_of(kind, model)]
            budget = fedavg_bits(statistics)
            plain = fit(statistics, family=Family.FLOAT32, budget_bits=None)
            paper = fit(statistics, family=Family.PAPER, budget_bits=budget)
            ours = fit(statistics, family=Family.FEDFISHER, budget_bits=budget)
            print(
                f"  {name:5} {kind.name:15} float32 {plain.bits / budget:6.2f}, paper {paper.bits / budget:.5f} "
                f"(by its formula {formula_bits(paper) / (budget - 256):.5f}), ours <= {ours.bits / budget:.5f}"
            )


def real_clients(model: ModelSpec) -> tuple[list[dict[type[Statistic], Tensors]], list[float], Examples]:
    """Train clients on label-skewed MNIST and compute their statistics."""
    dataset = read_dataset(find_source("mnist"))
    partition = split(
        PartitionSettings(),
        Cell(alpha=0.3, clients=_CLIENTS, seed=0),
        dataset.train.labels.numpy(),
        classes=10,
        validation_size=0,
    )
    initial = model.initialise(torch_generator(0, Stream.INITIALISATION))
    clients, counts = [], []
    for index, indices in enumerate(partition.clients):
        examples = select(dataset.train, dataset.spec, torch.from_numpy(indices[:_EXAMPLES]))
        network = model.load(initial)
        train(network, examples, TrainSettings(epochs=5), generator=torch_generator(0, Stream.CLIENT, index))
        local = Local(network.eval(), examples, classes=10, fisher=FisherSettings())
        clients.append({kind: kind.compute(local).tensors for kind in _KINDS})
        counts.append(len(examples))
    weights = [count / sum(counts) for count in counts]
    return clients, weights, select(dataset.test, dataset.spec)


def through(statistic: StatisticSpec, codec: Codec, tensors: Tensors) -> tuple[Tensors, int]:
    """Send one statistic; return what arrives, and its bits without the header."""
    schema = Schema((Section(statistic.name, statistic.tensors, codec),))
    payload = encode(schema, {statistic.name: tensors}, num_examples=1)
    return dict(decode(payload, schema).statistics[statistic.name]), 8 * len(payload) - 256


def block_error(sent: Tensors, received: Tensors) -> float:
    """Root mean square, over the layers, of the relative errors of the Kronecker products."""
    squares = []
    for layer in (name.removesuffix(".inputs") for name in sent if name.endswith(".inputs")):
        pairs = [
            (sent[f"{layer}.{side}"].double(), received[f"{layer}.{side}"].double()) for side in ("inputs", "outputs")
        ]
        true = np.prod([float((a * a).sum()) for a, _ in pairs])
        cross = np.prod([float((a * b).sum()) for a, b in pairs])
        decoded = np.prod([float((b * b).sum()) for _, b in pairs])
        squares.append(max(true - 2 * cross + decoded, 0.0) / true)
    return float(np.mean(squares) ** 0.5)


def diagonal_error(sent: Tensors, received: Tensors) -> float:
    """Median over the positive entries of their relative error."""
    ratios = [(received[name][sent[name] > 0] / sent[name][sent[name] > 0] - 1).abs() for name in sent]
    return float(torch.cat(ratios).median())


def kfac_accuracy(
    model: ModelSpec, test: Examples, clients: Sequence[Tensors], factors: Sequence[Tensors], weights: Sequence[float]
) -> float:
    """Test accuracy of FedFisher(K-FAC)."""
    quadratic = kronecker_quadratic(clients, [KFAC(each).blocks() for each in factors], weights)
    return accuracy(model.load(paper_kronecker(quadratic, steps=_STEPS).parameters), test)


def diagonal_accuracy(
    model: ModelSpec, test: Examples, clients: Sequence[Tensors], fishers: Sequence[Tensors], weights: Sequence[float]
) -> float:
    """Test accuracy of FedFisher(Diag)."""
    quadratic = diagonal_quadratic(clients, fishers, weights)
    return accuracy(model.load(paper_diagonal(quadratic, steps=_STEPS).parameters), test)


def real_errors() -> None:
    """Print errors and accuracies of both formats on real statistics."""
    if not os.environ.get(DATA_DIR_VARIABLE):
        print(f"real Fishers: skipped, {DATA_DIR_VARIABLE} is not set")
        return
    for name in ("lenet", "mlp"):
        model = ModelSpec(name, channels=1, size=28, classes=10)
        clients, weights, test = real_clients(model)
        models = [client[Weights] for client in clients]
        statistics = [spec_of(Weights, model), spec_of(KFAC, model)]
        paper = fit(statistics, family=Family.PAPER, budget_bits=fedavg_bits(statistics)).sections[1]
        factors = [client[KFAC] for client in clients]
        plain = kfac_accuracy(model, test, models, factors, weights)
        print(
            f"{name}: {_CLIENTS} clients of MNIST, alpha 0.3; {_STEPS} steps of FedFisher(K-FAC), "
            f"uncompressed {plain:.4f}"
        )
        cases = [("paper", paper.codec)]
        cases += [(f"ours {part:4}", Spectral(int(part * paper.bits))) for part in (1, 0.5, 0.25, 0.1)]
        for label, codec in cases:
            sent = [through(statistics[1], codec, each) for each in factors]
            error = np.median([block_error(a, b) for a, (b, _) in zip(factors, sent, strict=True)])
            reached = kfac_accuracy(model, test, models, [each for each, _ in sent], weights)
            bits = max(bits for _, bits in sent)
            print(f"  {label:9} {bits:8} bits, error of a block {error:.2e}, accuracy {reached:.4f}")
        fishers = [client[DiagonalFisher] for client in clients]
        diagonal = spec_of(DiagonalFisher, model)
        plain = diagonal_accuracy(model, test, models, fishers, weights)
        print(f"{name}: FedFisher(Diag), uncompressed {plain:.4f}")
        for width in (16, 8, 4):
            for label, codec in (
                ("paper", Uniform(width - 1)),
                ("ours", Root((width,) * len(diagonal.tensors))),
            ):
                sent = [through(diagonal, codec, each) for each in fishers]
                error = np.median([diagonal_error(a, b) for a, (b, _) in zip(fishers, sent, strict=True)])
                reached = diagonal_accuracy(model, test, models, [each for each, _ in sent], weights)
                print(f"  {label:5} {width:2} bits an entry, median relative error {error:.1e}, accuracy {reached:.4f}")


def main() -> None:
    """Print everything."""
    torch.set_num_threads(1)
    packing_speed()
    codec_speed()
    sizes()
    real_errors()


if __name__ == "__main__":
    main()
