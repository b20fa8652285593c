"""A client that releases its statistics with differential privacy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedfisher_core.client.local import Releasing, S
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.fishers import private_fisher, require_private
from fedfisher_core.privacy.input_moments import private_input_moments


@dataclass(frozen=True)
class PrivateLocal(Releasing):
    """A client after private training; its Fishers and input moments are clipped an example at a time and noised."""

    noise: Noise

    @computed_once
    def fisher(self) -> Fisher:
        """The noisy Fisher at the trained network, computed when it is first asked for."""
        return private_fisher(
            self.network,
            self.examples.inputs,
            self.privacy,
            approximations=self.approximations,
            noise_multiplier=self.multiplier,
            memory_limit=self.settings.memory_limit,
            # The generator's state is copied, so that a Fisher's noise does not depend on other statistics.
            generator=self.generator.clone_state(),
        )

    @property
    def multiplier(self) -> float:
        """Deviation of the noise of each mechanism other than the training, as a multiple of its clip."""
        assert self.noise.release is not None
        return self.noise.release

    def input_moments(self, name: str) -> tuple[Tensor, Tensor]:
        """See `Releasing.input_moments`."""
        return private_input_moments(
            self.examples.inputs,
            self.privacy,
            noise_multiplier=self.multiplier,
            generator=self.noise_generator(name),
        )

    def compute(self, statistic: type[S], settings: Mapping[str, Any]) -> S:
        """Release a statistic, clipped and noised, with its settings.

        Raises:
            InputError: the statistic can't be released.
        """
        require_private([statistic])
        return statistic.release(self, **settings)
