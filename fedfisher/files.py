"""Files of what clients have computed, and of merged networks.

A client's file is one of safetensors. A tensor is named by its statistic, a slash and its own name, as in
`kfac/hidden.inputs`. The header is JSON under `fedfisher_client` of the file's metadata; its schema and a reader in
NumPy are in `examples/read_client_file`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedfisher.client import Client, Upload, digest_of
from fedfisher.merging import Ensemble
from fedfisher.network import Network
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload as Arrived
from fedfisher_core.client.uploads import encode, upload_schema
from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import InputError, in_one_line, shown
from fedfisher_core.engine.files import parse_json
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.models.spec import parameters_of
from fedfisher_core.reporting.rows import write_file
from fedfisher_core.settings.reading import validate

METADATA = "fedfisher_client"
VERSION = 1
ENDING = ".safetensors"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkHeader(_Part):
    """The network that the client has trained."""

    builder: str | None = Field(description="a registered name, or package.module:function; null where it was not said")
    inputs: Literal["images", "numbers", "tokens"] = Field(description="what an example is")
    shape: tuple[PositiveInt, ...] = Field(description="of an example: channels, height and width, or its length")
    vocabulary: PositiveInt | None = Field(description="number of tokens that there are; null for other inputs")
    classes: PositiveInt = Field(description="number of outputs")


class FisherHeader(_Part):
    """How Fishers were computed."""

    estimator: Literal["exact", "truncated", "monte_carlo", "empirical"]
    tolerance: float = Field(description="for truncated: the part of the trace that is left out at most")
    directions: PositiveInt | None = Field(description="for truncated: backward passes at most; null for no limit")
    samples: PositiveInt = Field(description="for monte_carlo: outputs drawn for each example")
    weight_sharing: Literal["expand", "reduce"] = Field(
        "expand", description="the form of K-FAC for layers with several positions; older files have the default"
    )


class StatisticHeader(_Part):
    """One statistic."""

    settings: dict[str, Any] = Field(description="of its computation, all of them")
    shapes: dict[str, tuple[PositiveInt, ...]] = Field(description="of its tensors by name, in float32")


class ClientHeader(_Part):
    """What the tensors of a client's file are."""

    version: Literal[1] = Field(description="of this format")
    examples: PositiveInt = Field(description="number of examples that the client holds")
    network: NetworkHeader
    fisher: FisherHeader
    weights_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the weights that the statistics belong to: of each name in sorted order, a zero byte, "
        "and the numbers in little-endian single precision"
    )
    statistics: dict[str, StatisticHeader] = Field(description="by name; the weights themselves are among them")


@dataclass(frozen=True)
class ClientFile:
    """A file of what a client has computed. Its header was read, and its weights are those that the header names."""

    path: Path
    network: Network
    header: ClientHeader

    def received(self, configured: ConfiguredMethod, network: Network) -> Arrived:
        """Return what a server makes of an upload with the statistics that a method needs.

        Raises:
            InputError: the file lacks a statistic, or has one with other settings or shapes.
        """
        sent = [self._read(one.statistic, one.described(), one.shapes(network.spec)) for one in configured.uploads]
        schema = upload_schema(configured.uploads, network.spec, configured.wire)
        data = encode(schema, sent, num_examples=self.header.examples)
        return Upload(data, network).received(configured, network)

    def _read(self, statistic: type[Statistic], settings: Any, shapes: Mapping[str, torch.Size]) -> Statistic:
        name, said = statistic.name, self.header.statistics.get(statistic.name)
        if said is None:
            raise InputError(f"{self.path} has no {name!r}; its statistics are {', '.join(self.header.statistics)}")
        if said.settings != settings:
            raise InputError(f"{self.path} has {name!r} with settings {shown(said.settings)}; allowed: {settings}")
        if said.shapes != {key: tuple(shape) for key, shape in shapes.items()}:
            raise InputError(f"{self.path} has {name!r} with shapes {shown(said.shapes)}; allowed: {dict(shapes)}")
        return statistic.of(_tensors(self.path, name, said))


def write_client(
    client: Client,
    path: Path | str,
    *,
    of: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    builder: str | None = None,
) -> None:
    """Compute statistics of a client and write them with its weights.

    Args:
        path: of the file, which is replaced in one step.
        of: names of the statistics.
        settings: of statistics that differ from their defaults, by the statistic's name.
        builder: builds the network, for the file's reader: a registered name, or package.module:function.

    Raises:
        InputError: a statistic is unknown, or can't be computed of this client; nothing is written.
        DivergedClientError: a number is not finite.
    """
    wanted = dict.fromkeys(["weights", *of])
    configured = configure_statistics([statistics.get(name) for name in wanted], settings or {})
    spec = client.network.spec
    shapes = {one.statistic.name: one.shapes(spec) for one in configured}
    found = client.compute(configured)
    fisher = client.network.fisher
    header = ClientHeader(
        version=VERSION,
        examples=client.num_examples,
        network=NetworkHeader(
            builder=builder,
            inputs=_NAMES[type(spec.inputs)],
            shape=spec.inputs.shape,
            vocabulary=spec.inputs.vocabulary if isinstance(spec.inputs, Tokens) else None,
            classes=spec.classes,
        ),
        fisher=FisherHeader.model_validate({name: getattr(fisher, name) for name in FisherHeader.model_fields}),
        weights_digest=digest_of(client.weights),
        statistics={
            one.statistic.name: StatisticHeader(
                settings=one.described(),
                shapes={key: tuple(shape) for key, shape in shapes[one.statistic.name].items()},
            )
            for one in configured
        },
    )
    tensors = {
        f"{name}/{key}": tensor.detach().cpu().float().contiguous()
        for name, one in found.items()
        for key, tensor in one.tensors.items()
    }
    write_file(Path(path), save(tensors, {METADATA: header.model_dump_json()}))


def read_client(path: Path | str, model: nn.Module) -> ClientFile:
    """Read the header of a client's file, and check that its statistics belong to the weights in it.

    The other tensors are read when a method needs them.

    Args:
        model: the network that clients have trained; its weights do not matter.

    Raises:
        InputError: it is no such file, of another version, of another network, or its statistics are of other weights.
    """
    path = Path(path)
    header = read_header(path)
    inputs = layout_of(header.network)
    network = Network.of(model, inputs.zeros(1), fisher=header.fisher.model_dump())
    if network.spec.classes != header.network.classes:
        raise InputError(
            f"{path} is of a network with {header.network.classes} outputs; allowed: the {network.spec.classes} of "
            f"{network.spec.name!r}"
        )
    said = header.statistics.get(Weights.name)
    if said is None:
        raise InputError(f"{path} has no 'weights'; its statistics are {', '.join(header.statistics) or 'none'}")
    weights = network.read(_tensors(path, Weights.name, said), who=str(path))
    if (found := digest_of(weights)) != header.weights_digest:
        raise InputError(f"{path} has statistics of weights {header.weights_digest}; allowed: {found}, its own")
    return ClientFile(path, network, header)


def write_merged(
    module: nn.Module, path: Path | str, *, method: str, settings: Mapping[str, Any], clients: Sequence[ClientFile]
) -> None:
    """Write the weights of a merged network in one step, and what it was made of as the file's metadata.

    Args:
        settings: of the method, those that differ from its defaults, as JSON has them.
        clients: whose networks were merged.

    Raises:
        InputError: the network is an ensemble, which has the weights of several networks, or the path has another
            ending than .safetensors.
    """
    require_ending(Path(path))
    if isinstance(module, Ensemble):
        raise InputError(
            f"method {method!r} keeps the networks of all clients; allowed: methods that leave one network"
        )
    weights = {name: tensor.cpu().contiguous() for name, tensor in parameters_of(module).items()}
    said = {
        "version": VERSION,
        "method": method,
        "settings": dict(settings),
        "weights_digest": digest_of(weights),
        "clients": [one.header.weights_digest for one in clients],
    }
    write_file(Path(path), save(weights, {"fedfisher_merged": json.dumps(said)}))


def require_ending(path: Path) -> None:
    """Check that a file of weights will be read as what it is, which readers tell by its ending."""
    if path.suffix != ENDING:
        raise InputError(f"{path} ends in {path.suffix or 'nothing'}; allowed: NAME{ENDING}")


def read_header(path: Path) -> ClientHeader:
    """Read what a client's file says of its tensors; `InputError` if it is no such file, or of another version."""
    written = _opened(path, lambda file: (file.metadata() or {}).get(METADATA))
    if written is None:
        raise InputError(
            f"{path} has no {METADATA!r} in its metadata; allowed: files that `fedfisher statistics` writes"
        )
    try:
        content = parse_json(written.encode())
        version = content.get("version") if isinstance(content, dict) else None
        if version != VERSION:
            raise InputError(f"format version {shown(version)}; allowed: {VERSION}")
        return validate(ClientHeader, content)
    except ValueError as error:
        raise InputError(f"{path}: {METADATA} in its metadata: {in_one_line(error)}") from error


def layout_of(header: NetworkHeader) -> Layout:
    """Return the layout of the network's examples; `InputError` if the shape does not fit such examples."""
    match header.inputs, header.shape, header.vocabulary:
        case "images", (channels, height, width), None:
            return Images(channels, height, width)
        case "numbers", (features,), None:
            return Vectors(features)
        case "tokens", (length,), int(vocabulary):
            return Tokens(length, vocabulary)
    raise InputError(f"network.shape={header.shape} and network.vocabulary={header.vocabulary} of {header.inputs}")


def _tensors(path: Path, statistic: str, said: StatisticHeader) -> dict[str, Tensor]:
    """Read the tensors of a statistic, which must be as the header says."""
    read: dict[str, Tensor] = _opened(
        path, lambda file: {key: file.get_tensor(f"{statistic}/{key}") for key in said.shapes}
    )
    for key, tensor in read.items():
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != said.shapes[key]:
            raise InputError(
                f"{path} has '{statistic}/{key}' of shape {tuple(tensor.shape)} in {tensor.dtype}; allowed: "
                f"{said.shapes[key]} in torch.float32, as its header says"
            )
        if not is_finite(tensor):
            raise InputError(f"{path} has '{statistic}/{key}' with numbers that are not finite; allowed: finite ones")
    return read


def _opened(path: Path, read: Callable[[Any], Any]) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            return read(file)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} can't be read: {in_one_line(error)}") from error


_NAMES: dict[type[Layout], Literal["images", "numbers", "tokens"]] = {
    Images: "images",
    Vectors: "numbers",
    Tokens: "tokens",
}
