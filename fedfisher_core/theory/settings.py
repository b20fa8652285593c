"""The settings file of the two-layer experiment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fedfisher_core.configuration import TWO_LAYER, name_apart, override, read_config, validate
from fedfisher_core.settings import Experiment, Name, PageSettings, TrackingSettings, WorkSettings
from fedfisher_core.theory.experiment import TwoLayerSettings


class TwoLayerBenchmark(Experiment):
    """The two-layer experiment: what is measured, and how it is carried out."""

    name: Name = "theory_two_layer"
    experiment: Literal["two_layer"] = "two_layer"
    two_layer: TwoLayerSettings = TwoLayerSettings()
    run: WorkSettings = WorkSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()


def load_two_layer(config: Path, overrides: Sequence[str] = ()) -> TwoLayerBenchmark:
    """Read a configuration file with `experiment: two_layer` and apply overrides.

    Args:
        config: a YAML file; keys that it leaves out have their defaults.
        overrides: `key=value` each, as `fedfisher_core.settings.load_settings` takes them.

    Returns:
        The settings.

    Raises:
        InputError: the file can't be read or describes another experiment, or a key or value is not allowed; it
            names the key, the value and what is allowed.
    """
    content = read_config(config, experiment=TWO_LAYER)
    original = validate(TwoLayerBenchmark, content)
    for text in overrides:
        override(content, text)
    return name_apart(validate(TwoLayerBenchmark, content), original)
