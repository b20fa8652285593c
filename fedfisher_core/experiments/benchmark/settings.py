"""The settings of a benchmark."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from fedfisher_core.settings import (
    ByLabel,
    ExperimentSettings,
    FederationSettings,
    MethodEntry,
    Name,
    ReportSettings,
    RunSettings,
    TrackingSettings,
)

PUBLISHED = Path("reports/published_results.csv")
"""Numbers of papers, which `report.published` compares with ours."""

Track = Literal["as_published", "best_effort"]
"""How a benchmark sets its methods: each as its authors ran it, or each at its best with equal effort."""

_METHODS = ("fedavg", "fisher_merge", "regmean", "fedfisher_diag", "fedfisher_kfac", "ensemble", "local_mean")


class BenchmarkSettings(FederationSettings, ExperimentSettings):
    """One benchmark: what is compared, on what, and how it is carried out."""

    name: Name = "demo"
    experiment: Literal["benchmark"] = "benchmark"
    methods: ByLabel[MethodEntry] = Field(
        {label: MethodEntry() for label in _METHODS},
        min_length=1,
        description=FederationSettings.model_fields["methods"].description,
    )
    track: Track | None = Field(
        None,
        description="how methods are set: as_published (each as its authors ran it) or best_effort (all tuned with the "
        "same effort); default: this benchmark has its own settings. Reports show it; it changes no result",
    )
    run: RunSettings = RunSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: ReportSettings = ReportSettings()

    @model_validator(mode="after")
    def _published_numbers_are_of_test_images(self) -> "BenchmarkSettings":
        if self.report.published is not None and self.data.held_out is not None:
            raise ValueError(
                f"report.published with data.held_out={self.data.held_out}: published numbers are of test images; "
                "allowed: one of them, the other null"
            )
        return self
