"""The two-layer experiment: the theory of FedFisher (Section 3, Figure 1), measured seed by seed."""

from fedfisher_core.experiments.two_layer.settings import TwoLayerSettings
from flows.experiment import experiment_flow, resolve_settings, run_experiment

DEFAULT = TwoLayerSettings()


@experiment_flow
def two_layer(settings: TwoLayerSettings = DEFAULT, config: str | None = None) -> str:
    """Measure training errors against width and local steps, report and record.

    Args:
        settings: all that is compared and how.
        config: name of a file in configs/, such as few_shot, that takes the place of the settings.
    """
    return run_experiment(resolve_settings(settings, config, default=DEFAULT))
