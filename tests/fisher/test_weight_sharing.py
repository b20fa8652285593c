"""K-FAC of layers at several positions: against its definition, and where it is the whole Fisher."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.weight_sharing import WeightSharing

from .reference import SEQUENCES, Sequences, TinyEncoder, dense_fisher, flat, make, pad, relative_error

KFAC = {Approximation.KFAC}


def seen_and_slopes(model: nn.Module, inputs: Tensor) -> Iterator[tuple[str, nn.Module, Tensor, Tensor]]:
    """By layer, the inputs of one example at each position, and the gradients of each class there.

    Gradients are those of log p_c times the root of p_c, shape (classes, positions, outputs).
    """
    record: dict[str, tuple[nn.Module, Tensor, Tensor]] = {}

    def see(name: str):
        return lambda layer, arguments, output: record.update({name: (layer, arguments[0], output)})

    layers = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear | nn.Embedding | nn.Conv2d)}
    hooks = [layer.register_forward_hook(see(name)) for name, layer in layers.items()]
    logs = model(inputs).log_softmax(1)[0]
    for hook in hooks:
        hook.remove()
    for name, (layer, x, z) in record.items():
        slopes = [torch.autograd.grad(log, z, retain_graph=True)[0] * log.exp().sqrt().detach() for log in logs]
        if isinstance(layer, nn.Conv2d):
            x = nn.functional.unfold(x, layer.kernel_size, stride=layer.stride).mT
            slopes = [one.flatten(2).mT for one in slopes]
        if isinstance(layer, nn.Embedding):
            x = nn.functional.one_hot(x, layer.num_embeddings).to(z)
        elif layer.bias is not None:
            x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
        rows = x.detach().reshape(-1, x.shape[-1])
        yield name, layer, rows, torch.stack([one.reshape(len(rows), -1) for one in slopes]).detach()


def by_definition(model: nn.Module, inputs: Tensor, sharing: WeightSharing) -> dict[str, Kronecker]:
    """Both factors of each layer, one example, position and class at a time."""
    sums: dict[str, list] = {}
    for example in inputs:
        for name, layer, rows, slopes in seen_and_slopes(model, example[None]):
            if len(rows) == len(example) and isinstance(model, TinyEncoder):
                rows, slopes = rows[example != 0], slopes[:, example != 0]
            if sharing is WeightSharing.REDUCE and not isinstance(layer, nn.Embedding):
                rows, slopes = rows.mean(0, keepdim=True), slopes.sum(1, keepdim=True)
            moment = sum(torch.outer(row, row) for row in rows)
            of_slopes = sum(torch.outer(slope, slope) for each in slopes for slope in each)
            found = sums.setdefault(name, [0, 0, 0])
            found[0], found[1], found[2] = found[0] + moment, found[1] + len(rows), found[2] + of_slopes
    return {name: Kronecker(a / count, g / len(inputs)) for name, (a, count, g) in sums.items()}


@pytest.mark.parametrize("sharing", list(WeightSharing))
@pytest.mark.parametrize("network", list(SEQUENCES))
def test_factors_follow_their_definition(network: str, sharing: WeightSharing) -> None:
    model, inputs = make(network, examples=7)
    found = compute_fisher(model, inputs, approximations=KFAC, weight_sharing=sharing).kfac
    expected = by_definition(model, inputs, sharing)
    for name, block in expected.items():
        inputs_factor = found[name].inputs
        if isinstance(model.get_submodule(name), nn.Embedding):
            assert inputs_factor.ndim == 1
            inputs_factor = inputs_factor.diag()
        # How the scale is divided over the factors is free.
        assert (
            relative_error(torch.kron(inputs_factor, found[name].outputs), torch.kron(block.inputs, block.outputs))
            < 1e-12
        )


def test_parameters_that_no_layer_holds_have_their_diagonal() -> None:
    model, inputs = make("images, bias", examples=5)
    fisher = compute_fisher(model, inputs)
    expected = dict(zip(dict(model.named_parameters()), split_diagonal(model, inputs), strict=True))
    for name in ("token", "places", "gain"):
        block = fisher.kfac[name]
        assert relative_error(block.product(torch.ones(1, len(block.inputs)).double())[0], expected[name]) < 1e-12
        assert relative_error(fisher.diagonal[name].flatten(), expected[name]) < 1e-12


def split_diagonal(model: nn.Module, inputs: Tensor) -> tuple[Tensor, ...]:
    return dense_fisher(model, inputs).diagonal().split([one.numel() for one in model.parameters()])


def of_squared_loss(outputs: Tensor) -> Tensor:
    """Outputs of a classifier whose Fisher is J^T J divided by its classes, where J is the Jacobian of what is given.

    All of its probabilities are equal, so H is the projection on what sums to 0, divided by the classes. The outputs
    are coordinates in an orthonormal basis of this space, which has one dimension less than there are classes.
    """
    classes = outputs.shape[1] + 1
    basis = torch.linalg.eigh(torch.ones(classes, classes).to(outputs)).eigenvectors[:, :-1]
    return (outputs - outputs.detach()) @ basis.T


class DeepLinear(nn.Module):
    """Linear layers at each position, and what is made of the positions that count."""

    def __init__(self, form: str, bias: bool) -> None:
        super().__init__()
        self.form = form
        self.tokens = nn.Embedding(Sequences.tokens, 3, padding_idx=0).requires_grad_(False)
        self.first, self.second = nn.Linear(3, 4, bias=bias), nn.Linear(4, 2, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        counted = (inputs != 0)[:, :, None]
        outputs = self.second(self.first(self.tokens(inputs))) * counted
        return of_squared_loss(outputs.flatten(1) if self.form == "sum of losses" else outputs.sum(1) / counted.sum(1))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("form", "exact"), [("sum of losses", WeightSharing.EXPAND), ("mean of outputs", WeightSharing.REDUCE)]
)
def test_each_form_is_exact_for_deep_linear_networks_of_its_own_loss_alone(
    form: str, exact: WeightSharing, bias: bool, padded: bool
) -> None:
    torch.manual_seed(0)
    model = DeepLinear(form, bias).double()
    tokens = torch.randint(1, Sequences.tokens, (8, Sequences.length))
    errors = errors_of_blocks(model, pad(tokens) if padded else tokens, bias)
    assert errors.pop(exact) < 1e-12
    assert min(errors.values()) > 1e-2


def errors_of_blocks(model: nn.Module, inputs: Tensor, bias: bool) -> dict[WeightSharing, float]:
    """The largest relative error of a linear layer's block, by the form of K-FAC."""
    model.requires_grad_(True)
    dense = dense_fisher(model, inputs)
    indices = torch.arange(len(dense)).split([one.numel() for one in model.parameters()])
    positions = dict(zip(dict(model.named_parameters()), indices, strict=True))
    errors = {}
    for sharing in WeightSharing:
        factors = compute_fisher(model, inputs, approximations=KFAC, weight_sharing=sharing).kfac
        errors[sharing] = 0.0
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                index = positions[f"{name}.weight"].view(len(layer.weight), -1)
                index = torch.cat([index, positions[f"{name}.bias"][:, None]], dim=1) if bias else index
                index = index.T.flatten()
                block = torch.kron(factors[name].inputs, factors[name].outputs)
                errors[sharing] = max(errors[sharing], relative_error(block, dense[index][:, index]))
    return errors


class Pooled(nn.Module):
    """A convolution, whose windows are outputs or are averaged."""

    def __init__(self, pool: nn.Module, groups: int) -> None:
        super().__init__()
        self.maps, self.pool = nn.Conv2d(2, 4, (3, 2), groups=groups), pool

    def forward(self, inputs: Tensor) -> Tensor:
        return of_squared_loss(self.pool(self.maps(inputs)).flatten(1))


@pytest.mark.parametrize(
    ("pool", "exact"), [(nn.Identity(), WeightSharing.EXPAND), (nn.AdaptiveAvgPool2d(1), WeightSharing.REDUCE)]
)
def test_each_form_is_exact_for_convolutions_of_its_own_loss_alone(pool: nn.Module, exact: WeightSharing) -> None:
    torch.manual_seed(0)
    errors = errors_of_blocks(Pooled(pool, groups=1).double(), torch.randn(5, 2, 7, 6).double(), bias=True)
    assert errors.pop(exact) < 1e-12
    assert min(errors.values()) > 1e-2


def test_reduce_takes_the_groups_of_a_convolution_apart() -> None:
    torch.manual_seed(0)
    whole, inputs = Pooled(nn.AdaptiveAvgPool2d(1), groups=2).double(), torch.randn(5, 2, 7, 6).double()
    found = compute_fisher(whole, inputs, approximations=KFAC, weight_sharing=WeightSharing.REDUCE).kfac
    dense = dense_fisher(whole, inputs)
    # The second group: rows 2 and 3 of the weight, 6 columns each, and their biases.
    index = torch.cat([torch.arange(12, 24).view(2, 6), torch.tensor([[26], [27]])], dim=1).T.flatten()
    block = found["maps[2 of 2]"]
    assert relative_error(torch.kron(block.inputs, block.outputs), dense[index][:, index]) < 1e-12


@pytest.mark.parametrize("sharing", list(WeightSharing))
def test_more_padding_changes_nothing(sharing: WeightSharing) -> None:
    model, inputs = make("padded, bias", examples=7)
    longer = nn.functional.pad(inputs, (0, 5))
    one, other = (compute_fisher(model, each, weight_sharing=sharing) for each in (inputs, longer))
    assert relative_error(flat(other.diagonal), flat(one.diagonal)) < 1e-12
    for name, block in one.kfac.items():
        assert relative_error(other.kfac[name].inputs, block.inputs) < 1e-12
        assert relative_error(other.kfac[name].outputs, block.outputs) < 1e-12


@pytest.mark.parametrize("sharing", list(WeightSharing))
def test_an_example_of_padding_alone_adds_nothing_to_the_factors(sharing: WeightSharing) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 2), nn.Flatten(), nn.Linear(8, 2)).double()
    tokens = torch.cat([torch.randint(1, 5, (3, 4)), torch.zeros(3, 4, dtype=torch.long)])
    whole = compute_fisher(model, tokens, approximations=KFAC, weight_sharing=sharing).kfac["1"]
    half = compute_fisher(model, tokens[:3], approximations=KFAC, weight_sharing=sharing).kfac["1"]
    assert relative_error(torch.kron(whole.inputs, whole.outputs), torch.kron(half.inputs, half.outputs) / 2) < 1e-12


@pytest.mark.parametrize("sharing", list(WeightSharing))
def test_curvlinops_agrees(sharing: WeightSharing) -> None:
    curvlinops = pytest.importorskip("curvlinops", reason="curvlinops is not installed")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 3, bias=False), Mean()).double()
    inputs, labels = torch.randn(6, 7, 4).double(), torch.randint(3, (6,))
    parameters = [one for one in model.parameters() if one.ndim > 1]
    theirs = curvlinops.KFACLinearOperator(
        model, nn.CrossEntropyLoss(), parameters, [(inputs, labels)], fisher_type="type-2", kfac_approx=sharing.value
    )
    ours = compute_fisher(model, inputs, approximations=KFAC, weight_sharing=sharing).kfac
    vectors = [torch.randn_like(one) for one in parameters]
    found = theirs @ vectors
    for block, vector, product in zip(ours.values(), vectors, found, strict=True):
        assert relative_error(block.product(vector), product) < 1e-9


class Mean(nn.Module):
    """The mean over positions."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(1)
