"""A network of the caller's own, as methods see it: its layers and shapes without its weights."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError, in_one_line, shown
from fedfisher_core.federation.model_checks import require_outputs
from fedfisher_core.fisher.capture import evaluation_mode
from fedfisher_core.methods.shared.products import pairs_of
from fedfisher_core.models.batch_norm import BatchNorm, read_running_statistics
from fedfisher_core.models.spec import BatchNormalisation, ModelSpec, Parameters, parameters_of
from fedfisher_core.models.streams import StreamLayer, chain
from fedfisher_core.settings import FisherSettings
from fedfisher_core.settings.choices import choose


@dataclass(frozen=True)
class OwnModel(ModelSpec):
    """A network that is not registered; its builder makes it without memory for its weights."""

    builder: Callable[[ModelSpec], nn.Module] = field(kw_only=True)

    @property
    def family(self) -> Callable[[ModelSpec], nn.Module]:
        """Builder of the network."""
        return self.builder


class _Copies:
    """Makes copies of a network that have no memory for their weights; `InputError` if it can't be copied."""

    def __init__(self, network: nn.Module) -> None:
        # Python does not copy what it finds here, so no weight is copied, and shared weights stay shared.
        empty: dict[int, Any] = {id(one): _without_memory(one) for one in network.parameters()}
        empty |= {id(one): one.to("meta") for one in network.buffers()}
        self._network = _copied(network, empty)

    def __call__(self, spec: ModelSpec) -> nn.Module:
        """Copy the network, with hidden layers as wide, or adapters of the rank, that the specification asks for."""
        network = copy.deepcopy(self._network)
        pairs = pairs_of(dict(network.named_parameters()))
        if spec.widths and pairs:
            _change_rank(network, pairs, *spec.widths)
        elif spec.widths:
            layers = chain(OwnModel(spec.name, spec.inputs, spec.classes, spec.bias, builder=self))
            _widen(network, layers, spec.widths_or(tuple(layer.units for layer in layers[:-1])))
        return network


def _copied(network: nn.Module, known: dict[int, Any]) -> nn.Module:
    """Copy a network.

    Args:
        known: copies of its parts by the part's id, which are taken as they are.

    Raises:
        InputError: it can't be copied.
    """
    try:
        return copy.deepcopy(network, known)
    except Exception as error:
        raise InputError(f"model {type(network).__name__!r} can't be copied: {in_one_line(error)}") from error


@dataclass(frozen=True)
class Network:
    """A network that clients have trained, without its weights: what clients and the server all know."""

    spec: ModelSpec
    device: torch.device
    fisher: FisherSettings

    @classmethod
    def of(cls, module: nn.Module, examples: Tensor, *, fisher: Mapping[str, Any] | None = None) -> "Network":
        """Describe a network.

        Args:
            module: the network, trained or not.
            examples: one or more: images (examples, channels, height, width) or rows of numbers (examples, features) in
                float32, or sequences of tokens (examples, length) in int64.
            fisher: how Fishers are computed, by the names of the settings `fisher`, such as `{"estimator":
                "monte_carlo", "samples": 4}`; by default as in a benchmark.

        Raises:
            InputError: it holds anything but weights in float32, can't be copied, or does not give a row of outputs for
                each example.
            UnsupportedLayerError: a layer normalises over the batch, or holds what no client sends.
        """
        if not len(examples):
            raise InputError("a network is described by no examples; allowed: one or more")
        weights = _weights_of(module)
        device = next(iter(weights.values())).device
        given = examples[:2].to(device)
        spec = OwnModel(
            name=type(module).__name__, inputs=_layout_of(module, examples), classes=1, builder=_Copies(module)
        )
        spec.require_weights_only()
        spec = replace(spec, classes=_count_classes(spec, weights, given))
        require_outputs(spec, spec.load(weights), given, torch.Generator().manual_seed(0))
        chosen = choose(FisherSettings, fisher or {}, key="fisher")
        chosen = chosen.chosen(spec.classes, private=False, on_gpu=device.type == "cuda")
        return cls(spec=spec, device=device, fisher=chosen)

    def read(self, weights: nn.Module | Mapping[str, Tensor], *, who: str) -> Parameters:
        """Check the weights of a module, or weights by name, and copy them to the network's device, in its order.

        Args:
            weights: a module, or what its `state_dict()` gives.
            who: the owner of the weights, for messages.

        Raises:
            InputError: they are neither, names or shapes are not the network's, or a number is not finite.
        """
        if isinstance(weights, nn.Module):
            weights = parameters_of(weights)
        if not isinstance(weights, Mapping):
            raise InputError(f"{who} has weights of type {type(weights).__name__}; allowed: a module or a state_dict()")
        shapes = self.spec.shapes()
        if unknown := sorted(weights.keys() ^ shapes.keys()):
            has = "has" if unknown[0] in weights else "lacks"
            raise InputError(f"{who} {has} {unknown[0]!r}; allowed: the weights of {self.spec.name!r}, {list(shapes)}")
        for name, shape in shapes.items():
            if weights[name].shape != shape:
                raise InputError(f"{who} has {name!r} of shape {tuple(weights[name].shape)}; allowed: {tuple(shape)}")
            if weights[name].dtype != torch.float32:
                raise InputError(f"{who} has {name!r} in {weights[name].dtype}; allowed: torch.float32")
            if not is_finite(weights[name]):
                raise InputError(f"{who} has {name!r} with numbers that are not finite; allowed: finite ones")
        return {name: weights[name].detach().to(self.device, copy=True) for name in shapes}

    def require_same(self, other: "Network", *, who: str, others: str) -> None:
        """Check that another network is the same; `who` and `others` own the two, for messages.

        Raises:
            InputError: names the first difference in layers, shapes, examples, classes or settings of Fishers.
        """
        self.require_described(other.described(), who=who, others=others)

    def described(self) -> dict[str, Any]:
        """Return what makes networks the same, as JSON has it."""
        return {
            **{f"{name!r} of shape": list(shape) for name, shape in self.spec.shapes().items()},
            "weights": list(self.spec.shapes()),
            "trained weights": sorted(self.spec.learnt()),
            "examples of": str(self.spec.inputs),
            "Fishers that are": self.fisher.estimate,
            "layers": str(self.spec.skeleton()),
        }

    def require_described(self, other: Mapping[str, Any], *, who: str, others: str) -> None:
        """Check that a network is the same as one that `described` returned; see `require_same`."""
        for what, own in self.described().items():
            if own != (theirs := other.get(what)):
                raise InputError(
                    f"{others} has {what} {shown(theirs)}, but {who} has {shown(own)}; allowed: one network"
                )


def replace_batch_norm(module: nn.Module) -> nn.Module:
    """Copy a network, and replace torch's batch normalisations by layers whose running statistics are weights.

    Clients send these weights. In evaluation, the outputs stay the same up to rounding. What was not trained stays so.
    In further training, statistics that were means over all batches (`momentum=None`) move on with momentum 0.1.

    Raises:
        InputError: the network can't be copied.
        UnsupportedLayerError: a batch normalisation keeps no running statistics, has a forward of its own or has no
            shape before it sees inputs.
    """
    _require_shapes(module)
    copied = _copied(module, {})
    made: dict[int, BatchNorm] = {}
    # A layer at several places stays one layer.
    for name, layer in list(copied.named_modules(remove_duplicate=False)):
        if not isinstance(layer, BatchNormalisation):
            continue
        if id(layer) not in made:
            made[id(layer)] = _with_statistics_as_weights(name, layer)
        if layer is copied:
            return made[id(layer)]
        copied.set_submodule(name, made[id(layer)])
    return copied


def _with_statistics_as_weights(name: str, layer: BatchNormalisation) -> BatchNorm:
    base = next(one for one in get_args(BatchNormalisation) if isinstance(layer, one))
    if type(layer).forward is not base.forward:
        raise UnsupportedLayerError(
            f"layer {name!r} has type {type(layer).__name__}, whose forward is not that of {base.__name__}; allowed: "
            f"{base.__name__}, and what else it does as a layer of its own"
        )
    if layer.running_mean is None or layer.running_var is None:
        raise UnsupportedLayerError(f"layer {name!r} keeps no running statistics; allowed: track_running_stats=True")
    made = BatchNorm(layer.num_features, eps=layer.eps, momentum=0.1 if layer.momentum is None else layer.momentum)
    state = read_running_statistics(nn.Sequential(made), {f"0.{key}": one for key, one in layer.state_dict().items()})
    made.load_state_dict({key.removeprefix("0."): one for key, one in state.items()}, strict=layer.affine)
    for key in ("weight", "bias"):
        own = getattr(layer, key)
        getattr(made, key).requires_grad_(own is not None and own.requires_grad)
    return made.to(layer.running_mean).train(layer.training)


def _without_memory(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)


def _weights_of(module: nn.Module) -> Parameters:
    """Copy the weights, which must be float32 on one device."""
    name = type(module).__name__
    _require_shapes(module)
    weights = parameters_of(module)
    if not weights:
        raise InputError(f"model {name!r} has no weights; allowed: a network with parameters")
    device = next(iter(weights.values())).device
    for key, tensor in weights.items():
        if tensor.numel() == 0:
            raise InputError(
                f"model {name!r} has {key!r} of shape {tuple(tensor.shape)}; allowed: weights with numbers"
            )
        if (tensor.dtype, tensor.device) != (torch.float32, device):
            raise InputError(
                f"model {name!r} has {key!r} in {tensor.dtype} on {tensor.device}; allowed: torch.float32 on {device}"
            )
    return weights


def _require_shapes(module: nn.Module) -> None:
    for key, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise UnsupportedLayerError(
                f"model {type(module).__name__!r}: {key!r} has no shape before it sees inputs; allowed: trained ones"
            )


def _layout_of(module: nn.Module, examples: Tensor) -> Layout:
    match (examples.dtype, *examples.shape):
        case (torch.float32, _, channels, height, width):
            return Images(channels, height, width)
        case (torch.float32, _, features):
            return Vectors(features)
        case (torch.int64, _, length):
            return Tokens(length, _vocabulary(module, examples))
    raise InputError(
        f"examples have shape {tuple(examples.shape)} and type {examples.dtype}; allowed: images (examples, channels, "
        "height, width) or numbers (examples, features) in torch.float32, or tokens (examples, length) in torch.int64"
    )


def _vocabulary(module: nn.Module, examples: Tensor) -> int:
    """Count the tokens that a network knows, which may be more than a client holds."""
    tables = [one for one in module.modules() if isinstance(one, nn.Embedding | nn.EmbeddingBag)]
    given = examples[:2].to(next(module.parameters()).device)
    seen: list[int] = []

    def note(size: int, _: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        # Positions have a table too, which may be the larger one.
        read = arguments[0] if arguments else named.get("input")
        if isinstance(read, Tensor) and torch.equal(read, given):
            seen.append(size)

    with ExitStack() as hooks, evaluation_mode(module), torch.no_grad():
        for table in tables:
            hooks.enter_context(table.register_forward_pre_hook(partial(note, table.num_embeddings), with_kwargs=True))
        try:
            module(given.clone())
        except Exception as error:
            raise _no_outputs(type(module).__name__, f"tokens of length {given.shape[1]}", error) from error
    return min(seen) if seen else max([one.num_embeddings for one in tables] or [int(examples.max()) + 1])


def _count_classes(spec: ModelSpec, weights: Parameters, given: Tensor) -> int:
    """Count the outputs of the network for an example."""
    try:
        with torch.no_grad():
            outputs = spec.load(weights).eval()(given.clone())
    except Exception as error:
        raise _no_outputs(spec.name, str(spec.inputs), error) from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        found = f"outputs of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(f"model {spec.name!r} gives {found}; allowed: a row of outputs an example, a number a class")
    return outputs.shape[1]


def _no_outputs(name: str, inputs: str, error: Exception) -> InputError:
    return InputError(f"model {name!r} can't take {inputs} an example: {in_one_line(error)}")


def _change_rank(network: nn.Module, pairs: Mapping[str, str], rank: int) -> None:
    """Change the rank of adapters.

    Args:
        network: without memory for its weights; changed in place.
        pairs: names of the factors B by those of the factors A.
    """
    for names, size in ((pairs.keys(), "out_features"), (pairs.values(), "in_features")):
        for name in names:
            layer = network.get_submodule(name.rpartition(".")[0])
            if not isinstance(layer, nn.Linear):
                raise UnsupportedLayerError(f"adapter {name!r} is in a {type(layer).__name__}; allowed: Linear")
            setattr(layer, size, rank)
            layer.weight = nn.Parameter(layer.weight.new_empty(layer.out_features, layer.in_features, device="meta"))


def _widen(network: nn.Module, layers: Sequence[StreamLayer], widths: Sequence[int]) -> None:
    """Change the number of units of hidden layers; what the network computes between layers must not depend on it.

    Args:
        network: without memory for its weights; changed in place.
        layers: of the network, in a chain.
        widths: units of each layer but the last.
    """
    before: int | None = None
    for layer, units in zip(layers, (*widths, layers[-1].units), strict=True):
        module = network.get_submodule(layer.name)
        _, inputs, *kernel = module.get_parameter("weight").shape
        if before is not None:
            inputs = before if kernel else before * layer.places
        module.weight = _empty(units, inputs, *kernel)
        if layer.bias:
            module.bias = _empty(units)
        match module:
            case nn.Linear():
                module.in_features, module.out_features = inputs, units
            case nn.Conv2d():
                module.in_channels, module.out_channels = inputs, units
            case _:
                raise UnsupportedLayerError(f"layer {layer.name!r} can't be made wider; allowed: Linear and Conv2d")
        before = units


def _empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device="meta"))
