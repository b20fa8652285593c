"""Statistics that a client may release: clipped sums over its examples with normal noise."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedfisher_core.client.local import Releasing, S
from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import evaluation_mode
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import from_matrix
from fedfisher_core.fisher.result import Fisher, require_finite
from fedfisher_core.privacy.accountant import Noise
from fedfisher_core.privacy.release import (
    add_noise,
    add_symmetric_noise,
    clip_factors,
    input_moments_clips,
    moment_deviation,
    nearest_semidefinite,
)
from fedfisher_core.privacy.sums import ClippedSums, MomentSum, clipped_sums
from fedfisher_core.settings import FisherSettings, PrivacySettings

_BATCH_SIZE = 1000
_SUMS = 2


def require_private(uploads: Iterable[type[Statistic]]) -> None:
    """Refuse, by an InputError that names the first, statistics that can't be released with privacy."""
    for one in uploads:
        if one.mechanisms is None:
            known = [statistics.get(name) for name in statistics]
            # Those that follow from the weights come first.
            allowed = sorted((other.mechanisms, other.name) for other in known if other.mechanisms is not None)
            names = ", ".join(repr(name) for _, name in allowed)
            raise InputError(f"privacy with statistic {one.name!r}; allowed: {names}")


def require_private_fisher(settings: FisherSettings) -> None:
    """Refuse, by an InputError that names the setting, settings of Fishers that privacy does not support."""
    if settings.backend != "native":
        raise InputError(f"privacy with fisher.backend={settings.backend!r}; allowed: 'native'")
    if settings.estimator not in ("auto", "exact"):
        raise InputError(f"privacy with fisher.estimator={settings.estimator!r}; allowed: 'auto', 'exact'")
    if settings.weight_sharing != "expand":
        raise InputError(f"privacy with fisher.weight_sharing={settings.weight_sharing!r}; allowed: 'expand'")


def private_fisher(
    model: nn.Module,
    inputs: Tensor,
    settings: PrivacySettings,
    *,
    approximations: Set[Approximation],
    noise_multiplier: float,
    memory_limit: int,
    generator: torch.Generator,
) -> Fisher:
    """Compute a network's exact Fisher with noise; each approximation is one Gaussian mechanism.

    The diagonal: every example's squared derivatives in all parameters, summed over output directions, are clipped to
    L2 norm `diagonal_clip`. Each element of their sum gets noise of deviation noise_multiplier `diagonal_clip`.

    K-FAC: every example's part of each of the J factors is clipped separately (see `clipped_sums`). Divided by their
    clips, all factors together change by at most sqrt(J) with an example. So the noise on a factor of clip C_j
    has deviation noise_multiplier C_j sqrt(J) on its diagonal, and 1 / sqrt(2) of that elsewhere.

    Negative elements and eigenvalues, which only noise can cause, are then set to 0. The noise of an approximation
    doesn't depend on which others are asked for. The number of examples is public.

    Args:
        inputs: examples, shape (examples, ...), of the model's type; on any device.
        noise_multiplier: of each approximation, see `Noise.release`.
        memory_limit: most bytes of working memory.
        generator: draws the noise, on the CPU; two calls on one data set need two different ones.

    Returns:
        The approximations, in the scale and on the device of `compute_fisher`.

    Raises:
        InputError: an argument is not usable.
        UnsupportedLayerError: a layer has no Fisher block.
        DivergedClientError: a weight or the Fisher is not finite.
    """
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        # Examples that aren't finite are left out, so this network would get a Fisher of noise alone.
        if not is_finite(parameter):
            raise DivergedClientError(f"weight {name!r} is not finite")
    seeds = torch.randint(2**63 - 1, (2,), generator=generator).tolist()
    for_diagonal, for_kfac = (torch.Generator().manual_seed(seed) for seed in seeds)
    with evaluation_mode(model):
        sums = clipped_sums(model, inputs, settings, approximations=approximations, memory_limit=memory_limit)
    like = next(iter(parameters.values()))
    diagonal, kfac = None, None
    if sums.squares:
        deviation = noise_multiplier * settings.diagonal_clip
        found: dict[str, Tensor] = {}
        for name, total in sums.squares.items():
            noisy = add_noise(total, deviation, for_diagonal) / len(inputs)
            found |= from_matrix(noisy.clamp(min=0).to(like), name, parameters)
        diagonal = {name: found[name] for name in parameters}
    if sums.moments:
        kfac = _noisy_factors(sums, len(inputs), noise_multiplier, for_kfac, like=like)
    fisher = Fisher(diagonal=diagonal, kfac=kfac)
    require_finite(fisher, parameters)
    return fisher


def _noisy_factors(
    sums: ClippedSums, examples: int, noise_multiplier: float, generator: torch.Generator, *, like: Tensor
) -> dict[str, Kronecker]:
    factors = sum(len(pair) for pair in sums.moments.values())

    def factor(moments: MomentSum) -> Tensor:
        deviation = moment_deviation(moments.clip, sums=factors, multiplier=noise_multiplier)
        noisy = add_symmetric_noise(moments.total, deviation, generator)
        return nearest_semidefinite(noisy * (moments.scale / examples)).to(like)

    return {
        name: Kronecker(inputs=factor(inputs), outputs=factor(outputs))
        for name, (inputs, outputs) in sums.moments.items()
    }


def private_input_moments(
    inputs: Tensor, settings: PrivacySettings, *, noise_multiplier: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Compute mean and covariance of inputs with noise, which together are one Gaussian mechanism.

    Every example x is shortened to the norm R = sqrt(`input_moments_clip` inputs). An example then changes the vector
    (sum of x / R, sum of x x^T / R^2) by at most sqrt(2) in L2 norm, and by that much where its norm is R or more. The
    noise has deviation noise_multiplier R sqrt(2) on sum of x, noise_multiplier R^2 sqrt(2) on the diagonal of sum of
    x x^T, and 1 / sqrt(2) of that elsewhere. With n_i, which is public,

        mean = (sum of x + noise) / n_i,  covariance = (sum of x x^T + noise) / n_i - mean mean^T.

    Divided by their clips, both sums count equally, as K-FAC's factors do. For the vector (x, t x x^T / R) the
    covariance would have the error sqrt(1 + t^2) |mean| / R + sqrt(2) sqrt(1 + 1 / t^2), in spectral norm, to leading
    order and in units of noise_multiplier R^2 sqrt(inputs) / n_i. With a mean as long as the clip, t = 2^(1/6) is
    best, and t = 1, which is taken, is as good to 1 %.

    Args:
        inputs: shape (examples, ...), on any device; an example that is not finite adds nothing.
        noise_multiplier: see `Noise.release`.
        generator: draws the noise, on the CPU; two calls on one data set need two different ones.

    Returns:
        The mean, shape (inputs,), and the covariance, shape (inputs, inputs), symmetric to the last bit but perhaps
        with negative eigenvalues; in double precision, on the device of the inputs.
    """
    examples = inputs.flatten(1)
    radius, square = input_moments_clips(settings, inputs=examples.shape[1])
    total, products = clipped_input_sums(examples, radius)
    first, second = (moment_deviation(clip, sums=_SUMS, multiplier=noise_multiplier) for clip in (radius, square))
    mean = add_noise(total, first, generator) / len(examples)
    moments = add_symmetric_noise(products, second, generator) / len(examples)
    return mean, moments - torch.outer(mean, mean)


def clipped_input_sums(examples: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Add up x and x x^T over examples x that are shortened to the norm `radius`.

    Args:
        examples: shape (examples, inputs); an example that is not finite adds nothing.

    Returns:
        The sum of x, shape (inputs,), and that of x x^T, shape (inputs, inputs) and symmetric, in double precision.
    """
    size = examples.shape[1]
    total = examples.new_zeros(size, dtype=torch.float64)
    products = examples.new_zeros(size, size, dtype=torch.float64)
    for batch in examples.split(_BATCH_SIZE):
        exact = batch.double()
        factors = clip_factors(exact.square().sum(1), radius)[:, None]
        shortened = torch.where(factors > 0, exact * factors, 0)
        total += shortened.sum(0)
        products += shortened.T @ shortened
    return total, (products + products.T) / 2


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
