"""FedFish's toy regression (Section 5.1): FedAvg and FedFish where clients' inputs overlap or not."""

from fedfisher_core.experiments.fedfish_toy.settings import FedFishToySettings
from flows.experiment import experiment_flow, resolve_settings, run_experiment

DEFAULT = FedFishToySettings()


@experiment_flow
def fedfish_toy(settings: FedFishToySettings = DEFAULT, config: str | None = None) -> str:
    """Measure each overlap with each seed, report and record.

    Args:
        settings: all that is compared and how.
        config: name of a file in configs/, such as few_shot, that takes the place of the settings.
    """
    return run_experiment(resolve_settings(settings, config, default=DEFAULT))
