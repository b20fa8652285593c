"""Networks as other people write them: what no client could train is refused before any work."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.data.layouts import Tokens, Vectors
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.model_checks import require_networks
from fedfisher_core.methods.configured import configure
from fedfisher_core.models.spec import Family, ModelSpec, model, models
from fedfisher_core.settings import MethodEntry, WireSettings
from flows import listings
from tests.tiny import TINY, tiny_settings

NAME = "foreign"
SPEC = ModelSpec(NAME, TINY.inputs, TINY.classes)
WORDS = ModelSpec(NAME, Tokens(5, 12), classes=3)


@pytest.fixture
def register() -> Iterator[Callable[[Family], None]]:
    """Have a family stand for `NAME` as long as a test runs."""
    yield lambda family: models.replace(NAME, family)
    models.replace(NAME, Net)


@model(NAME)
class Net(nn.Module):
    """One linear layer whose outputs a test makes something of."""

    def __init__(self, spec: ModelSpec, after: Callable[[Tensor], Any] = lambda outputs: outputs) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)
        self.after = after

    def forward(self, inputs: Tensor) -> Any:
        return self.after(self.head(inputs.flatten(1)))


class Auxiliary(Net):
    """Two outputs in training and one in evaluation, as of networks with a second head."""

    def forward(self, inputs: Tensor) -> Any:
        outputs = super().forward(inputs)
        return (outputs, outputs) if self.training else outputs


class Overwriting(Net):
    """Clips the examples themselves."""

    def forward(self, inputs: Tensor) -> Any:
        return super().forward(inputs.clamp_(min=0))


class FirstWord(nn.Module):
    """A recurrent network that takes the examples of a batch for the words of a sentence."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 4)
        self.recurrent = nn.GRU(4, 4)
        self.head = nn.Linear(4, spec.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recurrent(self.embedding(tokens))[0][:, -1])


ALLOWED = r"allowed: a dense tensor of shape \(2, 3\) and type torch\.float32"
OUTPUTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a tuple": (lambda outputs: (outputs, outputs), f"gives a tuple for 2 examples of 3 classes; {ALLOWED}"),
    "a dict": (lambda outputs: {"logits": outputs}, f"gives a dict for 2 examples of 3 classes; {ALLOWED}"),
    "nothing": (lambda outputs: None, f"gives a NoneType for 2 examples of 3 classes; {ALLOWED}"),
    "too many": (lambda outputs: outputs.repeat(1, 5), rf"gives outputs of shape \(2, 15\) for 2 .*; {ALLOWED}"),
    "too few": (lambda outputs: outputs[:, :1], rf"gives outputs of shape \(2, 1\) for 2 .*; {ALLOWED}"),
    "one number each": (lambda outputs: outputs[:, 0], rf"gives outputs of shape \(2,\) for 2 .*; {ALLOWED}"),
    "maps": (lambda outputs: outputs[:, :, None, None], rf"gives outputs of shape \(2, 3, 1, 1\) for 2 .*; {ALLOWED}"),
    "transposed": (lambda outputs: outputs.T, rf"gives outputs of shape \(3, 2\) for 2 .*; {ALLOWED}"),
    "mean of the batch": (lambda outputs: outputs.mean(0), rf"gives outputs of shape \(3,\) for 2 .*; {ALLOWED}"),
    "squeezed": (torch.squeeze, r"gives outputs of shape \(3,\) for 1 example of 3 .*shape \(1, 3\)"),
    "whole numbers": (Tensor.long, f"gives outputs of type torch.int64, torch.strided, on cpu for 2 .*; {ALLOWED}"),
    "half precision": (Tensor.half, "gives outputs of type torch.float16"),
    "double precision": (Tensor.double, "gives outputs of type torch.float64"),
    "complex": (lambda outputs: outputs + 0j, "gives outputs of type torch.complex64"),
    "sparse": (Tensor.to_sparse, "gives outputs of type torch.float32, torch.sparse_coo"),
    "elsewhere": (lambda outputs: outputs.to("meta"), "gives outputs of type torch.float32, torch.strided, on meta"),
    "of its batch": (lambda outputs: outputs - outputs.mean(0), "depend on chance or on the other examples"),
    "over the batch": (lambda outputs: outputs.softmax(0), "depend on chance or on the other examples"),
    "by chance": (functional.dropout, "depend on chance or on the other examples"),
    "without gradient": (Tensor.detach, "depend on none of its weights, or without a gradient"),
    "of a fixed batch": (
        lambda outputs: outputs.view(64, -1),
        "can't compute outputs for 2 examples of 3 classes, 1 x 6 x 6 each: RuntimeError: shape",
    ),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_outputs_that_are_no_row_an_example_are_refused(register: Callable[[Family], None], what: str) -> None:
    after, message = OUTPUTS[what]
    register(lambda spec: Net(spec, after))
    state = torch.get_rng_state()
    with pytest.raises(InputError, match=f"^model 'foreign' (in evaluation )?(has outputs .*)?{message}") as caught:
        require_networks([SPEC])
    assert "\n" not in str(caught.value)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Auxiliary, f"^model 'foreign' gives a tuple for 2 examples of 3 classes; {ALLOWED}"),
        (Overwriting, "^model 'foreign' changes the examples that it is given; allowed: to copy them first"),
        (lambda spec: nn.Flatten(), r"gives outputs of shape \(2, 36\)"),
    ],
)
def test_networks_that_are_right_in_evaluation_alone_are_refused(
    register: Callable[[Family], None], family: Family, message: str
) -> None:
    register(family)
    with pytest.raises(InputError, match=message):
        require_networks([SPEC])


def test_a_network_that_takes_a_batch_for_a_sentence_is_refused(register: Callable[[Family], None]) -> None:
    register(FirstWord)
    with pytest.raises(InputError, match=r"model 'foreign' in evaluation .* other examples of its batch"):
        require_networks([WORDS])
    register(models.get("gru"))
    require_networks([WORDS])


def test_a_network_that_leaves_a_frozen_part_and_draws_in_training_alone_is_taken(
    register: Callable[[Family], None],
) -> None:
    class Usual(Net):
        def forward(self, inputs: Tensor) -> Any:
            return functional.dropout(super().forward(inputs), 0.1, self.training)

    def usual(spec: ModelSpec) -> nn.Module:
        network = Usual(spec)
        network.head.bias.requires_grad_(False)
        return network

    register(usual)
    require_networks([SPEC])


def lazy(*layers: Callable[[ModelSpec], nn.Module]) -> Family:
    return lambda spec: nn.Sequential(*(layer(spec) for layer in layers))


def raising(error: BaseException) -> Family:
    def family(spec: ModelSpec) -> nn.Module:
        raise error

    return family


class Scaled(Net):
    """A network with a parameter of its own."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.scale = nn.Parameter(torch.ones(()))


class Remembering(Net):
    """A network with constants that its constructor makes, where there is no memory yet."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.head.shift = torch.ones(3)


BUILT: dict[str, tuple[Family, str]] = {
    "lazy linear": (
        lazy(lambda spec: nn.Flatten(), lambda spec: nn.LazyLinear(spec.classes)),
        "model 'foreign': layer '1' has type LazyLinear, whose shapes are unknown before it sees inputs; allowed: ",
    ),
    "lazy convolution": (
        lazy(lambda spec: nn.LazyConv2d(2, 3), lambda spec: nn.Flatten(), lambda spec: nn.LazyLinear(3)),
        "model 'foreign': layer '0' has type LazyConv2d",
    ),
    "lazy normalisation": (
        lazy(lambda spec: nn.LazyBatchNorm2d(affine=False), lambda spec: nn.Flatten(), lambda spec: nn.Linear(36, 3)),
        "model 'foreign': layer '0' has type LazyBatchNorm2d",
    ),
    "a lazy layer alone": (lambda spec: nn.LazyLinear(3), "model 'foreign': the network itself holds 'weight', 'bias'"),
    "a mistake": (
        raising(TypeError("first\nsecond")),
        "model 'foreign' can't be built for 1 x 6 x 6: TypeError: first",
    ),
    "a wish": (raising(InputError("larger images")), "model 'foreign' can't be built for 1 x 6 x 6: larger images"),
    "an exit": (raising(SystemExit(3)), "model 'foreign' can't be built for 1 x 6 x 6: SystemExit: 3"),
    "nothing": (lambda spec: None, "model 'foreign' builds a NoneType; allowed: a torch.nn.Module"),
    "a class": (lambda spec: nn.Flatten, "model 'foreign' builds a type; allowed: a torch.nn.Module"),
}


@pytest.mark.parametrize("method", ["fedavg", "fedfisher_kfac"])
@pytest.mark.parametrize("what", BUILT)
def test_what_cannot_be_built_is_refused_for_every_method(
    workplace: Path, register: Callable[[Family], None], what: str, method: str
) -> None:
    family, message = BUILT[what]
    register(family)
    with pytest.raises(InputError) as caught:
        check_federations(tiny_settings(workplace, model={"name": NAME}, methods=[method]))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert list(workplace.iterdir()) == []


@pytest.mark.drawn(4)
@pytest.mark.parametrize("what", BUILT)
def test_what_cannot_be_built_leaves_the_list_of_networks_to_the_others(
    register: Callable[[Family], None], what: str
) -> None:
    register(BUILT[what][0])
    listed = {entry["name"]: entry for entry in listings.models()}
    assert listed["lenet"]["sizes"]["1 x 28 x 28"] == "44,190 parameters"
    assert all(size.startswith("refused: model 'foreign'") for size in listed[NAME]["sizes"].values())


@pytest.mark.parametrize("method", ["fedavg", "fedfisher_kfac", "regmean"])
def test_outputs_are_looked_at_before_any_work_whatever_the_method(
    workplace: Path, register: Callable[[Family], None], method: str
) -> None:
    register(lambda spec: Net(spec, lambda outputs: (outputs, None)))
    with pytest.raises(InputError, match="model 'foreign' gives a tuple"):
        check_federations(tiny_settings(workplace, model={"name": NAME}, methods=[method]))
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Scaled, "model 'foreign': the network itself holds 'scale' and has type Scaled; initial weights can be drawn"),
        (Remembering, r"model 'foreign': 'head\.shift' is or holds a tensor that no client sends"),
    ],
)
def test_what_is_no_layers_parameter_is_named(register: Callable[[Family], None], family: Family, message: str) -> None:
    register(family)
    with pytest.raises(InputError, match=message):
        require_networks([SPEC])


@pytest.mark.parametrize("method", ["regmean", "fedcgs", "fedfisher_diag"])
def test_a_network_that_is_one_layer_is_called_so(register: Callable[[Family], None], method: str) -> None:
    register(lambda spec: nn.Linear(spec.inputs.size, spec.classes))
    spec = ModelSpec(NAME, Vectors(6), classes=3)
    require_networks([spec])
    assert configure("fedavg", MethodEntry(), [spec], WireSettings(), {})
    with pytest.raises(InputError, match=f"method {method!r} can't serve model 'foreign': .*(itself)") as caught:
        configure(method, MethodEntry(), [spec], WireSettings(), {})
    assert "''" not in str(caught.value)
