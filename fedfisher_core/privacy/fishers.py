"""Fishers that a client may release: clipped sums over its examples with normal noise."""

from collections.abc import Iterable, Set

import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.statistic import Statistic, statistics
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.errors import DivergedClientError, InputError
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import evaluation_mode
from fedfisher_core.fisher.kronecker import Kronecker
from fedfisher_core.fisher.layers import from_matrix
from fedfisher_core.fisher.result import Fisher, require_finite
from fedfisher_core.privacy.release import add_noise, add_symmetric_noise, moment_deviation, nearest_semidefinite
from fedfisher_core.privacy.sums import ClippedSums, MomentSum, clipped_sums
from fedfisher_core.settings import FisherSettings, PrivacySettings


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
        raise InputError(f"privacy with fisher.estimator={settings.estimator!r}; allowed: 'exact'")
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
