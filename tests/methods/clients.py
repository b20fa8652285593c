"""Clients of the tiny network with statistics that are computed or made up, and a server for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.class_gaussians import ClassGaussians
from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.class_sums import ClassSums
from fedfisher_core.client.statistics.dense_fisher import DenseFisher
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.feature_gaussians import FeatureGaussians
from fedfisher_core.client.statistics.fisher_directions import FisherDirections
from fedfisher_core.client.statistics.further_modes import FURTHER, FurtherFactors, FurtherWeights
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.input_sums import InputSums
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.null_space import NullSpaceProjection, OfficialProjection, span_projection
from fedfisher_core.client.statistics.squared_gradients import SquaredGradients
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.training import train
from fedfisher_core.client.uploads import Ask, Upload
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Examples
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.methods.configured import ConfiguredMethod, configure
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.settings import FisherSettings, TrainSettings, WireSettings
from fedfisher_core.settings.reading import validate
from tests import tiny

SIZES = (40, 25, 10)
KINDS: tuple[type[Statistic], ...] = (
    Weights,
    DiagonalFisher,
    KFAC,
    DenseFisher,
    Gram,
    NullSpaceProjection,
    OfficialProjection,
    LabelCounts,
    FeatureGaussians,
    InputMoments,
    ClassMoments,
    FurtherWeights,
    FurtherFactors,
)


def server(
    spec: ModelSpec = tiny.TINY,
    *,
    validation: Examples | None = None,
    dataset: DatasetSpec = tiny.TINY_DATA,
    initial: Parameters | None = None,
    seed: int = 0,
) -> Server:
    return Server(
        spec=spec,
        dataset=dataset,
        fisher=FisherSettings(estimator="exact"),
        initial=tiny.initial(spec) if initial is None else initial,
        generator=torch.Generator().manual_seed(seed),
        device=torch.device("cpu"),
        validation=tiny.examples(30, seed=99) if validation is None else validation,
    )


def empty() -> Examples:
    return Examples(inputs=torch.empty(0, 1, tiny.SIZE, tiny.SIZE), labels=torch.empty(0, dtype=torch.int64))


def trained_uploads(spec: ModelSpec = tiny.TINY) -> list[Upload]:
    """Train one client a size on data of its own, mostly of one class, and compute all of its statistics."""
    uploads = []
    for client, size in enumerate(SIZES):
        examples = _held(client, size)
        network = spec.load(tiny.initial(spec))
        _train(network, examples, seed=client)
        local = replace(tiny.local(network, examples), trainer=_trainer(spec, examples, client))
        statistics = {kind: kind.compute(local) for kind in KINDS}
        uploads.append(Upload(num_examples=size, statistics=statistics, again=asking(examples)))
    return uploads


def _held(client: int, size: int) -> Examples:
    """What a trained client holds."""
    many = tiny.examples(4 * size, seed=client)
    order = torch.argsort((many.labels != client % tiny.CLASSES).int(), stable=True)[:size]
    return Examples(inputs=many.inputs[order], labels=many.labels[order])


def divergence(parameters: Mapping[str, Tensor], uploads: Sequence[Upload], spec: ModelSpec = tiny.TINY) -> float:
    """Mean over trained clients of the KL from their networks to one, on the inputs that they hold."""
    total = 0.0
    for client, upload in enumerate(uploads):
        inputs = _held(client, upload.num_examples).inputs
        taught = spec.load(upload[Weights].tensors)(inputs).log_softmax(1).detach()
        said = spec.load(parameters)(inputs).log_softmax(1).detach()
        total += (taught.exp() * (taught - said)).sum(1).mean().item() / len(uploads)
    return total


def _train(network: nn.Module, examples: Examples, *, seed: int) -> nn.Module:
    settings = TrainSettings(epochs=5, learning_rate=0.05, batch_size=8)
    train(network, examples, settings, generator=torch.Generator().manual_seed(seed))
    return network.eval()


def _trainer(spec: ModelSpec, examples: Examples, client: int) -> Callable[[int], nn.Module]:
    return lambda mode: _train(spec.load(tiny.initial(spec, seed=mode)), examples, seed=100 * mode + client)


def asking(examples: Examples) -> Ask:
    """Have a client compute with any network on its examples."""
    return lambda network: tiny.local(network, examples)


def positive_definite(size: int, generator: torch.Generator) -> Tensor:
    root = torch.randn(2 * size, size, generator=generator)
    return root.T @ root / (2 * size)


def projection(size: int, generator: torch.Generator) -> Tensor:
    return span_projection(positive_definite(size, generator).double()).float()


def made_up_uploads(parameters: Sequence[dict[str, Tensor]], spec: ModelSpec = tiny.TINY) -> list[Upload]:
    """Give each set of parameters Fishers, Gram matrices and projections of full rank, drawn at random, and labels."""
    uploads = []
    for client, weights in enumerate(parameters):
        generator = torch.Generator().manual_seed(client)
        square = {
            kind: kind.of({key: positive_definite(shape[0], generator) for key, shape in kind.shapes(spec).items()})
            for kind in (KFAC, DenseFisher, Gram, FurtherFactors)
        }
        diagonal = {name: 0.1 + torch.rand(tensor.shape, generator=generator) for name, tensor in weights.items()}
        statistics: dict[type[Statistic], Statistic] = {Weights: Weights(weights)}
        further = [tiny.initial(spec, seed=1000 * mode + client) for mode in range(1, FURTHER + 1)]
        statistics[FurtherWeights] = FurtherWeights(
            {f"{mode}/{name}": one for mode, own in enumerate(further, start=1) for name, one in own.items()}
        )
        statistics |= {DiagonalFisher: DiagonalFisher(diagonal)} | square
        statistics[SquaredGradients] = SquaredGradients({name: 3 * tensor for name, tensor in diagonal.items()})
        statistics |= {
            kind: kind.of({key: projection(shape[0], generator) for key, shape in kind.shapes(spec).items()})
            for kind in (NullSpaceProjection, OfficialProjection)
        }
        shapes = InputMoments.shapes(spec, directions=3)
        statistics[InputMoments] = InputMoments(
            {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
        )
        # A generator of its own leaves the numbers of all other statistics as they are.
        (size,) = (shape for shape in FisherDirections.shapes(spec, rank=3).values())
        drawn = torch.randn(size, generator=torch.Generator().manual_seed(100 + client))
        statistics[FisherDirections] = FisherDirections({"directions": drawn})
        shapes = ClassMoments.shapes(spec, directions=3)
        drawn = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
        statistics[ClassMoments] = ClassMoments(
            drawn
            | {"shares": torch.full((spec.classes,), 1 / spec.classes), "owners": torch.arange(3.0) % spec.classes}
        )
        held = tiny.local(spec.load(weights).eval(), tiny.examples(40, seed=client, spec=spec))
        statistics[InputSums] = InputSums.compute(held)
        statistics[LabelCounts] = LabelCounts({"counts": torch.full((spec.classes,), 5.0)})
        for of_features in (*((ClassSums, ClassGaussians) if spec.name == "linear" else ()), FeatureGaussians):
            drawn = {name: torch.rand(shape, generator=generator) for name, shape in of_features.shapes(spec).items()}
            statistics[of_features] = of_features.of(drawn)
        again = asking(tiny.examples(200, seed=client, spec=spec))
        uploads.append(Upload(num_examples=SIZES[client % len(SIZES)], statistics=statistics, again=again))
    return uploads


def bind_written(
    label: str,
    written: Mapping[str, Any],
    specs: Iterable[ModelSpec],
    wire: WireSettings | None = None,
    statistics: Mapping[str, Mapping[str, Any]] | None = None,
) -> ConfiguredMethod:
    """Choose a method's settings as a configuration file writes them under its label."""
    entry = validate(BenchmarkSettings, {"methods": {label: written}}).methods[label]
    return configure(label, entry, specs, wire or WireSettings(), statistics or {})


def aggregate(
    name: str,
    uploads: Sequence[Upload],
    *,
    spec: ModelSpec = tiny.TINY,
    validation: Examples | None = None,
    **settings: Any,
) -> Aggregate:
    return bind_written(name, settings, [spec])(server(spec, validation=validation), uploads)


def merge_changes(
    name: str,
    start: dict[str, Tensor],
    changes: Sequence[dict[str, Tensor]],
    *,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Tensor]:
    """Apply a method of task vectors to clients that went from one start by given changes; what the result changed."""
    uploads = [
        Upload(
            num_examples=SIZES[client % len(SIZES)],
            statistics={Weights: Weights({key: tensor + change[key] for key, tensor in start.items()})},
        )
        for client, change in enumerate(changes)
    ]
    (network,) = bind_written(name, settings, [tiny.TINY])(server(initial=start, seed=seed), uploads).networks
    assert all(tensor.dtype == torch.float32 for tensor in network.values())
    return {key: tensor - start[key] for key, tensor in network.items()}
