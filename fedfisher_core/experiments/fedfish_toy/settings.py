"""The settings file of FedFish's toy regression."""

from typing import Literal

from fedfisher_core.regression.grid import RegressionGrid
from fedfisher_core.settings import ExperimentSettings, Name, PageSettings, TrackingSettings, WorkSettings


class FedFishToySettings(ExperimentSettings):
    """The toy regression: what is measured, and how it is carried out."""

    name: Name = "fedfish_toy"
    experiment: Literal["fedfish_toy"] = "fedfish_toy"
    toy: RegressionGrid = RegressionGrid()
    run: WorkSettings = WorkSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()
