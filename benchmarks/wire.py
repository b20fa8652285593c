"""The wire format: speed against numpy.packbits, sizes, and errors against the paper's format at equal bits.

python -m benchmarks.wire
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.clients import train_clients
from benchmarks.timing import alternate
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.communication.wire.budget import Family, StatisticSpec, fedavg_bits, fit, formula_bits
from fedfisher_core.communication.wire.codec import BitReader, BitWriter, Codec, Codes, TensorSpec
from fedfisher_core.communication.wire.elementwise import Float32, Root, Uniform
from fedfisher_core.communication.wire.payload import Schema, Section, decode, encode
from fedfisher_core.communication.wire.spectral import Spectral
from fedfisher_core.data.layouts import Images
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings.reading import validate

_ENTRIES = 1_000_000
_REPEATS = 7
_SPEED_TARGET = 100
_BENCHMARK = {
    "name": "wire",
    "seeds": [0],
    "data": {"dataset": "mnist5k"},
    "partition": {"alpha": [0.3], "clients": [5]},
    "model": {"name": ["lenet", "mlp"]},
    "train": {"epochs": 10},
    "methods": ["fedfisher_kfac", "fedfisher_diag"],
}

Tensors = dict[str, Tensor]


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


def print_speed(label: str, ours: Callable[[], object], theirs: Callable[[], object], name: str) -> float:
    """Print both speeds and their ratio; return ours, in MB of float32 a second."""
    seconds, reference = alternate(ours, theirs, repeats=_REPEATS)
    speeds = [4e-6 * _ENTRIES / each for each in (seconds, reference)]
    print(f"  {label}: ours {speeds[0]:6.0f}, {name} {speeds[1]:6.0f}, ratio {speeds[0] / speeds[1]:.1f}")
    return speeds[0]


def codec_speed() -> float:
    """Print the speed of whole payloads; return the slowest of the quantised ones."""
    print(
        f"payloads of {_ENTRIES} entries, MB of float32 a second, beside torch.quantize_per_tensor (8 bits, no packing)"
    )
    values = torch.randn(_ENTRIES, generator=torch.Generator().manual_seed(0)).abs()
    spec = (TensorSpec("x", (_ENTRIES,)),)
    scale = float(values.max()) / 127
    quantised = torch.quantize_per_tensor(values, scale, 0, torch.qint8)
    codecs: tuple[Codec, ...] = (Float32(), Uniform(15), Uniform(8), Root((16,)), Root((9,)))
    quantised_speeds: list[float] = []
    for codec in codecs:
        schema = Schema((Section("x", spec, codec),))
        payload = encode(schema, {"x": {"x": values}}, num_examples=1)
        encoding = print_speed(
            f"encode {codec!s:24}",
            partial(encode, schema, {"x": {"x": values}}, num_examples=1),
            lambda: torch.quantize_per_tensor(values, scale, 0, torch.qint8).int_repr().numpy().tobytes(),
            "torch",
        )
        decoding = print_speed(
            f"decode {codec!s:24}",
            partial(decode, payload, schema),
            quantised.dequantize,
            "torch",
        )
        if not isinstance(codec, Float32):
            quantised_speeds += [encoding, decoding]
    return min(quantised_speeds)


def spectral_speed() -> None:
    """Print what encoding a large factor takes by how many directions it has."""
    size, bits = 3072, 16_000_000
    print(f"a factor of {size} inputs as eigenvectors, seconds, median of 3")
    for images in (500, 1500):
        rows = torch.randn(images, size, generator=torch.Generator().manual_seed(0))
        few = rows.T @ rows / images
        whole = few + 1e-4 * torch.eye(size)
        seconds = alternate(*(partial(_write_spectral, bits, one.numpy()) for one in (few, whole)), repeats=3)
        print(
            f"  of {images:4} images {seconds[0]:6.2f} s, with all directions {seconds[1]:6.2f} s, "
            f"ratio {seconds[1] / seconds[0]:.1f}"
        )


def small_matrices_speed() -> None:
    """Print what encoding and decoding many small factors takes, together and one by one."""
    size, count, bits = 9, 2000, 1000
    rows = torch.randn(count, 2 * size, size, generator=torch.Generator().manual_seed(0))
    factors = {str(one): factor for one, factor in enumerate((rows.mT @ rows).numpy())}
    together, apart = alternate(
        lambda: _return_spectral([factors], count * bits),
        lambda: _return_spectral([{name: factor} for name, factor in factors.items()], bits),
        repeats=3,
    )
    print(
        f"{count} factors of {size} inputs there and back, median of 3: {together:.2f} s, one by one {apart:.2f} s, "
        f"ratio {apart / together:.1f}"
    )


def _return_spectral(uploads: Sequence[dict[str, NDArray[np.float32]]], bits: int) -> None:
    for factors in uploads:
        writer, codec = BitWriter(), Spectral(bits)
        codec.encode(factors, writer)
        codec.decode([TensorSpec(name, factor.shape) for name, factor in factors.items()], BitReader(writer.to_bytes()))


def _write_spectral(bits: int, matrix: NDArray[np.float32]) -> None:
    Spectral(bits).encode({"x": matrix}, BitWriter())


def sizes() -> None:
    """Print each format's size next to FedAvg's."""
    print("bits beside FedAvg's 32 d + 256")
    for name, model in (
        ("lenet", ModelSpec("lenet", Images(1, 28, 28), classes=10)),
        ("cnn", ModelSpec("cnn", Images(3, 32, 32), classes=10)),
    ):
        for statistic in (KFAC, DiagonalFisher):
            statistics = [one.wire_spec(model) for one in configure_statistics((Weights, statistic), {})]
            budget = fedavg_bits(statistics[0].size)
            plain = fit(statistics, family=Family.FLOAT32, budget_bits=None)
            paper = fit(statistics, family=Family.PAPER, budget_bits=budget)
            ours = fit(statistics, family=Family.FEDFISHER, budget_bits=budget)
            print(
                f"  {name:5} {statistic.name:15} float32 {plain.bits / budget:6.2f}, paper {paper.bits / budget:.5f} "
                f"(by its formula {formula_bits(paper) / (budget - 256):.5f}), ours <= {ours.bits / budget:.5f}"
            )


def real_clients(federations: Federations, federation: Federation) -> list[dict[str, Tensors]]:
    """Train the clients of a federation and compute their Fishers."""
    clients = train_clients(federations, federation).statistics
    return [{kind.name: dict(one.tensors) for kind, one in client.items()} for client in clients]


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
        true = math.prod([float((a * a).sum()) for a, _ in pairs])
        cross = math.prod([float((a * b).sum()) for a, b in pairs])
        decoded = math.prod([float((b * b).sum()) for _, b in pairs])
        squares.append(max(true - 2 * cross + decoded, 0.0) / true)
    return float(np.mean(squares) ** 0.5)


def diagonal_error(sent: Tensors, received: Tensors) -> float:
    """Median over the positive entries of their relative error."""
    ratios = [(received[name][sent[name] > 0] / sent[name][sent[name] > 0] - 1).abs() for name in sent]
    return float(torch.cat(ratios).median())


def real_errors() -> None:
    """Print the errors of both formats on the Fishers of clients trained on the embedded digits."""
    with tempfile.TemporaryDirectory() as store:
        settings = validate(BenchmarkSettings, {**_BENCHMARK, "run": {"store": store, "device": "cpu"}})
        federations = check_federations(settings)
        for federation in federations.all:
            model = federation.spec
            clients = real_clients(federations, federation)
            print(f"{federation.label}: errors at equal bits, median over the clients")
            weights, kfac, diagonal = (
                one.wire_spec(model) for one in configure_statistics((Weights, KFAC, DiagonalFisher), {})
            )
            paper = fit([weights, kfac], family=Family.PAPER, budget_bits=fedavg_bits(weights.size)).sections[1]
            cases: list[tuple[str, Codec]] = [("paper", paper.codec)]
            cases += [(f"ours {part:4}", Spectral(int(part * paper.bits))) for part in (1, 0.5, 0.25, 0.1)]
            for label, codec in cases:
                sent = [through(kfac, codec, client["kfac"]) for client in clients]
                error = np.median([block_error(c["kfac"], s) for c, (s, _) in zip(clients, sent, strict=True)])
                print(f"  K-FAC {label:9} {max(bits for _, bits in sent):8} bits, error of a block {error:.2e}")
            for width in (16, 8, 4):
                for label, codec in (("paper", Uniform(width - 1)), ("ours", Root((width,) * len(diagonal.tensors)))):
                    name = diagonal.name
                    sent = [through(diagonal, codec, client[name]) for client in clients]
                    error = np.median([diagonal_error(c[name], s) for c, (s, _) in zip(clients, sent, strict=True)])
                    print(f"  diagonal {label:5} {width:2} bits an entry, median relative error {error:.1e}")


def main() -> None:
    """Print everything, and whether quantisation is as fast as it should be."""
    torch.set_num_threads(1)
    packing_speed()
    slowest = codec_speed()
    spectral_speed()
    small_matrices_speed()
    sizes()
    real_errors()
    met = "met" if slowest >= _SPEED_TARGET else "MISSED"
    print(f"{met}: slowest quantisation {slowest:.0f} MB of float32 a second (at least {_SPEED_TARGET})")


if __name__ == "__main__":
    main()
