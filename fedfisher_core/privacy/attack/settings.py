"""The settings of an inversion attack: its generative prior, the inversion itself, and the judge of the result."""

from typing import Annotated

from pydantic import Field

from fedfisher_core.settings import Count, Nonnegative, Positive, Steps, Strict

_Decay = Annotated[float, Field(ge=0, lt=1)]


class GanSettings(Strict):
    """The generative prior, trained by WGAN-GP on images that the attacker has.

    GMI (Zhang et al. 2020) trains width=64 with learning_rate=2e-4 for 100 epochs, 3100 generator steps on 10000
    images; the defaults give digits in minutes on a processor.
    """

    latent: Count = Field(100, description="numbers that the generator makes an image of")
    width: Count = Field(
        16, description="filters next to the image; the two layers further away have twice and four times as many"
    )
    generator_steps: Steps = Field(500, description="updates of the generator")
    critic_steps: Count = Field(5, description="updates of the critic before each of the generator")
    batch_size: Annotated[int, Field(ge=2, le=10**6)] = Field(
        64, description="images of an update, real and generated each"
    )
    learning_rate: Positive = Field(1e-3, description="of Adam, for both networks")
    betas: tuple[_Decay, _Decay] = Field((0.5, 0.999), description="of Adam: decay of the mean and of the square")
    gradient_penalty: Nonnegative = Field(10.0, description="factor of the critic's gradient penalty")


class InversionSettings(Strict):
    """The search for latents whose images fit what the server sees."""

    restarts: Count = Field(5, description="searches from other latents, of which the best is kept")
    images: Count = Field(
        16, description="images that a restart reconstructs together; statistics are averaged over them"
    )
    iterations: Steps = Field(1500, description="updates of the latents")
    learning_rate: Positive = Field(0.01, description="step size of the latents")
    momentum: _Decay = Field(0.9, description="share of the velocity that an update keeps")
    clip: Positive = Field(1.0, description="largest absolute value of a latent")
    identity_weight: Nonnegative = Field(
        100.0, description="weight of the target network's cross-entropy, next to the critic's score"
    )
    statistics_weight: Nonnegative = Field(
        1000.0,
        description="weight of the squared difference from the given statistic, summed over all elements, in units of "
        "the given one's squares, summed likewise",
    )


class EvaluatorSettings(Strict):
    """The classifier that judges reconstructions, trained on all clients' images."""

    epochs: Count = 3
    learning_rate: Positive = Field(2e-3, description="of Adam at the start; it falls to 0 along a half cosine")
    batch_size: Annotated[int, Field(ge=2, le=10**6)] = 128
    filters: Count = Field(16, description="of the first of five convolutions; the last has four times as many")
