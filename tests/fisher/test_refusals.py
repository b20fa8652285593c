"""What is refused, by which name, and that nothing is left behind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from fedfisher_core.engine.errors import DivergedClientError, InputError, UnsupportedLayerError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import evaluation_mode, trace
from fedfisher_core.fisher.engine import Backend, compute_fisher
from fedfisher_core.fisher.estimators import Empirical, MonteCarlo
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.fisher.single_pass import MAX_DENSE_PARAMETERS
from fedfisher_core.fisher.weight_sharing import WeightSharing

from .reference import flat, make, relative_error

IMAGES = torch.zeros(3, 2, 6, 6)
TOKENS = torch.zeros(3, 5, dtype=torch.long)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.first(self.first(inputs))


class Never(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.spare = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.first(inputs)


class Tied(nn.Module):
    """A head that is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.tokens(inputs).mean(1))


class FunctionalHead(nn.Module):
    """A head that multiplies by the weights of the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.relu(self.first(inputs)) @ self.first.weight


class CosineHead(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(functional.normalize(inputs), functional.normalize(self.weight))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.head = nn.Embedding(7, 2), nn.GRU(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.gru(self.embedding(inputs))[0][:, -1])


def shared() -> nn.Module:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(first, second)


LAYERS: dict[str, tuple[nn.Module, Tensor, str]] = {
    "batch normalisation": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten()),
        IMAGES,
        "layer '1' has type BatchNorm2d, .*; allowed: GroupNorm, LayerNorm or .*\\.BatchNorm in its place",
    ),
    "batch normalisation without parameters": (
        nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, affine=False, track_running_stats=False)),
        torch.zeros(3, 4),
        "layer '1' has type BatchNorm1d",
    ),
    "another layer": (
        nn.Sequential(nn.Linear(4, 4), nn.PReLU()),
        torch.zeros(3, 4),
        "layer '1' has type PReLU; Fisher blocks exist for Linear, Conv2d, Embedding, LayerNorm, RMSNorm, GroupNorm ",
    ),
    "recurrent": (
        Recurrent(),
        TOKENS,
        "layer 'gru' has type GRU; Fisher blocks exist for Linear, Conv2d, Embedding, L",
    ),
    "attention": (
        nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten()),
        torch.zeros(3, 5, 4),
        "layer '0.self_attn' has type MultiheadAttention, which hides what its projections see; allowed: attention ",
    ),
    "tied": (Tied(), TOKENS, "layers 'tokens' and 'head' share a parameter"),
    "a weight used outside its layer": (
        FunctionalHead(),
        torch.zeros(3, 4),
        "layer 'first': its weight is used outside the layer too; allowed: in the layer alone",
    ),
    "a forward of its own": (
        nn.Sequential(nn.Linear(4, 4), CosineHead(4, 2)),
        torch.zeros(3, 4),
        "layer '1' has type CosineHead, whose forward is not that of Linear; allowed: Linear as it is",
    ),
    "weights made of others": (
        nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2)),
        torch.zeros(3, 4),
        "layer '0' has type ParametrizedLinear, which makes its weights of others; allowed: layers that hold their",
    ),
    "weights made of others, without a bias": (
        nn.Sequential(weight_norm(nn.Linear(4, 4, bias=False)), nn.Linear(4, 2)),
        torch.zeros(3, 4),
        "layer '0' has type ParametrizedLinear, which makes its weights of others",
    ),
    "embedding with a norm": (
        nn.Sequential(nn.Embedding(7, 2, max_norm=1.0), nn.Flatten()),
        TOKENS,
        "layer '0' has type Embedding with max_norm=1.0; allowed: None",
    ),
    "embedding by frequency": (
        nn.Sequential(nn.Embedding(7, 2, scale_grad_by_freq=True), nn.Flatten()),
        TOKENS,
        "layer '0' has type Embedding with scale_grad_by_freq=True; allowed: False",
    ),
    "shared parameter": (shared(), torch.zeros(3, 4), "layers '0' and '1' share"),
    "used twice": (Twice(), torch.zeros(3, 4), "layer 'first' is used twice"),
    "used never": (Never(), torch.zeros(3, 4), "layer 'spare' is never called"),
    "bare layer": (nn.Linear(4, 2), torch.zeros(3, 4), "the model, a Linear"),
}


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize(("model", "inputs", "message"), LAYERS.values(), ids=LAYERS)
def test_layer_is_refused_by_name(model: nn.Module, inputs: Tensor, message: str, backend: Backend) -> None:
    with pytest.raises(UnsupportedLayerError, match=message):
        compute_fisher(model, inputs, backend=backend)


class Whole(nn.Module):
    """A layer that sees what it has no gradient of each example for."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs.reshape(self.shape)).reshape(len(inputs), -1)


@pytest.mark.parametrize(
    ("layer", "shape", "allowed"),
    [
        (nn.Linear(5, 4), (3, 2, 2, 1, 5), "2 or 3 or 4"),
        (nn.Linear(5, 4), (12, 5), "2 or 3 or 4"),
        (nn.LayerNorm(5), (3, 2, 2, 1, 5), "2 or 3 or 4"),
        (nn.LayerNorm((2, 5)), (6, 2, 5), "3 or 4 or 5"),
        (nn.RMSNorm((2, 5)), (3, 1, 2, 1, 2, 5), "3 or 4 or 5"),
        (nn.Embedding(4, 2), (3, 4, 5), "2"),
    ],
)
def test_inputs_without_a_gradient_of_each_example_are_refused(
    layer: nn.Module, shape: tuple[int, ...], allowed: str
) -> None:
    inputs = torch.zeros(3, 20, dtype=torch.long if isinstance(layer, nn.Embedding) else torch.float32)
    whole = Whole(layer, shape)
    with pytest.raises(UnsupportedLayerError, match=f"layer 'layer', .* for 3 examples; allowed: {allowed} dimensions"):
        fisher_of(whole, inputs)


def test_positions_that_are_not_the_same_for_each_example_are_refused() -> None:
    whole = Whole(nn.Embedding(4, 2), (60,))
    with pytest.raises(UnsupportedLayerError, match="layer 'layer', an Embedding, sees positions once for all"):
        fisher_of(whole, torch.zeros(3, 20, dtype=torch.long))


def fisher_of(model: nn.Module, inputs: Tensor) -> None:
    """Trace all of the examples at once; that of one alone has the same shape in another."""
    with evaluation_mode(model):
        trace(model, fisher_layers(model), inputs)


def test_recurrent_layers_have_no_fisher_in_any_form() -> None:
    for approximation in Approximation:
        with pytest.raises(UnsupportedLayerError, match="layer 'gru' has type GRU"):
            compute_fisher(Recurrent(), TOKENS, approximations={approximation})


class Prefixed(nn.Module):
    """Tokens with padding, after a position of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.mix, self.head = nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.tokens(inputs)
        return self.head(self.mix(torch.cat([torch.zeros_like(tokens[:, :1]), tokens], dim=1)).mean(1))


def test_kfac_refuses_padding_where_positions_are_not_tokens() -> None:
    with pytest.raises(UnsupportedLayerError, match="layer 'mix' sees 6 positions, but padding is known of 5 tokens"):
        compute_fisher(Prefixed(), TOKENS, approximations={Approximation.KFAC})
    assert compute_fisher(Prefixed(), TOKENS, approximations={Approximation.DIAGONAL}).diagonal


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "empirical without labels": ({"estimator": Empirical()}, "labels are missing"),
    "empirical with too few labels": (
        {"estimator": Empirical(), "labels": torch.zeros(2, dtype=torch.long)},
        r"labels have shape \(2,\).*allowed: integers of shape \(5,\)",
    ),
    "empirical with an unknown class": (
        {"estimator": Empirical(), "labels": torch.tensor([0, 1, 2, 3, 0])},
        "labels reach from 0 to 3; allowed: 0 to 2",
    ),
    "Monte-Carlo without a generator": ({"estimator": MonteCarlo(1)}, "generator is missing"),
    "nothing to compute": ({"approximations": set()}, "approximations is empty"),
    "nngeometry, Monte-Carlo": (
        {"backend": Backend.NNGEOMETRY, "estimator": MonteCarlo(1)},
        r"'nngeometry' with MonteCarlo.*; allowed: Exact\(\)",
    ),
    "nngeometry, reduce": (
        {"backend": Backend.NNGEOMETRY, "weight_sharing": WeightSharing.REDUCE},
        "'nngeometry' with .*'reduce'; allowed: .*'expand'",
    ),
    "nngeometry, dense": (
        {"backend": Backend.NNGEOMETRY, "approximations": {Approximation.DENSE}},
        "'nngeometry' .*'dense'",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_argument_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    model, inputs = make("linear, bias", examples=5)
    with pytest.raises(InputError, match=message):
        compute_fisher(model, inputs, **arguments)


def test_inputs_of_another_type_or_none_are_refused() -> None:
    model, inputs = make("linear, bias", examples=5)
    with pytest.raises(InputError, match=r"torch.float32; allowed: .*torch.float64"):
        compute_fisher(model, inputs.float())
    with pytest.raises(InputError, match=r"shape \(0, 4\)"):
        compute_fisher(model, inputs[:0])


def test_one_output_has_no_softmax() -> None:
    with pytest.raises(InputError, match="1 output"):
        compute_fisher(nn.Sequential(nn.Linear(4, 1)), torch.zeros(3, 4))


def test_outputs_that_are_not_a_row_an_example_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(1, 4, 4, 4\)"):
        compute_fisher(nn.Sequential(nn.Conv2d(2, 4, 3)), IMAGES)


def test_too_large_a_dense_fisher_is_refused() -> None:
    model = nn.Sequential(nn.Linear(100, 100))
    with pytest.raises(InputError, match=f"10100 parameters .* at most {MAX_DENSE_PARAMETERS}"):
        compute_fisher(model, torch.zeros(1, 100), approximations={Approximation.DENSE})


@pytest.mark.parametrize("options", [{"padding": "same"}, {"padding": 1, "padding_mode": "reflect"}])
def test_nngeometry_is_kept_from_paddings_that_it_does_not_know(options: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, **options), nn.Flatten())
    with pytest.raises(UnsupportedLayerError, match=r"layer '0' .*padding"):
        compute_fisher(model, IMAGES, backend=Backend.NNGEOMETRY)


def test_factors_of_normalisations_of_several_dimensions_are_refused() -> None:
    model = nn.Sequential(nn.LayerNorm((5, 4)), nn.Flatten())
    with pytest.raises(
        UnsupportedLayerError, match=r"layer '0' has type LayerNorm .*=\(5, 4\); .* for one dimension only"
    ):
        compute_fisher(model, torch.zeros(3, 5, 4), approximations={Approximation.KFAC})


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 4), nn.LayerNorm(4)])
def test_nngeometry_is_kept_from_normalisations(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Flatten())
    with pytest.raises(
        UnsupportedLayerError, match=f"layer '1' has type {type(norm).__name__}; .*exist for Linear and"
    ):
        compute_fisher(model, IMAGES, backend=Backend.NNGEOMETRY)


def test_nngeometry_is_kept_from_groups() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten())
    with pytest.raises(UnsupportedLayerError, match=r"layer '0' .*groups=2; .*'nngeometry' .*exist for groups=1 only"):
        compute_fisher(model, IMAGES, backend=Backend.NNGEOMETRY)


@pytest.mark.parametrize("approximation", list(Approximation))
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_network_is_named(value: float, approximation: Approximation) -> None:
    model, inputs = make("plain, bias", examples=4)
    with torch.no_grad():
        model[2].weight[0, 0, 0, 0] = value
    with pytest.raises(DivergedClientError, match=r"layer '0': the .* is not finite"):
        compute_fisher(model, inputs, approximations={approximation})


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("fails", [False, True])
def test_model_leaves_as_it_came(backend: Backend, fails: bool) -> None:
    model, inputs = make("padding, bias", examples=4)
    model.train()
    model[2].eval()
    model[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    if fails:
        with pytest.raises(RuntimeError):
            compute_fisher(model, inputs[:, :1], backend=backend)
    else:
        compute_fisher(model, inputs, backend=backend)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model[0].weight.requires_grad
    assert not inputs.requires_grad
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_frozen_parameters_and_in_place_functions_change_nothing() -> None:
    model, inputs = make("plain, bias", examples=4)
    expected = compute_fisher(model, inputs)
    model[3] = nn.ReLU(inplace=True)
    model.requires_grad_(False)
    found = compute_fisher(model, inputs)
    assert relative_error(flat(found.diagonal), flat(expected.diagonal)) < 1e-14
    with torch.no_grad():
        found = compute_fisher(model, inputs)
    assert relative_error(flat(found.diagonal), flat(expected.diagonal)) < 1e-14


def test_dropout_is_off() -> None:
    model, inputs = make("linear, bias", examples=4)
    expected = compute_fisher(model, inputs)
    model[1] = nn.Sequential(nn.Tanh(), nn.Dropout(0.5))
    found = compute_fisher(model.train(), inputs)
    assert relative_error(flat(found.diagonal), flat(expected.diagonal)) < 1e-14


class Detour(nn.Module):
    """A layer that runs, but whose outputs are not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.spare = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        self.spare(inputs)
        return self.first(inputs)


def test_layer_without_influence_has_a_fisher_of_zero() -> None:
    fisher = compute_fisher(Detour(), torch.randn(5, 4))
    assert (fisher.diagonal["spare.weight"] == 0).all()
    assert (fisher.diagonal["first.weight"] > 0).all()
    assert (fisher.kfac["spare"].outputs == 0).all()
