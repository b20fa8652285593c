"""The Fisher of generated images: that of clients, but with a gradient."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.estimators import categorical_root
from fedfisher_core.fisher.layers import to_matrix
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.attack.statistics import Moment, categorical_root_of, diagonal_of, kfac_of
from tests.tiny import TINY, TINY_WITH_BIAS

SPECS = [
    TINY,
    TINY_WITH_BIAS,
    *(
        ModelSpec(name, Images(channels, 16, 16), 4, bias, widths)
        for name, channels, widths in (
            ("mlp", 1, (7, 6, 5)),
            ("lenet", 3, (3, 4, 6, 5)),
            ("cnn", 1, (3, 4, 6, 5)),
            ("compact", 2, (3, 2)),
        )
        for bias in (False, True)
    ),
]
SATURATED = torch.tensor([[300.0, 0, -300, 5], [0, -200, 0, 200], [0, 0, 0, 500], [400, 400, 400, -400], [0, 0, 0, 0]])


def built(spec: ModelSpec) -> nn.Module:
    return spec.load(spec.initialise(torch.Generator().manual_seed(1))).eval()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def matrices(moment: Moment) -> Tensor:
    """Sum the outer products of all vectors of each set."""
    columns = moment.vectors.transpose(0, 1).transpose(1, 3).flatten(2)
    return moment.scale * torch.stack([one @ one.T for one in columns])


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())


def test_the_root_is_the_estimators() -> None:
    logits = torch.cat([3 * drawn(20, 4), SATURATED]).double()
    root = categorical_root_of(logits)
    torch.testing.assert_close(root, categorical_root(logits.softmax(1)), rtol=1e-9, atol=1e-15)
    probabilities = logits.softmax(1)
    hessian = probabilities.diag_embed() - probabilities[:, :, None] * probabilities[:, None, :]
    torch.testing.assert_close(torch.einsum("dni,dnj->nij", root, root), hessian)


def test_the_root_has_a_gradient_where_outputs_are_certain() -> None:
    logits = SATURATED.clone().requires_grad_()
    root = categorical_root_of(logits)
    (gradient,) = torch.autograd.grad((root * drawn(*root.shape)).sum(), logits)
    assert torch.isfinite(gradient).all()
    assert gradient[-1].abs().max() > 0


def test_the_gradient_of_the_root() -> None:
    logits = 2 * drawn(3, 4).double()
    assert torch.autograd.gradcheck(categorical_root_of, logits.requires_grad_())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.name}{'_bias' if spec.bias else ''}")
def test_each_set_has_the_fisher_of_clients(spec: ModelSpec) -> None:
    network, images = built(spec), drawn(3, 4, *spec.inputs.shape)
    factors, diagonal = kfac_of(network, images), diagonal_of(network, images)
    for index, one in enumerate(images):
        fisher = compute_fisher(network, one)
        assert fisher.kfac is not None
        assert fisher.diagonal is not None
        assert list(diagonal) == list(fisher.kfac)
        assert list(factors) == list(fisher.kfac)
        for layer, block in fisher.kfac.items():
            close(matrices(factors[layer].inputs)[index], block.inputs)
            close(matrices(factors[layer].outputs)[index], block.outputs)
            close(diagonal[layer][index], to_matrix(fisher.diagonal, layer))


@pytest.mark.parametrize("shape", [(2, 3, 4, 2, 9), (2, 3, 4, 9, 2), (1, 3, 1, 5, 5)])
def test_the_squared_distance_and_its_gradient(shape: tuple[int, ...]) -> None:
    vectors, target = drawn(*shape).double().requires_grad_(), drawn(shape[3], shape[3], seed=1).double()
    expected = (matrices(Moment(vectors, 0.3)) - target).square().sum((1, 2))
    torch.testing.assert_close(Moment(vectors, 0.3).squared_distance(target), expected)
    # Compression may leave a factor that is not symmetric.
    for one in (target, target + target.T):
        assert torch.autograd.gradcheck(lambda v, one=one: Moment(v, 0.3).squared_distance(one), vectors)


class Smooth(nn.Module):
    """A network whose own derivative depends on the images, as those of piecewise linear networks do not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, kernel_size=2, padding=1, stride=2)
        self.head = nn.Linear(18, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.conv(inputs).tanh().flatten(1))


def test_the_gradient_reaches_through_the_networks_own_derivative() -> None:
    torch.manual_seed(0)
    network, images = Smooth().double(), drawn(2, 1, 1, 4, 4).double().requires_grad_()

    def statistics(images: Tensor) -> tuple[Tensor, ...]:
        moments = [side for one in kfac_of(network, images).values() for side in (one.inputs, one.outputs)]
        return *map(matrices, moments), *diagonal_of(network, images).values()

    assert torch.autograd.gradcheck(statistics, images)


def test_no_graph_is_kept_where_none_is_asked_for() -> None:
    network, images = built(TINY), drawn(2, 3, 1, 6, 6)
    moments = kfac_of(network, images).values()
    assert not any(side.vectors.requires_grad for one in moments for side in (one.inputs, one.outputs))
    with torch.no_grad():
        diagonal = diagonal_of(network, images.requires_grad_())
    assert not any(tensor.requires_grad for tensor in diagonal.values())


def test_images_without_sets_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(3, 1, 6, 6\)"):
        kfac_of(built(TINY), drawn(3, 1, 6, 6))


class Repeated(nn.Module):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
        self.times = times

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(1)
        for _ in range(self.times):
            hidden = self.inner(hidden)
        return self.head(hidden)


@pytest.mark.parametrize(("times", "message"), [(0, "'inner' is never called"), (2, "'inner' is used twice")])
def test_layers_that_are_not_used_once_are_refused(times: int, message: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=message):
        kfac_of(Repeated(times), drawn(1, 2, 1, 2, 2))


def test_outputs_that_are_no_rows_are_refused() -> None:
    with pytest.raises(InputError, match="one row an image"):
        kfac_of(nn.Sequential(nn.Conv2d(1, 2, kernel_size=2)), drawn(1, 2, 1, 3, 3))
