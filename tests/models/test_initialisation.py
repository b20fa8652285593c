import hashlib

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Images, Vectors
from fedfisher_core.engine.errors import UnsupportedLayerError
from fedfisher_core.models.spec import ModelSpec, model
from tests import arranged, tiny

BAG = ModelSpec("bag", arranged.SEQUENCES, classes=3)


def test_initial_weights_are_those_that_torch_draws() -> None:
    spec = ModelSpec("mlp", Images(1, 28, 28), classes=10)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        layers = [nn.Linear(a, b, bias=False) for a, b in ((784, 400), (400, 200), (200, 100), (100, 10))]
    drawn = spec.initialise(torch.Generator().manual_seed(11))
    assert list(drawn) == ["fc1.weight", "fc2.weight", "fc3.weight", "fc4.weight"]
    for layer, weight in zip(layers, drawn.values(), strict=True):
        assert torch.equal(layer.weight.detach(), weight)


def test_biases_of_convolutions_are_drawn_as_torch_does() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        layers: list[nn.Conv2d | nn.Linear] = [nn.Conv2d(1, 2, 3), nn.Linear(18, 5), nn.Linear(5, 3)]
    drawn = list(tiny.TINY_WITH_BIAS.initialise(torch.Generator().manual_seed(11)).values())
    expected = [tensor for layer in layers for tensor in (layer.weight.detach(), layer.bias.detach())]
    assert all(torch.equal(one, other) for one, other in zip(drawn, expected, strict=True))


def test_initial_weights_depend_on_their_generator_alone() -> None:
    torch.manual_seed(1)
    first = tiny.initial(seed=3)
    torch.manual_seed(2)
    again, other = tiny.initial(seed=3), tiny.initial(seed=4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


@model("bent")
class Bent(nn.Module):
    """A network with parameters whose initial values torch does not draw."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.bend = nn.PReLU()
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.bend(inputs).flatten(1))


@model("normed")
class Normed(nn.Module):
    """A network that normalises its inputs by groups."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, spec.inputs.channels)
        self.head = nn.Linear(spec.inputs.size, spec.classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(inputs).flatten(1))


def test_a_group_normalisation_begins_without_changing_what_it_normalises() -> None:
    parameters = ModelSpec("normed", Images(2, 6, 6), classes=3).initialise(torch.Generator())
    assert torch.equal(parameters["norm.weight"], torch.ones(2))
    assert torch.equal(parameters["norm.bias"], torch.zeros(2))


def test_a_layer_that_cannot_be_initialised_is_refused() -> None:
    with pytest.raises(UnsupportedLayerError, match="model 'bent': layer 'bend' has type PReLU; initial weights"):
        ModelSpec("bent", Images(1, 6, 6), classes=3).initialise(torch.Generator())


@model("batched")
class Batched(nn.Module):
    """Draws its own weights, and normalises over each batch without parameters and without keeping anything."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head = nn.Linear(spec.inputs.size, spec.classes)
        self.norm = nn.BatchNorm1d(spec.classes, affine=False, track_running_stats=False)

    def initialise(self, generator: torch.Generator) -> None:
        self.head.weight.normal_(generator=generator)
        self.head.bias.normal_(generator=generator)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.norm(self.head(inputs.flatten(1)))


@pytest.mark.parametrize(("name", "layer"), [("normalised", "BatchNorm2d"), ("batched", "BatchNorm1d")])
def test_batch_normalisation_is_refused_and_another_is_named(name: str, layer: str) -> None:
    with pytest.raises(
        UnsupportedLayerError,
        match=f"model '{name}': layer 'norm' has type {layer}, .*; allowed: GroupNorm or LayerNorm in its place, or ",
    ):
        ModelSpec(name, Images(1, 6, 6), classes=3).initialise(torch.Generator())


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        (ModelSpec("lenet", Images(1, 28, 28), classes=10, bias=True), "fb8a7b2f42413cf4"),
        (ModelSpec("resnet18", Images(3, 8, 8), classes=4, bias=True), "a84d83b014ce7f27"),
        (ModelSpec("mlp", Images(1, 28, 28), classes=10), "e95e6d1d119d1ccb"),
        (tiny.TINY_WITH_BIAS, "92929baa174ba674"),
    ],
    ids=lambda value: value.name if isinstance(value, ModelSpec) else "",
)
def test_initial_weights_are_what_they_always_were(spec: ModelSpec, digest: str) -> None:
    content = hashlib.sha256()
    for tensor in tiny.initial(spec, seed=3).values():
        content.update(tensor.numpy().tobytes())
    assert content.hexdigest()[:16] == digest


def test_a_network_may_draw_all_of_its_weights() -> None:
    drawn = tiny.initial(BAG, seed=5)
    generator = torch.Generator().manual_seed(5)
    for name, tensor in drawn.items():
        assert torch.equal(tensor, torch.empty_like(tensor).normal_(generator=generator)), name
        assert not tensor.requires_grad
    assert list(drawn) == ["embedding.weight", "head.weight"]


class Scale(nn.Module):
    """One factor a number."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.empty(size))
        self.inner = nn.Linear(size, size)

    def initialise(self, generator: torch.Generator) -> None:
        self.factors.uniform_(2, 3, generator=generator)
        self.inner.weight.zero_()
        self.inner.bias.fill_(7)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.inner(self.factors * inputs)


@model("scaled")
class Scaled(nn.Module):
    """A layer that draws its own weights between two that do not."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.first = nn.Linear(spec.inputs.size, 4)
        self.scale = Scale(4)
        self.last = nn.Linear(4, spec.classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.scale(self.first(inputs)))


def test_a_layer_may_draw_its_own_weights() -> None:
    drawn = ModelSpec("scaled", Vectors(3), classes=2).initialise(torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)

    def uniform(*shape: int, bound: float) -> Tensor:
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    assert torch.allclose(drawn["first.weight"], uniform(4, 3, bound=3**-0.5))
    assert torch.allclose(drawn["first.bias"], uniform(4, bound=3**-0.5))
    assert torch.equal(drawn["scale.factors"], torch.empty(4).uniform_(2, 3, generator=generator))
    assert (drawn["scale.inner.weight"] == 0).all()
    assert (drawn["scale.inner.bias"] == 7).all()
    assert torch.allclose(drawn["last.weight"], uniform(2, 4, bound=0.5))


@model("forgetful")
class Forgetful(Scaled):
    """A network whose initialisation leaves a weight out."""

    def initialise(self, generator: torch.Generator) -> None:
        self.first.weight.zero_()


@model("counting")
class Counting(Scaled):
    """A network with a number that is no parameter."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.register_buffer("seen", torch.zeros(()), persistent=False)


@model("tied")
class Tied(Scaled):
    """A network that uses one weight under two names."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.other = nn.Linear(self.first.in_features, 4)
        self.other.weight = self.first.weight


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("forgetful", "its initialisation leaves 'first.bias' not finite"),
        ("counting", "'seen' is a buffer, which no client sends; allowed: parameters only"),
        ("tied", "'other.weight' is shared; allowed: one name a parameter"),
    ],
)
def test_networks_that_are_not_their_weights_alone_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=f"model '{name}': {reason}"):
        ModelSpec(name, Vectors(3), classes=2).initialise(torch.Generator())
