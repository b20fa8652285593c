"""The weights that clients start from: drawn, or pre-trained elsewhere."""

import hashlib
from abc import ABC
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch

from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import NoInputs
from fedfisher_core.engine.seeds import Stream
from fedfisher_core.engine.store import Artifact, Content, read_tensors
from fedfisher_core.federation.federation import ClientJob, Federation
from fedfisher_core.models.batch_norm import read_running_statistics
from fedfisher_core.models.spec import ModelSpec, Parameters, models
from fedfisher_core.models.trunks.reading import read_weights_file, require_numbers
from fedfisher_core.models.trunks.trunk import require_weights, trunks
from fedfisher_core.settings import PretrainedSettings

WEIGHTS = "weights.safetensors"
KIND = "starts"

NETWORK = "network_{}.safetensors"
"""File of each network of an aggregation; the next round starts from the first."""


@dataclass(frozen=True)
class StartJob(ClientJob[NoInputs], ABC):
    """Make initial weights."""

    kind: ClassVar[str] = KIND
    version: ClassVar[int] = 1
    action: ClassVar[str] = "start"

    def described(self) -> dict[str, Any]:
        """Describe the network, as JSON has it."""
        spec, code = self.federation.spec, code_of(models.get(self.federation.spec.name))
        return {
            "name": spec.identity,
            "code": code,
            "inputs": str(spec.inputs),
            "classes": spec.classes,
            "bias": spec.bias,
            **spec.lora.described,
        }


@dataclass(frozen=True)
class DrawStart(StartJob):
    """Draw initial weights. The pooled client's are also the server's, and all clients' where they start alike."""

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; all federations with the same network and seed share it."""
        return {"model": self.described(), "seed": self.federation.setting.seed, "branch": self.branch}

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`."""
        return Content(tensors={WEIGHTS: self.federation.spec.initialise(self.generator(Stream.INITIALISATION))})


def load_start(artifact: Artifact, device: torch.device) -> Parameters:
    """Read the weights that a round starts from, as a copy for the caller.

    The last two stay in memory, as all clients of a round ask for them.

    Args:
        artifact: made by `DrawStart` or `ReadStart`, or by the aggregation of the round before.
    """
    return {name: tensor.to(device, copy=True) for name, tensor in _read(artifact).items()}


@lru_cache(maxsize=2)
def _read(artifact: Artifact) -> Parameters:
    return read_tensors(artifact, WEIGHTS if artifact.kind == KIND else NETWORK.format(0))


@dataclass(frozen=True)
class ReadStart(StartJob):
    """Read the weights that all clients start from; those that the settings name are drawn instead."""

    reads_sources: ClassVar[bool] = True

    pretrained: PretrainedSettings

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`; the same file gives the same key in any folder."""
        drawn = sorted(self.pretrained.drawn)
        return {
            "model": self.described(),
            "pretrained": _digest(self.pretrained),
            **({"drawn": drawn, "seed": self.federation.setting.seed} if drawn else {}),
        }

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the file is not the one that the settings name, or does not fit the network.
        """
        given = read_weights(self.pretrained, self.federation.spec)
        drawn = self.federation.spec.initialise(self.generator(Stream.INITIALISATION))
        return Content(tensors={WEIGHTS: {name: given.get(name, tensor) for name, tensor in drawn.items()}})


def pretrained_of(federation: Federation) -> PretrainedSettings | None:
    """The pre-trained weights that a federation's clients start from; None where weights are drawn.

    Weights of a whole network do not serve a head on a frozen trunk, which is drawn.
    """
    pretrained = federation.settings.model.pretrained
    if pretrained is not None and pretrained.weights is not None and federation.trunk is not None:
        return None
    return pretrained


def read_weights(pretrained: PretrainedSettings, spec: ModelSpec) -> Parameters:
    """Read pre-trained weights: float32 by name, all of the network's except those that are to be drawn.

    Raises:
        InputError: the file is missing, not the one that the settings name, or not readable. Or names or shapes are not
            the network's, or numbers are not finite.
    """
    file, setting = _file(pretrained)
    skeleton = spec.skeleton()
    shapes = {name: tensor.shape for name, tensor in skeleton.named_parameters()}
    unknown = sorted(set(pretrained.drawn) - shapes.keys())
    if unknown:
        raise InputError(
            f"model.pretrained.drawn={unknown}: model {spec.name!r} has no such weights; allowed: {', '.join(shapes)}"
        )
    wanted = {name: shape for name, shape in shapes.items() if name not in pretrained.drawn}
    given = read_weights_file(file, setting)
    if pretrained.weights is not None:
        unused = trunks.get(pretrained.weights).unused
        given = {name: tensor for name, tensor in given.items() if not name.startswith(unused)}
    tensors = read_running_statistics(skeleton, given)
    for name, shape in wanted.items():
        found = None if name not in tensors else tuple(tensors[name].shape)
        if found != tuple(shape):
            raise InputError(
                f"{setting} has {name!r} {'nowhere' if found is None else f'in shape {found}'}; model {spec.name!r} "
                f"needs {tuple(shape)}; allowed: this shape, or to name it in model.pretrained.drawn"
            )
    # For a layer that is drawn, the file may have a bias that the network lacks.
    replaced = {_layer(name) for name in pretrained.drawn}
    left = sorted(name for name in tensors.keys() - shapes.keys() if _layer(name) not in replaced)
    if left:
        raise InputError(
            f"{setting} has {', '.join(left)}, which model {spec.name!r} has not; allowed: its weights only"
        )
    return {name: require_numbers(name, tensors[name], setting) for name in wanted}


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _digest(pretrained: PretrainedSettings) -> str:
    return trunks.get(pretrained.weights).sha256 if pretrained.weights is not None else str(pretrained.sha256)


def _file(pretrained: PretrainedSettings) -> tuple[Path, str]:
    """Find the file, check its digest, and return what an error calls it."""
    if pretrained.weights is not None:
        setting = f"model.pretrained.weights={pretrained.weights}"
        try:
            return require_weights(trunks.get(pretrained.weights)), setting
        except InputError as error:
            raise InputError(f"{setting}: {error}") from error
    assert pretrained.file is not None
    setting = f"model.pretrained.file={pretrained.file}"
    if not pretrained.file.is_file():
        raise InputError(f"{setting}: there is no such file")
    if (found := hashlib.sha256(pretrained.file.read_bytes()).hexdigest()) != pretrained.sha256:
        raise InputError(f"{setting} has the SHA-256 {found}; allowed: model.pretrained.sha256={pretrained.sha256}")
    return pretrained.file, setting
