"""An experiment of another package: throw coins, and compare how often heads came up with what they should."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.job import Job, NoInputs
from fedfisher_core.engine.plan import Outcome
from fedfisher_core.engine.store import Content, read_document
from fedfisher_core.experiments.contract import Experiment, Plan, experiments
from fedfisher_core.reporting.formats import Table
from fedfisher_core.reporting.page import PageData
from fedfisher_core.reporting.runs import Record, Runs
from fedfisher_core.settings import ExperimentSettings, Name, PageSettings, TrackingSettings, WorkSettings


class CoinSettings(ExperimentSettings):
    """Coins, and how often each is thrown."""

    name: Name = "coins"
    experiment: Literal["coin"] = "coin"
    biases: tuple[float, ...] = Field((0.3, 0.5), min_length=1, description="chances of heads, one coin each")
    throws: PositiveInt = 100
    seed: NonNegativeInt = 0
    run: WorkSettings = WorkSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()


@dataclass(frozen=True)
class ThrowCoin(Job[NoInputs]):
    """Throw one coin."""

    kind: ClassVar[str] = "coins"

    bias: float
    throws: int
    seed: int

    def settings(self) -> dict[str, float]:
        return {"bias": self.bias, "throws": self.throws, "seed": self.seed}

    def compute(self, inputs: NoInputs) -> Content:
        heads = np.random.default_rng(self.seed).random(self.throws) < self.bias
        return Content(documents={"heads.json": int(heads.sum())}, timings={"seconds": 0.0})


@dataclass(frozen=True)
class CoinRow:
    """How often a coin showed heads."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    benchmark: str
    experiment: Literal["coin"]
    bias: float
    heads: int
    artifact: str


@dataclass(frozen=True)
class CoinPlan(Plan):
    """The coins of an experiment."""

    settings: CoinSettings
    coins: tuple[ThrowCoin, ...]


def make_plan(settings: CoinSettings) -> CoinPlan:
    for bias in settings.biases:
        if not 0 <= bias <= 1:
            raise InputError(f"biases={list(settings.biases)}; allowed: from 0 to 1")
    coins = tuple(
        ThrowCoin(bias, settings.throws, settings.seed, name=f"throw a coin of {bias:g}") for bias in settings.biases
    )
    return CoinPlan(jobs=coins, settings=settings, coins=coins)


def make_rows(plan: CoinPlan, outcome: Outcome) -> list[CoinRow]:
    found = {coin.bias: outcome.artifacts[coin.name] for coin in plan.coins if coin.name in outcome.artifacts}
    return [
        CoinRow(plan.settings.name, "coin", bias, read_document(artifact, "heads.json"), artifact.key)
        for bias, artifact in found.items()
    ]


def make_files(rows: Sequence[CoinRow], page: PageData) -> dict[str, bytes]:
    versions = ", ".join(f"{name} {version}" for name, version in page.versions.items())
    return {"index.html": f"<title>{page.title}</title>{[asdict(row) for row in rows]}<p>{versions}".encode()}


def make_runs(plan: CoinPlan, outcome: Outcome, rows: Sequence[CoinRow]) -> Runs:
    single = [
        Record(
            name=f"coin {row.bias:g}",
            params={"bias": f"{row.bias:g}"},
            metrics={"heads": float(row.heads)},
            tags={"artifact": row.artifact},
        )
        for row in rows
    ]
    total = Record(name="all", params={}, metrics={"heads": float(sum(row.heads for row in rows))}, tags={})
    return Runs(single=single, summary=[total])


def make_tables(rows: Sequence[CoinRow]) -> list[Table]:
    return [Table("coins", ["bias", "heads"], [[f"{row.bias:g}", str(row.heads)] for row in rows], words=0)]


experiments.add(
    "coin",
    Experiment(
        settings=CoinSettings,
        row=CoinRow,
        plan=make_plan,
        rows=make_rows,
        files=make_files,
        runs=make_runs,
        tables=make_tables,
    ),
)
