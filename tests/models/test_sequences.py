"""The networks on sequences of tokens."""

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.sequences import HEADS
from fedfisher_core.models.spec import ModelSpec
from tests import tiny

CHARACTERS = Tokens(40, 65)
SHORT = Tokens(5, 7)
NAMES = ("gru", "transformer")


def spec_of(name: str, *, bias: bool = True, inputs: Tokens = SHORT) -> ModelSpec:
    return ModelSpec(name, inputs, classes=4, bias=bias, widths=(8, 6))


def network_of(spec: ModelSpec) -> nn.Module:
    """A network in double precision whose weights are all of size one."""
    generator = torch.Generator().manual_seed(2)
    return spec.load(
        {name: torch.randn(one.shape, generator=generator).double() for name, one in tiny.initial(spec).items()}
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Embedding, the three gates of both matrices, and the head.
        ("gru", 65 * 16 + 3 * 128 * (16 + 128) + 128 * 65),
        # Two embeddings; of two blocks the attention, its mix, the two layers and the norms; the last norm, the head.
        ("transformer", (65 + 40) * 64 + 2 * (4 * 64 * 64 + 2 * 64 * 128 + 2 * 64) + 64 + 64 * 65),
    ],
)
def test_networks_have_the_size_that_follows_from_their_layers(name: str, parameters: int) -> None:
    skeleton = ModelSpec(name, CHARACTERS, classes=65).skeleton()
    assert sum(parameter.numel() for parameter in skeleton.parameters()) == parameters
    assert not any("bias" in key for key in skeleton.state_dict())


@pytest.mark.parametrize("bias", [False, True])
def test_a_gru_is_that_of_its_equations(bias: bool) -> None:
    spec = spec_of("gru", bias=bias)
    network = network_of(spec)
    weights = dict(network.named_parameters())
    inputs = spec.inputs.drawn(3, torch.Generator().manual_seed(1))
    state = torch.zeros(3, 6).double()
    for place in range(5):
        seen = weights["embedding.weight"][inputs[:, place]] @ weights["gru.weight_ih_l0"].T
        held = state @ weights["gru.weight_hh_l0"].T
        if bias:
            seen, held = seen + weights["gru.bias_ih_l0"], held + weights["gru.bias_hh_l0"]
        (r, z, n), (hr, hz, hn) = seen.split(6, dim=1), held.split(6, dim=1)
        update = (z + hz).sigmoid()
        state = (1 - update) * (n + (r + hr).sigmoid() * hn).tanh() + update * state
    expected = state @ weights["head.weight"].T + (weights["head.bias"] if bias else 0)
    assert torch.allclose(network(inputs), expected, atol=1e-12)


def normalised(rows: Tensor, weights: dict[str, Tensor], name: str, bias: bool) -> Tensor:
    centred = rows - rows.mean(-1, keepdim=True)
    unit = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return unit * weights[f"{name}.weight"] + (weights[f"{name}.bias"] if bias else 0)


@pytest.mark.parametrize("bias", [False, True])
def test_a_transformer_is_that_of_its_equations(bias: bool) -> None:
    """One example, one head and one place at a time."""
    spec = spec_of("transformer", bias=bias)
    network = network_of(spec)
    weights = {name: one.detach() for name, one in network.named_parameters()}
    inputs = spec.inputs.drawn(2, torch.Generator().manual_seed(1))

    def linear(name: str, rows: Tensor) -> Tensor:
        return rows @ weights[f"{name}.weight"].T + (weights[f"{name}.bias"] if bias else 0)

    expected = []
    for example in inputs:
        rows = weights["tokens.weight"][example] + weights["places.weight"]
        for block in ("blocks.0", "blocks.1"):
            parts = linear(f"{block}.attention", normalised(rows, weights, f"{block}.norm1", bias))
            queries, keys, values = parts.split(8, dim=1)
            attended = torch.zeros(5, 8).double()
            size = 8 // HEADS
            for head in range(HEADS):
                own = slice(head * size, (head + 1) * size)
                for place in range(5):
                    scores = torch.stack([queries[place, own] @ key / size**0.5 for key in keys[:, own]])
                    attended[place, own] = scores.softmax(0) @ values[:, own]
            rows = rows + linear(f"{block}.mix", attended)
            hidden = linear(f"{block}.fc1", normalised(rows, weights, f"{block}.norm2", bias)).clamp(min=0)
            rows = rows + linear(f"{block}.fc2", hidden)
        expected.append(linear("head", normalised(rows, weights, "norm", bias)[-1]))
    assert torch.allclose(network(inputs), torch.stack(expected), atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_logits_depend_on_every_parameter_and_every_place(name: str) -> None:
    spec = spec_of(name)
    network = network_of(spec)
    inputs = spec.inputs.drawn(64, torch.Generator().manual_seed(0))
    outputs = network(inputs)
    outputs.square().sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
    for place in range(5):
        changed = inputs.clone()
        changed[:, place] = (changed[:, place] + 1) % 7
        assert (network(changed) != outputs).any(dim=1).all()


@pytest.mark.parametrize("name", NAMES)
def test_initial_weights_are_those_that_torch_draws(name: str) -> None:
    spec = ModelSpec(name, CHARACTERS, classes=65, bias=True)
    drawn = spec.initialise(torch.Generator().manual_seed(11))
    with torch.random.fork_rng():
        torch.manual_seed(11)
        if name == "gru":
            layers = [nn.Embedding(65, 16), nn.GRU(16, 128), nn.Linear(128, 65)]
        else:
            layers = [nn.Embedding(65, 64), nn.Embedding(40, 64)]
            for _ in range(2):
                layers += [nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)]
                layers += [nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)]
            layers += [nn.LayerNorm(64), nn.Linear(64, 65)]
    expected = [parameter.detach() for layer in layers for parameter in layer.parameters()]
    assert len(drawn) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(drawn.values(), expected, strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_loaded_network_has_the_weights_that_it_is_given(name: str, bias: bool) -> None:
    spec = spec_of(name, bias=bias)
    first, second = tiny.initial(spec, seed=1), tiny.initial(spec, seed=2)
    inputs = spec.inputs.drawn(3, torch.Generator().manual_seed(0))
    network = spec.load(first)
    expected = spec.load(second)(inputs)
    assert not torch.allclose(network(inputs), expected)
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            parameter.copy_(second[key])
    assert torch.equal(network(inputs), expected)


@pytest.mark.parametrize(
    ("name", "widths", "message"),
    [
        ("gru", (4,), "allowed: 2 positive numbers"),
        ("transformer", (8, 0), "allowed: 2 positive numbers"),
        ("transformer", (6, 8), "allowed: a first one divisible by 4"),
    ],
)
def test_widths_that_do_not_fit_are_refused(name: str, widths: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=rf"model '{name}': widths=.*{message}"):
        ModelSpec(name, SHORT, classes=4, widths=widths).skeleton()
