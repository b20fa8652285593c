import dataclasses
from typing import Self

import pytest
import torch
from torch import Size, Tensor, nn

from fedfisher_core.client.local import Local, estimator_of
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.dense_fisher import DenseFisher
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.fisher_directions import FisherDirections
from fedfisher_core.client.statistics.further_modes import FurtherWeights
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.null_space import NullSpaceProjection, OfficialProjection, span_projection
from fedfisher_core.client.statistics.squared_gradients import SquaredGradients
from fedfisher_core.client.statistics.statistic import ServerView, Statistic, TensorStatistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import DivergedClientError, InputError, UnsupportedLayerError
from fedfisher_core.fisher.estimators import Truncated
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FisherSettings
from tests import arranged, tiny
from tests.client.statistics.clients import EXAMPLES, SPECS, by_any_spec, examples_of, local

STATISTICS: list[type[Statistic]] = [
    Weights,
    LabelCounts,
    Gram,
    SquaredGradients,
    DiagonalFisher,
    KFAC,
    DenseFisher,
    NullSpaceProjection,
    OfficialProjection,
    FisherDirections,
]
by_spec = pytest.mark.parametrize("spec", SPECS, ids=["tiny", "tiny with bias", "linear"])


def covariance(logits: Tensor) -> Tensor:
    """Covariance of the one-hot label that the network predicts, diag p - p p^T."""
    p = logits.softmax(0)
    return p.diag() - torch.outer(p, p)


def jacobian(network: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of one example and their derivatives, shape (classes, parameters)."""
    logits = network(inputs[None])[0]
    rows = []
    for logit in logits:
        gradients = torch.autograd.grad(logit, list(network.parameters()), retain_graph=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return logits.detach(), torch.stack(rows)


def dense_fisher(network: nn.Module, examples: Examples) -> Tensor:
    """Mean over examples of J^T (diag p - p p^T) J."""
    total = torch.zeros(())
    for inputs in examples.inputs:
        logits, rows = jacobian(network, inputs)
        total = total + rows.T @ covariance(logits) @ rows
    return total / len(examples)


@pytest.mark.drawn(10)
@by_spec
@pytest.mark.parametrize("cls", STATISTICS, ids=lambda cls: cls.name)
def test_the_announced_shapes_are_those_of_the_tensors(cls: type[Statistic], spec: ModelSpec) -> None:
    tensors = cls.compute(local(spec)).tensors
    assert list(cls.shapes(spec).items()) == [(name, tensor.shape) for name, tensor in tensors.items()]
    assert all(tensor.dtype == torch.float32 and not tensor.requires_grad for tensor in tensors.values())
    assert configure_statistics([cls], {})[0].wire_spec(spec).size == sum(tensor.numel() for tensor in tensors.values())


@by_any_spec
def test_gradients_of_batches_are_squared_and_added(spec: ModelSpec) -> None:
    examples = examples_of(spec)
    client = local(spec, examples=examples)
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(client.generator.initial_seed()))
    expected: dict[str, Tensor] = {}
    for start in range(0, len(examples), client.batch_size):
        batch = order[start : start + client.batch_size]
        client.network.zero_grad()
        logs = client.network(examples.inputs[batch]).log_softmax(1)
        (-logs[torch.arange(len(batch)), examples.labels[batch]].mean()).backward()
        for name, parameter in client.network.named_parameters():
            assert parameter.grad is not None
            expected[name] = expected.get(name, torch.zeros(())) + parameter.grad**2
    found = SquaredGradients.compute(client).tensors
    assert all(torch.allclose(found[name], one, rtol=1e-4, atol=1e-9) for name, one in expected.items())


def test_the_batches_do_not_depend_on_what_was_drawn_before() -> None:
    first, second = local(tiny.TINY), local(tiny.TINY)
    torch.rand(7, generator=second.generator)
    one, other = (SquaredGradients.compute(client).tensors for client in (first, second))
    assert all(torch.equal(one[name], other[name]) for name in one)


@by_spec
def test_weights_are_copies_of_the_parameters(spec: ModelSpec) -> None:
    client = local(spec)
    weights = Weights.compute(client).tensors
    for name, parameter in client.network.named_parameters():
        assert torch.equal(weights[name], parameter)
        assert weights[name].data_ptr() != parameter.data_ptr()


def test_labels_are_counted() -> None:
    examples = Examples(inputs=EXAMPLES.inputs[:5], labels=torch.tensor([0, 1, 1, 0, 1]))
    assert LabelCounts.compute(local(tiny.TINY, examples=examples)).tensors["counts"].tolist() == [2, 3, 0]


@by_spec
@pytest.mark.parametrize("backend", ["native", "nngeometry"])
def test_the_diagonal_is_that_of_the_dense_fisher(spec: ModelSpec, backend: str) -> None:
    client = local(spec, backend=backend)
    expected = dense_fisher(client.network, EXAMPLES).diagonal()
    diagonal = torch.cat([tensor.flatten() for tensor in DiagonalFisher.compute(client).tensors.values()])
    assert expected.max() > 1e-3
    assert (diagonal >= 0).all()
    assert torch.allclose(diagonal, expected, rtol=1e-4, atol=1e-4 * float(expected.max()))


def layer_inputs_and_jacobian(network: nn.Module, layer: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What enters a layer at each position, and the derivatives of the logits by what leaves it.

    Returns shapes (positions, inputs), (classes, positions, outputs) and (classes,).
    """
    entered: list[Tensor] = []
    left: list[Tensor] = []

    def keep(_: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        entered.append(given[0].detach())
        left.append(made)

    handle = layer.register_forward_hook(keep)
    logits = network(inputs[None])[0]
    handle.remove()
    rows = torch.stack([torch.autograd.grad(logit, left[0], retain_graph=True)[0][0] for logit in logits])
    if isinstance(layer, nn.Conv2d):
        given = nn.functional.unfold(
            entered[0],
            layer.kernel_size,
            padding=layer.padding,
            stride=layer.stride,  # type: ignore[arg-type]
        )[0].T
        rows = rows.flatten(2).transpose(1, 2)
    else:
        given, rows = entered[0], rows[:, None, :]
    if layer.bias is not None:  # type: ignore[union-attr]
        given = torch.cat([given, torch.ones(len(given), 1)], dim=1)
    return given, rows, logits.detach()


@by_spec
@pytest.mark.parametrize("backend", ["native", "nngeometry"])
def test_kronecker_factors_are_second_moments(spec: ModelSpec, backend: str) -> None:
    client = local(spec, backend=backend)
    blocks = KFAC.compute(client).factors
    layers = {name: layer for name, layer in client.network.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)}
    assert list(blocks) == list(layers)
    for name, layer in layers.items():
        inputs = torch.zeros(())
        outputs = torch.zeros(())
        for image in EXAMPLES.inputs:
            given, rows, logits = layer_inputs_and_jacobian(client.network, layer, image)
            inputs = inputs + given.T @ given
            spread = covariance(logits)
            by_position = [rows[:, s].T @ spread @ rows[:, s] for s in range(rows.shape[1])]
            outputs = outputs + sum(by_position[1:], by_position[0]) / len(by_position)
        # A sums over positions and G averages over them (Grosse and Martens 2016); how the scale is shared is free.
        expected = torch.kron(outputs / len(EXAMPLES), inputs / len(EXAMPLES))
        product = torch.kron(blocks[name].outputs, blocks[name].inputs)
        assert expected.abs().max() > 1e-3
        assert torch.allclose(product, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())), name


@pytest.mark.parametrize("bias", [False, True])
def test_kronecker_factors_of_one_example_are_the_fisher_itself(bias: bool) -> None:
    spec = ModelSpec("linear", Images(1, tiny.SIZE, tiny.SIZE), classes=tiny.CLASSES, bias=bias)
    one = Examples(inputs=EXAMPLES.inputs[:1], labels=EXAMPLES.labels[:1])
    client = local(spec, examples=one)
    block = KFAC.compute(client).factors["head"]
    weights = spec.inputs.height**2
    # The dense Fisher lists the weight row by row, then the bias; the block lists each row with its bias.
    order = [c * weights + i if i < weights else 3 * weights + c for c in range(3) for i in range(weights + bias)]
    dense = dense_fisher(client.network, one)[order][:, order]
    assert torch.allclose(torch.kron(block.outputs, block.inputs), dense, rtol=1e-4, atol=1e-5)


@by_spec
def test_the_dense_fisher_is_the_mean_of_outer_products(spec: ModelSpec) -> None:
    client = local(spec)
    expected = dense_fisher(client.network, EXAMPLES)
    matrix = DenseFisher.compute(client).tensors["matrix"]
    assert torch.allclose(matrix, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_the_empirical_fisher_is_that_of_the_true_labels() -> None:
    client = local(tiny.TINY, estimator="empirical")
    parameters = list(client.network.parameters())
    total = torch.zeros(())
    for inputs, label in zip(EXAMPLES.inputs, EXAMPLES.labels, strict=True):
        loss = nn.functional.cross_entropy(client.network(inputs[None]), label[None])
        total = total + torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]) ** 2
    diagonal = torch.cat([tensor.flatten() for tensor in DiagonalFisher.compute(client).tensors.values()])
    assert torch.allclose(diagonal, total / len(EXAMPLES), rtol=1e-4, atol=1e-6)


def test_monte_carlo_comes_near_the_exact_fisher() -> None:
    exact = DiagonalFisher.compute(local(tiny.LINEAR)).tensors["head.weight"]
    sampled = DiagonalFisher.compute(local(tiny.LINEAR, estimator="monte_carlo", samples=2000)).tensors["head.weight"]
    assert 0 < float((sampled - exact).norm() / exact.norm()) < 0.05


def test_a_full_fisher_of_a_large_network_is_refused_with_its_size() -> None:
    with pytest.raises(InputError, match=r"a full Fisher of 44,190 parameters; allowed: up to 8,192"):
        DenseFisher.shapes(ModelSpec("lenet", Images(1, 28, 28), classes=10))


@pytest.mark.parametrize("cls", [DiagonalFisher, KFAC], ids=lambda cls: cls.name)
def test_fishers_of_a_certain_network_are_finite(cls: type[Statistic]) -> None:
    parameters = {name: 3000 * tensor for name, tensor in tiny.initial(tiny.LINEAR).items()}
    client = tiny.local(tiny.LINEAR.load(parameters), EXAMPLES)
    assert client.network(EXAMPLES.inputs).softmax(1).max(1).values.min() == 1
    cls.compute(client).require_finite()


@pytest.mark.parametrize("cls", [DiagonalFisher, KFAC, DenseFisher], ids=lambda cls: cls.name)
def test_fishers_refuse_a_layer_by_its_name(cls: type[Statistic]) -> None:
    spec = ModelSpec("normalised", Images(1, tiny.SIZE, tiny.SIZE), classes=tiny.CLASSES)
    with pytest.raises(UnsupportedLayerError, match="layer 'norm' has type BatchNorm2d"):
        cls.shapes(spec)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_does_not_leave_the_client(value: float) -> None:
    tensors = Weights.compute(local(tiny.TINY)).tensors
    Weights(tensors).require_finite()
    tensors["hidden.weight"][1, 2] = value
    with pytest.raises(DivergedClientError, match=r"statistic 'weights': tensor 'hidden\.weight' is not finite"):
        Weights(tensors).require_finite()


def test_a_statistic_that_does_not_say_what_it_is_is_refused() -> None:
    with pytest.raises(InputError, match="statistic 'Shapeless' lacks the class variable 'structure'"):

        class Shapeless(TensorStatistic):
            name = "shapeless"
            server_view = ServerView.SUM

            @classmethod
            def compute(cls, local: Local) -> Self:
                return cls({})

            @classmethod
            def shapes(cls, spec: ModelSpec) -> dict[str, Size]:
                return {}


def test_projections_of_layers_that_see_sequences_have_a_row_for_every_place() -> None:
    spec = ModelSpec("places", arranged.NUMBERS, classes=3)
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    client = local(spec, examples=Examples(inputs=rows, labels=torch.zeros(30, dtype=torch.int64)))
    halves = torch.cat([rows[:, :3], rows[:, 3:]]).double()
    found = NullSpaceProjection.compute(client).tensors["each"]
    assert torch.allclose(found.double(), span_projection(halves.T @ halves / 60), atol=1e-5)


def test_the_fisher_of_a_network_on_tokens_is_that_of_their_one_hot_vectors() -> None:
    spec = ModelSpec("one_hot", arranged.SEQUENCES, classes=3)
    sequences = spec.inputs.drawn(9, torch.Generator().manual_seed(0))
    client = local(spec, examples=Examples(inputs=sequences, labels=torch.zeros(9, dtype=torch.int64)))
    vectors = nn.functional.one_hot(sequences, spec.inputs.vocabulary).flatten(1).float()
    plain = nn.Linear(vectors.shape[1], 3, bias=False)
    plain.weight = client.network.head.weight
    expected = dense_fisher(plain, Examples(inputs=vectors, labels=client.examples.labels))
    assert torch.allclose(DenseFisher.compute(client).tensors["matrix"], expected, rtol=1e-4, atol=1e-5)


def test_an_estimator_must_be_chosen_before_it_is_made() -> None:
    with pytest.raises(InputError, match=r"fisher\.estimator='auto': a pass needs settings that say its estimator"):
        estimator_of(FisherSettings())
    assert estimator_of(FisherSettings(estimator="truncated", tolerance=0.5)) == Truncated(0.5, 16)


def test_further_networks_are_for_statistics_that_say_so() -> None:
    local = tiny.local(tiny.TINY.load(tiny.initial()), tiny.examples(8))
    with pytest.raises(RuntimeError, match="does not declare trains_again = True"):
        FurtherWeights.compute(local)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (FisherSettings(estimator="exact"), "fisher.memory_mib=None with estimator='exact': .*; allowed: a number, or"),
        (
            FisherSettings(memory_mib=1),
            "fisher.estimator='auto': .*; allowed: exact, truncated, monte_carlo",
        ),
    ],
)
def test_settings_that_leave_something_to_choose_are_refused(settings: FisherSettings, message: str) -> None:
    client = tiny.local(tiny.TINY.load(tiny.initial()), tiny.examples(4))
    with pytest.raises(InputError, match=message):
        _ = dataclasses.replace(client, settings=settings).fisher
