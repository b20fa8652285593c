"""What everybody knows of how Fishers were released: the clips of their parts, and the deviations of their noise."""

from dataclasses import dataclass

from fedfisher_core.settings import PrivacySettings


@dataclass(frozen=True)
class Release:
    """How clients released their Fishers; all of it is public.

    Args:
        settings: the clips.
        multiplier: deviation of the noise of each mechanism, as a multiple of its clip.
        num_examples: n_i of the clients, the attacked one first.
    """

    settings: PrivacySettings
    multiplier: float
    num_examples: tuple[int, ...]


def moment_clips(settings: PrivacySettings, *, windows: int, columns: int) -> tuple[float, float]:
    """Find the clips of what an example adds to the sums that a layer's Kronecker factors are made of.

    Args:
        settings: the clips of all layers.
        windows: places of one example that the layer looks at; 1 for a linear layer.
        columns: of the layer's matrix, its inputs with that of a bias.

    Returns:
        Largest Frobenius norms of an example's sum of x x^T, and of its sum of g g^T.
    """
    return settings.input_clip * windows * columns, settings.output_clip


def moment_deviation(clip: float, *, factors: int, multiplier: float) -> float:
    """Find the deviation of the noise on one of these sums.

    Divided by their clips, all factors together change by at most sqrt(factors) with an example.

    Args:
        clip: of the sum.
        factors: how many the network has, two a layer.
        multiplier: of the mechanism that releases all of them.

    Returns:
        The deviation on the diagonal; elsewhere it is 1 / sqrt(2) of that.
    """
    return multiplier * clip * factors**0.5
