"""Model inversion on the mlp, all restarts at a time against one after another; run as `python -m benchmarks.attack`.

The embedded digits and the default settings. Searches and the GAN's training are cut short and their seconds scaled
up; no result is looked at. The last lines say which targets are met, by the clock.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.timing import alternate
from fedfisher_core.client.statistics.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.training import train
from fedfisher_core.data.layouts import Images
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.tensors import normalise, select
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.attack.evidence import Evidence, Knowledge, evidence_of_all
from fedfisher_core.privacy.attack.gan import Gan, train_gan
from fedfisher_core.privacy.attack.inversion import Reconstruction, invert
from fedfisher_core.privacy.attack.settings import GanSettings, InversionSettings
from fedfisher_core.settings import TrainSettings

RESTARTS, ITERATIONS = InversionSettings().restarts, InversionSettings().iterations
MEASURED_ITERATIONS, MEASURED_STEPS = 20, 10
SECONDS_ATTACK, SECONDS_GAN = 5 * 60, 15 * 60
EXAMPLES, TARGET, SHARE = 1000, 3, 0.2


@dataclass(frozen=True)
class Threat:
    """What is attacked, and by what.

    Args:
        searches: the attack by what the server sees, for a number of restarts.
        train_prior: trains the GAN for some steps of its generator.
    """

    searches: Mapping[str, Callable[[int], Reconstruction]]
    train_prior: Callable[[int], Gan]


def prepare() -> Threat:
    """Train a client for an epoch, and let the server see it in three ways."""
    dataset = read_dataset(find_source("mnist5k"))
    examples = select(dataset.train, dataset.spec, torch.arange(EXAMPLES))
    pixels = dataset.train.inputs[:EXAMPLES].float() / 255
    generator = torch.Generator().manual_seed(0)
    spec = ModelSpec("mlp", Images(1, 28, 28), classes=10)
    network = spec.load(spec.initialise(generator))
    train(network, examples, TrainSettings(epochs=1), generator=generator)
    fisher = compute_fisher(network, examples.inputs)
    assert fisher.diagonal is not None
    assert fisher.kfac is not None
    knowledge = Knowledge(network=network, auxiliary=examples.inputs, share=SHARE, target=0)
    seen: dict[str, list[Statistic]] = {
        "model": [],
        "model, K-FAC": [KFAC(fisher.kfac)],
        "model, diagonal": [DiagonalFisher(fisher.diagonal)],
    }

    def train_prior(steps: int) -> Gan:
        return train_gan(pixels, GanSettings(generator_steps=steps), generator=torch.Generator().manual_seed(1))

    def search(gan: Gan, evidence: Evidence, restarts: int) -> Reconstruction:
        return invert(
            network,
            gan,
            TARGET,
            InversionSettings(restarts=restarts, iterations=MEASURED_ITERATIONS),
            normalise=partial(normalise, spec=dataset.spec),
            generator=torch.Generator().manual_seed(2),
            evidence=evidence,
        )

    gan = train_prior(1)
    searches = {name: partial(search, gan, evidence_of_all(statistics, knowledge)) for name, statistics in seen.items()}
    return Threat(searches=searches, train_prior=train_prior)


def one_by_one(search: Callable[[int], Reconstruction]) -> None:
    """Run all restarts, each by itself."""
    for _ in range(RESTARTS):
        search(1)


def main() -> None:
    """Print seconds, the ratio to restarts one after another, and the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    threat = prepare()
    targets: dict[str, tuple[float, int]] = {}
    print(f"mlp, {RESTARTS} restarts, {arguments.threads} threads, seconds of {ITERATIONS} iterations")
    for name, search in threat.searches.items():
        measured = alternate(partial(search, RESTARTS), partial(one_by_one, search), repeats=arguments.repeats)
        together, apart = (seconds * ITERATIONS / MEASURED_ITERATIONS for seconds in measured)
        print(f"  {name:16} {together:7.1f} together {apart:7.1f} one by one {apart / together:6.2f} times")
        targets[f"attack: {name}"] = (together, SECONDS_ATTACK)
    steps = GanSettings().generator_steps
    begun = time.perf_counter()
    threat.train_prior(MEASURED_STEPS)
    targets[f"GAN, {steps} steps"] = ((time.perf_counter() - begun) / MEASURED_STEPS * steps, SECONDS_GAN)
    for what, (seconds, limit) in targets.items():
        print(f"{'met   ' if seconds < limit else 'MISSED'}  {what:30} {seconds:.1f} s (below {limit})")


if __name__ == "__main__":
    main()
