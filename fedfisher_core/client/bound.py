"""Statistics with their settings chosen."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistic import Statistic, statistics
from fedfisher_core.client.weights import Weights
from fedfisher_core.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.signatures import choose, settings_of
from fedfisher_core.wire.budget import StatisticSpec
from fedfisher_core.wire.codec import TensorSpec


@dataclass(frozen=True)
class BoundStatistic:
    """A statistic with its settings chosen.

    Args:
        statistic: the statistic.
        settings: all of its settings, defaults included.
    """

    statistic: type[Statistic]
    settings: BaseModel

    def compute(self, local: Local) -> Statistic:
        """Compute the statistic of a client.

        Args:
            local: the trained client; what a private one returns is released with differential privacy.

        Returns:
            The statistic, its tensors on the network's device.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
            InputError: the client is private, and the statistic can't be.
        """
        return local.compute(self.statistic, self._chosen())

    def shapes(self, spec: ModelSpec) -> dict[str, Size]:
        """Name the tensors and their shapes.

        Args:
            spec: the network that clients train.

        Returns:
            Shapes by name, in the order in which the tensors are sent.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
        """
        named = inspect.signature(self.statistic.shapes).parameters
        return self.statistic.shapes(spec, **{key: value for key, value in self._chosen().items() if key in named})

    def wire_spec(self, spec: ModelSpec) -> StatisticSpec:
        """Describe the statistic to the wire.

        Args:
            spec: the network that clients train.

        Returns:
            Its name, structure and shapes. Only the project's own `Weights` are those of the model, whatever else a
            statistic calls itself.
        """
        tensors = tuple(TensorSpec(name, tuple(shape)) for name, shape in self.shapes(spec).items())
        return StatisticSpec(self.statistic.name, self.statistic.structure, tensors, is_model=self.statistic is Weights)

    def described(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return self.settings.model_dump(mode="json")

    def _chosen(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in type(self.settings).model_fields}


def bind_statistics(
    uploads: Sequence[type[Statistic]], chosen: Mapping[str, Mapping[str, Any]]
) -> tuple[BoundStatistic, ...]:
    """Choose the settings of statistics.

    Args:
        uploads: the statistics.
        chosen: settings that differ from the defaults, by the name of a statistic; it may be one that is not sent.

    Returns:
        The statistics with their settings, in their order.

    Raises:
        InputError: a statistic or a setting is unknown, a value is not allowed, or a keyword argument of a statistic
            has no type or no default.
    """
    for name in chosen:
        _choose(statistics.get(name), chosen)
    return tuple(BoundStatistic(one, _choose(one, chosen)) for one in uploads)


def _choose(statistic: type[Statistic], chosen: Mapping[str, Mapping[str, Any]]) -> BaseModel:
    name = statistic.name
    return choose(_settings_of(statistic), chosen.get(name, {}), key=f"statistics.{name}")


@cache
def _settings_of(statistic: type[Statistic]) -> type[BaseModel]:
    """The keyword arguments of a statistic's computation as a model."""
    settings = settings_of(statistic.compute, owner="statistic", name=statistic.name)
    for parameter in inspect.signature(statistic.shapes).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in settings.model_fields:
            raise InputError(
                f"statistic {statistic.name!r}: `shapes` takes {parameter.name!r}; allowed: keyword arguments of "
                "`compute`"
            )
    return settings
