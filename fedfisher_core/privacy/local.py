"""A client that releases its Fishers with differential privacy."""

from dataclasses import dataclass
from functools import cached_property

from fedfisher_core.client.statistic import Local
from fedfisher_core.fisher.result import Fisher
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.fishers import private_fisher
from fedfisher_core.settings import PrivacySettings


@dataclass(frozen=True)
class PrivateLocal(Local):
    """A client after private training; its Fishers are clipped an example at a time and noised.

    Args:
        privacy: the clips.
        noise: of this client.
    """

    privacy: PrivacySettings
    noise: Noise

    @cached_property
    def fisher(self) -> Fisher:
        """The noisy Fisher at the trained network, computed when it is first asked for."""
        assert self.noise.release is not None
        return private_fisher(
            self.network,
            self.examples.inputs,
            self.privacy,
            approximations=self.approximations,
            noise_multiplier=self.noise.release,
            memory_limit=self.settings.memory_mib * 2**20,
            # From where it stands, so that a Fisher's noise is the same whether or not another came before it.
            generator=self.generator.clone_state(),
        )
