"""Tiny networks, and their Fishers from the definition."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import fisher_layers
from fedfisher_core.models.batch_norm import BatchNorm


def linear(bias: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3, bias=bias), nn.Tanh(), nn.Linear(3, 3, bias=bias))


def convolutional(bias: bool, **options: object) -> nn.Module:
    """A convolution of 2 x 7 x 6 images between others, so that its inputs and its gradients are both general."""
    return nn.Sequential(
        nn.Conv2d(2, 2, 1, bias=bias),
        nn.Tanh(),
        nn.Conv2d(2, 3, (3, 2), bias=bias, **options),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 3, bias=bias),
    )


class Sequences(nn.Module):
    """Embeddings of tokens and places, and layers that see all places of an example; only some weights have a bias."""

    tokens, length = 5, 6

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.tokens_in, self.places = nn.Embedding(self.tokens, 4), nn.Embedding(self.length, 4)
        self.norm = nn.LayerNorm(4, bias=bias)
        self.each = nn.Linear(4, 3, bias=bias)
        self.last = nn.LayerNorm(3, bias=bias)
        self.head = nn.Linear(3, 3, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.tokens_in(inputs) + self.places(torch.arange(self.length).expand(inputs.shape))
        # Other weights at each place, so that no order of them gives the same.
        hidden = self.each(self.norm(hidden)).tanh() * torch.arange(1, self.length + 1).to(hidden)[:, None]
        return self.head(self.last(hidden.sum(1)))


class Block(nn.Module):
    """Attention of two heads with a fused projection, between two normalisations, and a layer at each position."""

    def __init__(self, norm: type[nn.Module], bias: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm(4), norm(4)
        self.qkv, self.out = nn.Linear(4, 12, bias=bias), nn.Linear(4, 4, bias=bias)
        self.fc = nn.Linear(4, 4, bias=bias)

    def forward(self, places: Tensor, *, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        q, k, v = self.qkv(self.norm1(places)).unflatten(2, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        places = places + self.out(mixed.transpose(1, 2).flatten(2))
        return places + self.fc(self.norm2(places)).tanh()


class TinyViT(nn.Module):
    """Patches of 7 x 6 pixels, a class token, positions that are a parameter, and a gain of its own."""

    def __init__(self, bias: bool, channels: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, 4, 3, stride=3, bias=bias)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 4)), nn.Parameter(torch.zeros(5, 4))
        self.block, self.gain = Block(nn.LayerNorm, bias), nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, 3, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        patches = self.patches(inputs).flatten(2).mT
        places = torch.cat([self.token.expand(len(inputs), -1, -1), patches], dim=1) + self.places
        return self.head(self.gain * self.block(places)[:, 0])


class TinyGPT(nn.Module):
    """Tokens that see those before them, positions that are looked up once for all examples, and the last's outputs."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(Sequences.tokens, 4), nn.Embedding(Sequences.length, 4)
        self.block, self.norm = Block(nn.RMSNorm, bias), nn.RMSNorm(4)
        self.head = nn.Linear(4, 3, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        places = self.tokens(inputs) + self.places(torch.arange(inputs.shape[1]))
        return self.head(self.norm(self.block(places, causal=True))[:, -1])


class TinyEncoder(nn.Module):
    """Tokens that see all others but padding, whose mean over what is no padding is classified."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.tokens, self.block = nn.Embedding(Sequences.tokens, 4, padding_idx=0), Block(nn.LayerNorm, bias)
        self.head = nn.Linear(4, 3, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        counted = inputs != 0
        places = self.block(self.tokens(inputs), mask=counted[:, None, None, :])
        return self.head((places * counted[:, :, None]).sum(1) / counted.sum(1, keepdim=True))


def pad(tokens: Tensor) -> Tensor:
    """Let sequences of tokens from 1 end in padding, 0, of different lengths."""
    lengths = 1 + torch.arange(len(tokens)) % tokens.shape[1]
    return tokens.clamp(min=1) * (torch.arange(tokens.shape[1]) < lengths[:, None])


class Features(nn.Module):
    """Places of an example, as a convolution makes them, whose features are normalised at each of them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, (3, 2), stride=2, bias=bias)
        self.norm = nn.LayerNorm(3, bias=bias)
        self.head = nn.Linear(3, 3, bias=bias)
        self.last = nn.LayerNorm(3, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        places = self.norm(self.first(inputs).flatten(2).mT).tanh()
        # Other weights at each place, so that no order of them gives the same.
        return self.last(self.head((places * torch.arange(1, 10).to(places)[:, None]).sum(1)))


class WholeMaps(nn.Module):
    """Maps that are normalised over all of their channels and places, and ones that are over each channel's places."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, (3, 2), stride=2, bias=bias)
        self.norm = nn.LayerNorm((3, 3, 3), bias=bias)
        self.second = nn.Conv2d(3, 4, 2, bias=bias)
        self.last = nn.LayerNorm((2, 2), bias=bias)
        self.head = nn.Linear(4, 3, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.last(self.second(self.norm(self.first(inputs)).tanh())).tanh()
        # Other weights at each place, as normalised ones have a sum of 0.
        return self.head((maps * torch.arange(1, 5).to(maps).view(2, 2)).sum((2, 3)))


class Residual(nn.Module):
    """Convolutions that are normalised by groups, a skip connection, and average pooling."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, bias=bias)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=bias)
        self.last = nn.GroupNorm(1, 4)
        self.head = nn.Linear(16, 3, bias=bias)
        if not bias:
            for norm in (self.norm, self.last):
                norm.register_parameter("bias", None)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.norm(self.first(inputs)).tanh()
        maps = self.last(self.second(maps)).tanh() + maps
        return self.head(nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1))


class RunningStatistics(nn.Module):
    """A convolution and a linear layer that are normalised by running statistics; every parameter has a gradient."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, bias=bias)
        self.norm = BatchNorm(4)
        self.second = nn.Linear(16, 3, bias=bias)
        self.last = BatchNorm(3)
        self.head = nn.Linear(3, 3, bias=bias)
        self.eval().requires_grad_(True)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.norm(self.first(inputs)).tanh()
        return self.head(self.last(self.second(nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1))).tanh())


def grouped(bias: bool) -> nn.Module:
    """Convolutions of two groups, with several channels each, and of one channel a group."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 1, bias=bias),
        nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), padding=(1, 2), stride=(2, 1), groups=2, bias=bias),
        nn.Tanh(),
        nn.Conv2d(6, 12, 2, dilation=(1, 2), groups=6, bias=bias),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        # More filters than windows and directions, then one window.
        nn.Conv2d(12, 16, (2, 1), groups=2, bias=bias),
        nn.Tanh(),
        nn.Conv2d(16, 8, (1, 2), groups=2, bias=bias),
        nn.Tanh(),
        nn.Conv2d(8, 7, 1, bias=bias),
        nn.Flatten(),
        nn.Linear(7, 3, bias=bias),
    )


GEOMETRIES: dict[str, dict[str, object]] = {
    "plain": {},
    "padding": {"padding": (2, 1)},
    "stride": {"stride": (2, 1)},
    "dilation": {"dilation": (1, 2)},
    "all three": {"padding": (1, 2), "stride": (2, 3), "dilation": (2, 1)},
}

SINGLE: dict[str, Callable[[], nn.Module]] = {
    **{f"linear, {'bias' if bias else 'no bias'}": lambda bias=bias: linear(bias) for bias in (False, True)},
    **{
        f"{name}, {'bias' if bias else 'no bias'}": lambda bias=bias, options=options: convolutional(bias, **options)
        for name, options in GEOMETRIES.items()
        for bias in (False, True)
    },
}
"""Networks whose layers have one matrix each."""

GROUPED: dict[str, Callable[[], nn.Module]] = {
    f"grouped, {'bias' if bias else 'no bias'}": lambda bias=bias: grouped(bias) for bias in (False, True)
}

NETWORKS = SINGLE | GROUPED
"""Networks that have Kronecker factors."""

NORMALISED: dict[str, Callable[[], nn.Module]] = {
    f"{name}, {'bias' if bias else 'no bias'}": lambda bias=bias, kind=kind: kind(bias)
    for name, kind in (("groups", Residual), ("features", Features), ("running statistics", RunningStatistics))
    for bias in (False, True)
}
"""Networks with normalisations that have Kronecker factors."""

SEQUENCES: dict[str, Callable[[], nn.Module]] = {
    f"{name}, {'bias' if bias else 'no bias'}": lambda bias=bias, kind=kind: kind(bias)
    for name, kind in (("sequences", Sequences), ("images", TinyViT), ("causal", TinyGPT), ("padded", TinyEncoder))
    for bias in (False, True)
}
"""Networks with layers that are applied at several positions, which have Kronecker factors."""

UNFACTORED: dict[str, Callable[[], nn.Module]] = {
    f"whole maps, {'bias' if bias else 'no bias'}": lambda bias=bias: WholeMaps(bias) for bias in (False, True)
}
"""Networks that have no Kronecker factors."""


def make(name: str, *, examples: int, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor]:
    """A network with parameters of size one, and inputs for it."""
    torch.manual_seed(3)
    if name in UNFACTORED | NORMALISED | SEQUENCES:
        model = (UNFACTORED | NORMALISED | SEQUENCES)[name]().to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                # Larger ones would make transformers so certain that p - p p' loses the digits of the reference.
                parameter.normal_(std=0.5 if name in SEQUENCES else 1.0)
        if not isinstance(model, TinyViT) and name in SEQUENCES:
            tokens = torch.randint(Sequences.tokens, (examples, Sequences.length))
            return model, pad(tokens) if isinstance(model, TinyEncoder) else tokens
        return model, torch.randn(examples, 2, 7, 6, dtype=dtype)
    model = NETWORKS[name]().to(dtype)
    shape = (4,) if name.startswith("linear") else (2, 7, 6)
    return model, torch.randn(examples, *shape, dtype=dtype)


def jacobians(model: nn.Module, inputs: Tensor) -> Tensor:
    """Derivatives of the outputs in all parameters, shape (examples, outputs, parameters), one output at a time."""
    parameters = list(model.parameters())
    rows = []
    for example in inputs:
        for output in model(example[None])[0]:
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(output, parameters, retain_graph=True)]))
    return torch.stack(rows).unflatten(0, (len(inputs), -1))


def hessians(model: nn.Module, inputs: Tensor) -> Tensor:
    """Hessians of the loss in the outputs, shape (examples, outputs, outputs)."""
    p = model(inputs).detach().softmax(dim=1)
    return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


def dense_fisher(model: nn.Module, inputs: Tensor) -> Tensor:
    """(1/N) sum J^T H J."""
    j = jacobians(model, inputs)
    return torch.einsum("nck,ncd,ndl->kl", j, hessians(model, inputs), j) / len(inputs)


def kfac_by_definition(model: nn.Module, inputs: Tensor) -> dict[str, Kronecker]:
    """The factors of linear layers and convolutions of a classifier, one class and one group of rows at a time."""
    layers = {name: one for name, one in fisher_layers(model).items() if isinstance(one, nn.Linear | nn.Conv2d)}
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = [
        layer.register_forward_hook(lambda module, args, out, name=name: seen.update({name: (args[0], out)}))
        for name, layer in layers.items()
    ]
    log_probabilities = model(inputs).log_softmax(dim=1)
    for hook in hooks:
        hook.remove()
    examples, classes = log_probabilities.shape
    blocks = {}
    for name, layer in layers.items():
        all_x, z = seen[name]
        groups = layer.groups if isinstance(layer, nn.Conv2d) else 1
        for group in range(groups):
            x = all_x.detach().chunk(groups, dim=1)[group]
            if isinstance(layer, nn.Conv2d):
                x = nn.functional.unfold(
                    x, layer.kernel_size, padding=layer.padding, stride=layer.stride, dilation=layer.dilation
                )
                x = x.transpose(1, 2).flatten(0, 1)
            if layer.bias is not None:
                x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
            outputs = 0
            for c in range(classes):
                column = log_probabilities[:, c].sum()
                (g,) = torch.autograd.grad(column, z, retain_graph=True)
                g = g * log_probabilities[:, c].exp().detach().sqrt().view(-1, *[1] * (g.ndim - 1))
                g = g.chunk(groups, dim=1)[group]
                g = g.flatten(2).transpose(1, 2).flatten(0, 1) if g.ndim == 4 else g
                outputs = outputs + g.T @ g
            windows = len(x) // examples
            blocks[name if groups == 1 else f"{name}[{group + 1} of {groups}]"] = Kronecker(
                inputs=x.T @ x * classes**0.5 / examples, outputs=outputs / (classes**0.5 * examples * windows)
            )
    return blocks


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors.values()])
