"""Statistics with their settings chosen."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from torch import Size

from fedfisher_core.client.local import Local
from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.communication.wire.budget import StatisticSpec
from fedfisher_core.communication.wire.codec import TensorSpec
from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings.choices import choose, settings_of


@dataclass(frozen=True)
class ConfiguredStatistic:
    """A statistic with its settings chosen, defaults included."""

    statistic: type[Statistic]
    settings: BaseModel

    def compute(self, local: Local) -> Statistic:
        """Compute the statistic of a client; a private client releases it with differential privacy.

        Raises:
            UnsupportedLayerError: the statistic does not exist for a layer of the network.
            InputError: the client is private, and the statistic can't be released.
        """
        return local.compute(self.statistic, vars(self.settings))

    def shapes(self, spec: ModelSpec) -> dict[str, Size]:
        """Give the tensors' shapes; see `Statistic.shapes`."""
        named = inspect.signature(self.statistic.shapes).parameters
        return self.statistic.shapes(spec, **{key: value for key, value in vars(self.settings).items() if key in named})

    def wire_spec(self, spec: ModelSpec) -> StatisticSpec:
        """Describe the statistic to the wire.

        Only the project's own `Weights` count as the model, even if another statistic has the same name.
        """
        tensors = tuple(TensorSpec(name, tuple(shape)) for name, shape in self.shapes(spec).items())
        return StatisticSpec(self.statistic.name, self.statistic.structure, tensors, is_model=self.statistic is Weights)

    def described(self) -> dict[str, Any]:
        """The settings as JSON."""
        return self.settings.model_dump(mode="json")


def configure_statistics(
    uploads: Sequence[type[Statistic]], chosen: Mapping[str, Mapping[str, Any]]
) -> tuple[ConfiguredStatistic, ...]:
    """Choose the settings of statistics.

    Args:
        chosen: settings that differ from the defaults, by the name of a statistic, which need not be an upload.

    Raises:
        InputError: a statistic or a setting is unknown, a value is not allowed, or a keyword argument of a statistic
            has no type or no default.
    """
    for name in chosen:
        _choose(statistics.get(name), chosen)
    return tuple(ConfiguredStatistic(one, _choose(one, chosen)) for one in uploads)


def _choose(statistic: type[Statistic], chosen: Mapping[str, Mapping[str, Any]]) -> BaseModel:
    name = statistic.name
    return choose(_settings_of(statistic), chosen.get(name, {}), key=f"statistics.{name}")


@cache
def _settings_of(statistic: type[Statistic]) -> type[BaseModel]:
    settings = settings_of(statistic.compute, owner="statistic", name=statistic.name)
    for parameter in inspect.signature(statistic.shapes).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in settings.model_fields:
            raise InputError(
                f"statistic {statistic.name!r}: `shapes` takes {parameter.name!r}; allowed: keyword arguments of "
                "`compute`"
            )
    return settings
