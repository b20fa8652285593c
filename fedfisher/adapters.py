"""Adapters in PEFT's file format: a folder with `adapter_config.json` and `adapter_model.safetensors`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from fedfisher.client import configure_own
from fedfisher.network import OwnModel
from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import Vectors
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, in_one_line, shown
from fedfisher_core.engine.files import parse_json
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.method import Method, methods
from fedfisher_core.methods.server import Server, require_networks
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.models.trunks.reading import read_weights_file, require_numbers
from fedfisher_core.reporting.rows import write_file
from fedfisher_core.settings import FisherSettings

_A = ".lora_A.weight"
_UNEVEN = 1e-4
"""How far a Gram matrix and its transpose may differ, as a part of the number and of the largest."""
_LARGEST_ALPHA = 1_000_000
"""Of `lora_alpha`, which multiplies a product; a larger one would leave single precision."""
CONFIG, TENSORS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
_NOT_LORA = (
    *("use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication", "trainable_token_indices"),
    *("alora_invocation_tokens", "target_parameters", "arrow_config", "velora_config", "kasa_config"),
)
"""Settings of PEFT that make something else of the factors, or train something else; each is refused."""
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""How names of initialisations begin that also change the network's own weights."""


@dataclass(frozen=True)
class Adapter:
    """LoRA adapters of a network, as a folder of PEFT has them.

    Args:
        config: as the file has it.
        tensors: in single precision, by the file's names. What is added to a layer's weights is B A: PEFT's scaling,
            alpha / rank or alpha / sqrt(rank), is in B.
    """

    config: Mapping[str, Any]
    tensors: Parameters

    @property
    def rank(self) -> int:
        """The largest rank of its products."""
        return max(len(tensor) for name, tensor in self.tensors.items() if ".lora_A." in name)


def read_adapter(folder: Path | str) -> Adapter:
    """Read a folder of PEFT.

    Raises:
        InputError: a file is missing, can't be read or is a pickle; or it is no LoRA, such as DoRA.
    """
    folder = Path(folder)
    config = _read_config(folder / CONFIG)
    path = folder / TENSORS
    if not path.is_file():
        pickled = f"; {PICKLE} may hold code, and is not read" if (folder / PICKLE).exists() else ""
        raise InputError(f"{folder} has no {TENSORS}{pickled}; allowed: adapters that PEFT saves as safetensors")
    read = read_weights_file(path, str(path))
    tensors = {name: require_numbers(name, tensor, str(path)) for name, tensor in sorted(read.items())}
    strange = next((name for name in tensors if "lora_" in name and not re.search(r"\.lora_[AB]\.weight$", name)), None)
    if strange is not None:
        raise InputError(f"{path} has {strange!r}; allowed: lora_A.weight and lora_B.weight of linear layers")
    for name in [name for name in tensors if ".lora_" in name]:
        before, factor, _ = re.split(r"\.(lora_[AB])\.", name)
        a, b = (tensors.get(f"{before}.{one}.weight") for one in ("lora_A", "lora_B"))
        if a is None or b is None or a.ndim != 2 or b.ndim != 2 or not 0 < len(a) == b.shape[1]:
            shapes = [None if one is None else tuple(one.shape) for one in (a, b)]
            raise InputError(
                f"{path} has factors A and B of {before!r} in shapes {shapes[0]} and {shapes[1]}; allowed: two "
                "matrices, A with as many rows as B has columns, one or more"
            )
        if factor == "lora_B":
            tensors[name] = b * _scale(config, before, len(a), path)
    if not any(".lora_A." in name for name in tensors):
        raise InputError(f"{path} has no factors lora_A and lora_B; allowed: LoRA adapters")
    return Adapter(config, tensors)


def write_adapter(adapter: Adapter, folder: Path | str) -> None:
    """Write a folder that PEFT reads; all its layers get the largest rank, the others with rows of zeros."""
    folder, rank = Path(folder), adapter.rank
    config = {
        **adapter.config,
        "r": rank,
        "lora_alpha": rank,
        "use_rslora": False,
        "inference_mode": True,
        "rank_pattern": {},
        "alpha_pattern": {},
    }
    tensors = {name: _padded(name, tensor, rank).contiguous() for name, tensor in adapter.tensors.items()}
    write_file(folder / TENSORS, save(tensors, {"format": "pt"}))
    write_file(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())


def merge_adapters(
    adapters: Sequence[Adapter],
    *,
    method: str,
    grams: Sequence[Mapping[str, Tensor]] | None = None,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> Adapter:
    """Merge adapters of one base network, all of which count alike.

    Args:
        method: one that needs weights alone, or with `grams` one for products that needs Gram matrices too.
        grams: for each adapter the means of x x^T over the inputs x of its layers, by the layers' names in the file up
            to `.lora_A.weight`, shape (inputs, inputs).
        generator: draws what the method leaves to chance; seeded with 0 by default.
        settings: of the method, where they differ from its defaults.

    Raises:
        InputError: adapters have other bases, layers or shapes; Gram matrices are of other layers or shapes, are no
            means of x x^T, or are not used; or the method or a setting needs more than is given, or equal ranks.
    """
    if not adapters:
        raise InputError("no adapters to merge; allowed: one or more")
    if settings.get("label_prior", 0) != 0:
        raise InputError(
            f"methods.{method}.label_prior={shown(settings['label_prior'])} needs label counts, which no adapter has; "
            "allowed: 0"
        )
    first = adapters[0]
    for number, other in enumerate(adapters[1:], start=1):
        _require_alike(first, other, number)
    rank = max(one.rank for one in adapters)
    tensors = [{name: _padded(name, tensor, rank) for name, tensor in one.tensors.items()} for one in adapters]
    shapes = {name: tensor.shape for name, tensor in tensors[0].items()}
    spec = OwnModel("adapters", Vectors(1), classes=1, widths=(rank,), builder=lambda asked: _holder(shapes, asked))
    configured = configure_own(method, settings, spec, statistics=None, budget="none", format="float32")
    _require_served(configured, adapters, given=set() if grams is None else {Gram})
    server = Server(
        spec=spec,
        dataset=DatasetSpec("adapters", None, 1, Vectors(1)),
        fisher=FisherSettings(),
        initial=None,
        generator=generator or torch_generator(0, Stream.SERVER),
        device=torch.device("cpu"),
        validation=Examples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64)),
    )
    uploads = [Upload(1, {Weights: Weights(one)}) for one in tensors]
    if grams is not None:
        uploads = _with_grams(uploads, grams)
    try:
        made = configured(server, uploads)
    except InputError as error:
        raise InputError(f"method {method!r}: {error}") from error
    require_networks(method, made, spec)
    if len(made.networks) != 1:
        raise InputError(f"method {method!r} keeps {len(made.networks)} networks; allowed: methods that leave one")
    return replace(first, tensors=made.networks[0])


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; allowed: a folder that PEFT has saved")
    try:
        config: Any = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read: {in_one_line(error)}; allowed: what PEFT has saved") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        said = config.get("peft_type") if isinstance(config, dict) else config
        raise InputError(f"{path} has peft_type={shown(said)}; allowed: LORA")
    for key in _NOT_LORA:
        if config.get(key):
            raise InputError(f"{path} has {key}={shown(config[key])}; allowed: LoRA without it")
    if str(start := config.get("init_lora_weights")).lower().startswith(_CHANGES_BASE):
        raise InputError(
            f"{path} has init_lora_weights={shown(start)}, which also changes the network; allowed: adapters that PEFT "
            "has saved with path_initial_model_for_weight_conversion, which are ordinary ones"
        )
    if config.get("bias", "none") != "none":
        raise InputError(f"{path} has bias={shown(config['bias'])}; allowed: none")
    patterns = config.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise InputError(f"{path} has alpha_pattern={shown(patterns)}; allowed: names of layers with numbers")
    for key, alpha in (
        ("lora_alpha", config.get("lora_alpha")),
        *(("alpha_pattern", one) for one in patterns.values()),
    ):
        number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
        if not number or not abs(alpha) <= _LARGEST_ALPHA:
            raise InputError(f"{path} has {key}={shown(alpha)}; allowed: numbers up to {_LARGEST_ALPHA:,}")
    return config


def _scale(config: Mapping[str, Any], layer: str, rank: int, path: Path) -> float:
    """What PEFT multiplies a layer's product by."""
    try:
        patterns, layer = config.get("alpha_pattern") or {}, layer.removeprefix("base_model.model.")
        fitting = (alpha for key, alpha in patterns.items() if re.match(rf"(.*\.)?({key})$", layer))
        alpha = next(fitting, config["lora_alpha"])
    except re.error as error:
        raise InputError(f"{path}: alpha_pattern can't be read: {in_one_line(error)}") from error
    return float(alpha / (rank**0.5 if config.get("use_rslora") else rank))


def _require_alike(first: Adapter, other: Adapter, number: int) -> None:
    for key in ("base_model_name_or_path", "fan_in_fan_out"):
        if first.config.get(key) != other.config.get(key):
            raise InputError(
                f"adapter {number} has {key}={shown(other.config.get(key))}, and adapter 0 has "
                f"{shown(first.config.get(key))}; allowed: adapters of one network"
            )
    if differing := sorted(first.tensors.keys() ^ other.tensors.keys()):
        has = "has" if differing[0] in other.tensors else "lacks"
        raise InputError(
            f"adapter {number} {has} {differing[0]!r}, unlike adapter 0; allowed: adapters of the same layers"
        )
    for name, tensor in first.tensors.items():
        mine, theirs = (_free_shape(name, one) for one in (tensor, other.tensors[name]))
        if mine != theirs:
            raise InputError(
                f"adapter {number} has {name!r} in shape {tuple(other.tensors[name].shape)}, and adapter 0 in "
                f"{tuple(tensor.shape)}; allowed: layers of the same size"
            )


def _with_grams(uploads: Sequence[Upload], grams: Sequence[Mapping[str, Tensor]]) -> list[Upload]:
    """Give each adapter its Gram matrices, by the names of its factors A."""
    if len(grams) != len(uploads):
        raise InputError(f"{len(grams)} sets of Gram matrices for {len(uploads)} adapters; allowed: one an adapter")
    made = []
    for number, (upload, given) in enumerate(zip(uploads, grams, strict=True)):
        factors = {name: one for name, one in upload[Weights].tensors.items() if name.endswith(_A)}
        layers = [name.removesuffix(_A) for name in factors]
        if missing := [layer for layer in layers if layer not in given]:
            raise InputError(f"adapter {number} lacks a Gram matrix of {missing[0]}; allowed: one for each layer")
        if strange := sorted(given.keys() - set(layers)):
            raise InputError(
                f"adapter {number} has a Gram matrix of {shown(strange[0])}; allowed: its layers, {', '.join(layers)}"
            )
        for layer, factor in zip(layers, factors.values(), strict=True):
            _require_gram(given[layer], factor.shape[1], who=f"Gram matrix {layer!r} of adapter {number}")
        named = {name.removesuffix(".weight"): given[name.removesuffix(_A)].float() for name in factors}
        made.append(replace(upload, statistics={**upload.statistics, Gram: Gram(named)}))
    return made


def _require_gram(given: Tensor, size: int, *, who: str) -> None:
    """Refuse what can't be the mean of x x^T over inputs x of a size."""
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise InputError(f"{who} is of {kind}; allowed: a tensor of floating-point numbers")
    if tuple(given.shape) != (size, size):
        raise InputError(f"{who} has shape {tuple(given.shape)}; allowed: {(size, size)}")
    gram = given.float()
    if not is_finite(gram):
        raise InputError(f"{who} has numbers that are not finite; allowed: finite ones in single precision")
    largest = gram.abs().max().item()
    if not torch.allclose(gram, gram.T, rtol=_UNEVEN, atol=_UNEVEN * largest):
        raise InputError(f"{who} is not symmetric; allowed: the mean of x x^T")
    diagonal = gram.diagonal()
    if (diagonal < 0).any() or not diagonal.any():
        numbers = "a negative number" if (diagonal < 0).any() else "zeros alone"
        raise InputError(f"{who} has {numbers} on its diagonal; allowed: means of squares, of which one is positive")


def _require_served(configured: ConfiguredMethod, adapters: Sequence[Adapter], *, given: set[type[Statistic]]) -> None:
    found, who = configured.method, f"method {configured.method.name!r}"
    if Gram in given and Gram not in found.uploads:
        able = ", ".join(name for name in methods if _serves_grams(methods.get(name)))
        raise InputError(f"grams with {who}, which uses none; allowed: {able}")
    # What is known of A alone is enough where products are merged.
    known = {Weights} | (given if found.of_products else set())
    needs = [one.name for one in found.uploads if one not in known]
    for needed, what in (
        (found.pooled, "the data of all clients"),
        (configured.shared_start, "the weights that all clients started from"),
        (configured.validates, "validation examples"),
    ):
        needs += [what] if needed else []
    if needs:
        raise InputError(
            f"{who} needs {needs[0]}, which no adapter has; allowed: methods that need weights alone, and "
            "regmean_products with Gram matrices"
        )
    if found.of_products:
        return
    for name in (name for name in adapters[0].tensors if ".lora_A." in name):
        ranks = [len(one.tensors[name]) for one in adapters]
        if len(set(ranks)) > 1:
            able = ", ".join(name for name in methods if _serves_ranks(methods.get(name)))
            raise InputError(f"{who} needs adapters of one rank, and these have {ranks} in {name!r}; allowed: {able}")


def _serves_ranks(method: Method) -> bool:
    return method.of_products and method.uploads == (Weights,) and not method.shared_start


def _serves_grams(method: Method) -> bool:
    return method.of_products and set(method.uploads) == {Weights, Gram} and not method.shared_start


def _free_shape(name: str, tensor: Tensor) -> tuple[int, ...]:
    """The dimensions of a tensor that are not the rank."""
    if ".lora_A." in name:
        return tuple(tensor.shape[1:])
    return tuple(tensor.shape[:1]) if ".lora_B." in name else tuple(tensor.shape)


def _padded(name: str, tensor: Tensor, rank: int) -> Tensor:
    """Fill factors up to a rank with zeros, which changes no product."""
    if ".lora_A." in name:
        return functional.pad(tensor, (0, 0, 0, rank - len(tensor)))
    return functional.pad(tensor, (0, rank - tensor.shape[1])) if ".lora_B." in name else tensor


def _holder(shapes: Mapping[str, torch.Size], spec: ModelSpec) -> nn.Module:
    """A module that holds parameters of these names, with the factors of the rank that is asked for."""
    (rank,) = spec.widths
    root = nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        place = root
        for part in path:
            if not hasattr(place, part):
                place.add_module(part, nn.Module())
            place = place.get_submodule(part)
        if ".lora_" not in name:
            place.register_parameter(last, nn.Parameter(torch.empty(shape)))
            continue
        rows, columns = (rank, shape[1]) if ".lora_A." in name else (shape[0], rank)
        before, _, factor = ".".join(path).rpartition(".")
        root.get_submodule(before).add_module(factor, nn.Linear(columns, rows, bias=False))
    return root
