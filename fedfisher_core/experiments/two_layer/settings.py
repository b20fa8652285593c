"""The settings file of the two-layer experiment."""

from typing import Literal

from fedfisher_core.settings import ExperimentSettings, Name, PageSettings, TrackingSettings, WorkSettings
from fedfisher_core.theory.grid import TwoLayerGrid


class TwoLayerSettings(ExperimentSettings):
    """The two-layer experiment: what is measured, and how it is carried out."""

    name: Name = "theory_two_layer"
    experiment: Literal["two_layer"] = "two_layer"
    two_layer: TwoLayerGrid = TwoLayerGrid()
    run: WorkSettings = WorkSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()
