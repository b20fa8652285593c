"""Starting from weights that were trained before, elsewhere."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedfisher_core.errors import InputError
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.start import KIND, WEIGHTS, StartJob
from fedfisher_core.jobs import NoInputs
from fedfisher_core.models.batch_norm import read_running_statistics
from fedfisher_core.models.spec import ModelSpec, Parameters, models
from fedfisher_core.seeds import Stream
from fedfisher_core.settings import PretrainedSettings
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Content, Step
from fedfisher_core.trunks.reading import read_weights_file, require_numbers
from fedfisher_core.trunks.trunk import trunks
from fedfisher_core.trunks.weights import require_weights


@dataclass(frozen=True)
class ReadStart(StartJob):
    """Read the weights that all clients start from; those that the settings name are drawn.

    Args:
        pretrained: says where they are.
    """

    reads_sources: ClassVar[bool] = True

    pretrained: PretrainedSettings

    def step(self, inputs: NoInputs) -> Step:
        """See `Job.step`; the same file gives the same step, wherever it is."""
        drawn = sorted(self.pretrained.drawn)
        return Step(
            kind=KIND,
            code=source_digest(type(self), models.get(self.place.spec.name)),
            settings={
                "model": self.described(),
                "pretrained": _digest(self.pretrained),
                **({"drawn": drawn, "seed": self.place.cell.seed} if drawn else {}),
            },
        )

    def compute(self, inputs: NoInputs) -> Content:
        """See `Job.compute`.

        Raises:
            InputError: the file is another, or does not fit the network.
        """
        given = read_weights(self.pretrained, self.place.spec)
        drawn = self.place.spec.initialise(self.generator(Stream.INITIALISATION))
        return Content(tensors={WEIGHTS: {name: given.get(name, tensor) for name, tensor in drawn.items()}})


def pretrained_of(place: Place) -> PretrainedSettings | None:
    """Say which pre-trained weights the clients of a federation start from.

    Args:
        place: the federation.

    Returns:
        The settings; None where weights are drawn, as a head's on a frozen trunk are beside those of a whole network.
    """
    pretrained = place.settings.model.pretrained
    if pretrained is not None and pretrained.weights is not None and place.trunk is not None:
        return None
    return pretrained


def read_weights(pretrained: PretrainedSettings, spec: ModelSpec) -> Parameters:
    """Read weights that were trained before.

    Args:
        pretrained: says where they are, and which of a network's are not taken from there.
        spec: the network.

    Returns:
        Float32 by name, all of the network's but those that are to be drawn.

    Raises:
        InputError: the file is missing, another or not readable; or names or shapes are not the network's, or numbers
            are not finite.
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
    tensors = read_running_statistics(skeleton, read_weights_file(file, setting))
    for name, shape in wanted.items():
        given = None if name not in tensors else tuple(tensors[name].shape)
        if given != tuple(shape):
            raise InputError(
                f"{setting} has {name!r} {'nowhere' if given is None else f'in shape {given}'}; model {spec.name!r} "
                f"needs {tuple(shape)}; allowed: this shape, or to name it in model.pretrained.drawn"
            )
    # Of a layer that is drawn, the file may have a bias that the network's has not.
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
    """Find the file, make sure that it is the one, and say how an error calls it."""
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
