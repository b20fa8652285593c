"""A folder of Hugging Face's that a user has: an encoder of texts, read without code of its own and without network."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import Layout, require_texts
from fedfisher_core.engine.errors import InputError, in_one_line, shown
from fedfisher_core.engine.files import parse_json
from fedfisher_core.engine.installed import require_packages
from fedfisher_core.models.lora import Adapters, Target
from fedfisher_core.models.spec import FOLDER
from fedfisher_core.models.trunks.trunk import TextTrunk

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
_PICKLE, _PARTS, _ADAPTER = "pytorch_model.bin", "model.safetensors.index.json", "adapter_config.json"
_CODE = ("auto_map", "trust_remote_code", "custom_pipelines")
"""Keys of a configuration that ask for code of the folder's own."""
_OTHER = ("is_decoder", "add_cross_attention", "quantization_config")
"""Keys that make something else of the encoder."""


@dataclass(frozen=True)
class _Layers:
    """How transformers names a kind of encoder, and the layers that may have an adapter.

    Args:
        class_name: of the network without a head.
        prefix: of the weights' names where the file is of a network with a head.
        before: first parts of the names of weights that decide features.
        hidden: key of the number of units between the two layers of a block.
    """

    class_name: str
    prefix: str
    before: tuple[str, ...]
    hidden: str
    targets: Mapping[str, str]


_BERT = {
    "query": "encoder.layer.{}.attention.self.query",
    "key": "encoder.layer.{}.attention.self.key",
    "value": "encoder.layer.{}.attention.self.value",
    "attention_output": "encoder.layer.{}.attention.output.dense",
    "intermediate": "encoder.layer.{}.intermediate.dense",
    "output": "encoder.layer.{}.output.dense",
}
_DISTILBERT = {
    "query": "transformer.layer.{}.attention.q_lin",
    "key": "transformer.layer.{}.attention.k_lin",
    "value": "transformer.layer.{}.attention.v_lin",
    "attention_output": "transformer.layer.{}.attention.out_lin",
    "intermediate": "transformer.layer.{}.ffn.lin1",
    "output": "transformer.layer.{}.ffn.lin2",
}
KINDS = MappingProxyType(
    {
        "bert": _Layers("BertModel", "bert.", ("embeddings.", "encoder."), "intermediate_size", _BERT),
        "distilbert": _Layers(
            "DistilBertModel", "distilbert.", ("embeddings.", "transformer."), "hidden_dim", _DISTILBERT
        ),
        "roberta": _Layers("RobertaModel", "roberta.", ("embeddings.", "encoder."), "intermediate_size", _BERT),
        "xlm-roberta": _Layers("XLMRobertaModel", "roberta.", ("embeddings.", "encoder."), "intermediate_size", _BERT),
    }
)
"""Kinds of encoders by `model_type`; MiniLM's is bert."""
_AFTER_PADDING = ("roberta", "xlm-roberta")
"""Kinds whose first position is the one after that of padding's token."""


@dataclass(frozen=True, kw_only=True)
class FolderTrunk(TextTrunk):
    """The encoder of a folder.

    Args:
        config: SHA-256 of its configuration.
        tokenizer: SHA-256 of its tokenizer.
        blocks: number of its blocks.
        targets: linear layers of a block that may have an adapter, by their names in the settings.
        given: the configuration, as transformers has it.
    """

    config: str
    tokenizer: str
    blocks: int
    targets: Mapping[str, Target]
    given: Any = field(compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.name, self.sha256, self.config, self.tokenizer))

    @property
    def described(self) -> dict[str, Any]:
        """See the base class; the same files are the same trunk in any folder."""
        return {"config": self.config, "weights": self.sha256, "transformers": version("transformers")}

    @property
    def digest(self) -> str:
        """Names the files, wherever they are, as 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.described, sort_keys=True).encode()).hexdigest()[:16]

    def require(self, layout: Layout) -> None:
        """Refuse examples that it can't take, and tokens of another tokenizer than the folder's, by an InputError."""
        who = f"trunk {self.name!r}"
        found = require_texts(layout, who)
        # A digest is empty where the tokenizer has not been read.
        if found.digest and found.digest != self.tokenizer:
            raise InputError(
                f"{who}: data.text.tokenizer={found.tokenizer} is another than the folder's; allowed: its {TOKENIZER}"
            )
        if found.vocabulary > self.vocabulary or found.padding != self.padding:
            raise InputError(
                f"{who}: data.text.tokenizer={found.tokenizer} has {found.vocabulary} tokens, and padding is token "
                f"{found.padding}; allowed: up to {self.vocabulary} tokens and padding {self.padding}"
            )
        if found.length > self.positions:
            raise InputError(f"{who}: data.text.length={found.length}; allowed: up to {self.positions}, its positions")


class FolderEncoder(nn.Module):
    """Tokens to the mean of the last layer's outputs over positions without padding.

    Args:
        network: of transformers, without a head.
        config: of the network.
    """

    def __init__(self, network: nn.Module, config: Any) -> None:
        super().__init__()
        self.network = network
        self.padding = config.pad_token_id
        for layer in KINDS[config.model_type].targets.values():
            for place in map(layer.format, range(config.num_hidden_layers)):
                network.get_submodule(place).register_forward_hook(partial(_adapted, place))

    def forward(self, tokens: Tensor, adapters: Adapters = MappingProxyType({})) -> Tensor:
        """Compute features, shape (batch, features), of tokens, shape (batch, length)."""
        counted = (tokens != self.padding).float()[..., None]
        # The library would look at the numbers of a mask of tokens, which tensors without memory lack. Where a text has
        # no token, the mean over its positions stays finite.
        hidden = (1 - counted).mT[:, None] * torch.finfo(torch.float32).min
        with _adding(adapters, counted):
            states: Tensor = self.network(input_ids=tokens, attention_mask=hidden).last_hidden_state
        return (states * counted).sum(1) / counted.sum(1).clamp(min=1)


# All networks of a process share one encoder, which may compute for several clients in threads at once.
_added: ContextVar[tuple[Adapters, Tensor] | None] = ContextVar("_added", default=None)


@contextmanager
def _adding(adapters: Adapters, counted: Tensor) -> Iterator[None]:
    before = _added.set((adapters, counted))
    try:
        yield
    finally:
        _added.reset(before)


def _adapted(place: str, _layer: nn.Module, given: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
    """Add what the adapter of a layer makes of its inputs, if it has one now."""
    found = _added.get()
    if found is None or place not in found[0]:
        return outputs
    # A position of padding has no effect on others. Without its inputs, statistics don't see it either.
    return outputs + found[0][place](given[0] * found[1])


def folder_trunk(name: str) -> FolderTrunk:
    """Find the encoder of a folder.

    Args:
        name: FOLDER with the folder's path.

    Raises:
        InputError: a file is missing, holds or asks for code, or is of another network than those that are read.
    """
    folder, who = Path(name.removeprefix(FOLDER)), f"trunk {name!r}"
    require_packages("transformers", "tokenizers", extra="text", who=who)
    if not folder.is_dir():
        raise InputError(f"{who}: {folder} is no folder; allowed: {FOLDER}PATH/NAME, such as {FOLDER}bert/linear")
    for file, reason in (
        (_ADAPTER, "is of adapters, and not read; allowed: a folder of the whole encoder"),
        (_PARTS, f"is of weights in several files; allowed: one {WEIGHTS}"),
    ):
        if (folder / file).exists():
            raise InputError(f"{who}: {folder / file} {reason}")
    if not (folder / WEIGHTS).is_file():
        pickled = f"; {_PICKLE} may hold code, and is not read" if (folder / _PICKLE).exists() else ""
        raise InputError(f"{who}: {folder} has no {WEIGHTS}{pickled}; allowed: weights as safetensors")
    for file in (CONFIG, TOKENIZER):
        if not (folder / file).is_file():
            raise InputError(f"{who}: {folder} has no {file}; allowed: {CONFIG}, {WEIGHTS} and {TOKENIZER}")
    found = [os.stat(folder / file) for file in (CONFIG, WEIGHTS, TOKENIZER)]
    return _read(name, folder, tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found))


@lru_cache(maxsize=8)
def _read(name: str, folder: Path, _changed: tuple[tuple[int, ...], ...]) -> FolderTrunk:
    who = f"trunk {name!r}"
    try:
        said = (folder / CONFIG).read_bytes()
        digests = {file: _digest(folder / file) for file in (WEIGHTS, TOKENIZER)}
    except OSError as error:
        raise InputError(f"{who} can't be read: {in_one_line(error)}") from error
    given = _config(said, f"{who}: {folder / CONFIG}")
    kind = KINDS[given.model_type]
    padding, width, hidden = given.pad_token_id, given.hidden_size, getattr(given, kind.hidden)
    blocks, positions = given.num_hidden_layers, given.max_position_embeddings
    if not isinstance(padding, int) or not 0 <= padding < given.vocab_size:
        raise InputError(
            f"{who}: {folder / CONFIG} has pad_token_id={padding}; allowed: whole numbers from 0 to "
            f"{given.vocab_size - 1}, its tokens"
        )
    sizes = {"intermediate": (width, hidden), "output": (hidden, width)}
    return FolderTrunk(
        name=name,
        build=partial(build, given),
        features=width,
        vocabulary=given.vocab_size,
        positions=positions - (padding + 1 if given.model_type in _AFTER_PADDING else 0),
        padding=padding,
        file=str((folder / WEIGHTS).absolute()),
        sha256=digests[WEIGHTS],
        licence="not known",
        config=hashlib.sha256(said).hexdigest(),
        tokenizer=digests[TOKENIZER],
        blocks=blocks,
        targets={key: Target(layer, *sizes.get(key, (width, width))) for key, layer in kind.targets.items()},
        given=given,
    )


def build(config: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """Build the encoder with weights by transformers' names, also those of a network with a head, which is left out.

    Args:
        config: of transformers.

    Raises:
        RuntimeError: names or shapes do not fit.
    """
    kind = KINDS[config.model_type]
    unpooled = {} if config.model_type == "distilbert" else {"add_pooling_layer": False}
    with _quiet():
        network, said = _class_of(config).from_pretrained(
            None,
            config=config,
            state_dict=dict(weights),
            output_loading_info=True,
            local_files_only=True,
            attn_implementation="eager",
            dtype=torch.float32,
            **unpooled,
        )
    left = [name for name in said["unexpected_keys"] if name.removeprefix(kind.prefix).startswith(kind.before)]
    for found, what in ((said["missing_keys"], "lacks"), (left, "has")):
        if found:
            raise RuntimeError(f"{what} {', '.join(sorted(found))}")
    return FolderEncoder(network, config)


def skeleton(trunk: FolderTrunk) -> nn.Module:
    """Build the encoder without memory for its weights."""
    with torch.device("meta"):
        return FolderEncoder(_class_of(trunk.given)(trunk.given), trunk.given)


def _class_of(config: Any) -> Any:
    # Listings of trunks should not wait for this import.
    import transformers

    return getattr(transformers, KINDS[config.model_type].class_name)


def _config(said: bytes, where: str) -> Any:
    """Read a configuration as one of transformers."""
    try:
        given = parse_json(said)
    except ValueError as error:
        raise InputError(f"{where} can't be read: {in_one_line(error)}; allowed: what transformers saves") from error
    kind = given.get("model_type") if isinstance(given, dict) else given
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{where} has model_type={shown(kind)}; allowed: {', '.join(KINDS)}")
    for key in (*_CODE, *_OTHER):
        if given.get(key):
            reason = "which runs code of its own" if key in _CODE else "which is no plain encoder"
            raise InputError(f"{where} has {key}={shown(given[key])}, {reason}; allowed: encoders without it")
    if (placed := given.get("position_embedding_type", "absolute")) != "absolute":
        raise InputError(f"{where} has position_embedding_type={shown(placed)}; allowed: absolute")
    from transformers import AutoConfig

    try:
        # What begins so is of the library's own working, such as where kernels are fetched from.
        own = {key: value for key, value in given.items() if key != "model_type" and not key.startswith("_")}
        found = AutoConfig.for_model(kind, **{**own, "return_dict": True}, attn_implementation="eager")
        # Sizes that do not fit each other, and unknown functions, are found as the network is built.
        with torch.device("meta"):
            _class_of(found)(found)
        return found
    except Exception as error:  # The library raises what it likes.
        raise InputError(f"{where} can't be used: {in_one_line(error)}; allowed: what transformers saves") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from writing to the terminal; what it says is checked."""
    from transformers.utils import logging

    level, shows = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows:
            logging.enable_progress_bar()
