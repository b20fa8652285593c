"""The settings of a benchmark, and the points that they span."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from fedfisher_core.settings.base import Experiment, Name, Strict, as_mapping, as_tuple
from fedfisher_core.settings.clients import (
    DIRICHLET_SCHEMES,
    DataSettings,
    FisherSettings,
    ModelSettings,
    PartitionScheme,
    PartitionSettings,
    PrivacySettings,
    TrainSettings,
)
from fedfisher_core.settings.wire import WireSettings
from fedfisher_core.settings.work import ReportSettings, RunSettings, TrackingSettings


class Cell(Strict):
    """One point of a benchmark: everything else is the same for all points."""

    dataset: str
    model: str
    scheme: PartitionScheme
    alpha: float | None
    clients: PositiveInt
    seed: NonNegativeInt

    @property
    def setting(self) -> str:
        """Short name of all but the seed."""
        skew = "" if self.alpha is None else f"alpha={self.alpha:g} "
        return f"{self.dataset} {self.model} {self.scheme} {skew}clients={self.clients}"

    @property
    def label(self) -> str:
        """Short name for run names and figures."""
        return f"{self.setting} seed={self.seed}"


class Scope(Strict):
    """Some of the points of a benchmark; a coordinate that is not given is free."""

    dataset: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    model: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    scheme: Annotated[tuple[PartitionScheme, ...] | None, BeforeValidator(as_tuple)] = None
    alpha: Annotated[tuple[float, ...] | None, BeforeValidator(as_tuple)] = None
    clients: Annotated[tuple[int, ...] | None, BeforeValidator(as_tuple)] = None
    seed: Annotated[tuple[int, ...] | None, BeforeValidator(as_tuple)] = None

    def admits(self, cell: Cell) -> bool:
        """Say whether a point of the benchmark is within."""
        chosen = {key: getattr(self, key) for key in type(self).model_fields}
        return all(values is None or getattr(cell, key) in values for key, values in chosen.items())


_POINTS = {
    "seed": "seeds",
    "dataset": "data.dataset",
    "model": "model.name",
    "scheme": "partition.scheme",
    "alpha": "partition.alpha",
    "clients": "partition.clients",
}


class Settings(Experiment):
    """One benchmark: what is compared, on what, and how it is carried out."""

    name: Name = "demo"
    seeds: Annotated[tuple[NonNegativeInt, ...], BeforeValidator(as_tuple)] = Field((0, 1, 2), min_length=1)
    data: DataSettings = DataSettings()
    partition: PartitionSettings = PartitionSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    fisher: FisherSettings = FisherSettings()
    methods: Annotated[dict[str, dict[str, Any]], BeforeValidator(as_mapping)] = Field(
        {
            "fedavg": {},
            "fisher_merge": {},
            "regmean": {},
            "fedfisher_diag": {},
            "fedfisher_kfac": {},
            "ensemble": {},
            "local_mean": {},
        },
        min_length=1,
        description="names that `fedfisher methods` lists, each with the settings that differ from its defaults, and "
        "`wire` where that differs. Under a label of its own, a method is named by the key `method`. `only` restricts "
        "a method to some of the points, such as {seed: [0], clients: [5]}",
    )
    skip: tuple[Scope, ...] = Field(
        (), description="points that are left out, such as [{clients: 50, alpha: 0.01}], where no split exists"
    )
    wire: WireSettings = WireSettings()
    privacy: PrivacySettings | None = Field(
        None, description="differential privacy of every client; what methods have it release shares one budget"
    )
    run: RunSettings = RunSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: ReportSettings = ReportSettings()

    @model_validator(mode="after")
    def _distinct(self) -> "Settings":
        for key, values in self.points().items():
            if len(set(values)) != len(values):
                raise ValueError(f"{_POINTS[key]}={list(values)}: values must differ from each other")
        return self

    @model_validator(mode="after")
    def _something_left(self) -> "Settings":
        if not self.cells():
            raise ValueError(f"skip={[one.model_dump(exclude_none=True) for one in self.skip]} leaves no point")
        return self

    def points(self) -> dict[str, tuple[Any, ...]]:
        """List the values that each coordinate of a `Cell` takes, by the coordinate's name."""
        return {
            "seed": self.seeds,
            "dataset": self.data.dataset,
            "model": self.model.name,
            "scheme": self.partition.scheme,
            "alpha": self.partition.alpha,
            "clients": self.partition.clients,
        }

    def cells(self) -> "tuple[Cell, ...]":
        """List the combinations of data set, model, scheme, alpha, number of clients and seed, in that order."""
        every = (
            Cell(dataset=dataset, model=model, scheme=scheme, alpha=alpha, clients=clients, seed=seed)
            for dataset in self.data.dataset
            for model in self.model.name
            for scheme in self.partition.scheme
            for alpha in (self.partition.alpha if scheme in DIRICHLET_SCHEMES else (None,))
            for clients in self.partition.clients
            for seed in self.seeds
        )
        return tuple(cell for cell in every if not any(scope.admits(cell) for scope in self.skip))
