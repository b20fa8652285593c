"""Settings of how the work is carried out, recorded and reported."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from fedfisher_core.settings.base import FILE, Count, Folder, Line, Paragraphs, Several, Strict, without_credentials
from fedfisher_core.settings.places import CacheSettings, StorePlace

_Threads = Annotated[int, Field(ge=1, le=1024)]

_Address = Annotated[Line, BeforeValidator(without_credentials)]
_LAST_PORT = 2**16 - 1


class DaskSettings(Strict):
    """Where tasks run with the runner `dask`."""

    scheduler: _Address | None = Field(
        None, description="address of a scheduler, such as tcp://10.0.0.1:8786; default: a cluster on this machine"
    )
    straggler_seconds: float = Field(
        600,
        ge=1,
        le=10**7,
        description="after how long a task that still runs is started on another worker as well; "
        "twice as long where it was handed over behind another",
    )

    @field_validator("scheduler")
    @classmethod
    def _known_scheme(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"(tcp|tls)://[^/\s]+:\d{1,5}", value) is None:
            raise ValueError("must be tcp://HOST:PORT or tls://HOST:PORT")
        if value is not None and int(value.rpartition(":")[2]) > _LAST_PORT:
            raise ValueError(f"has a port beyond {_LAST_PORT}")
        return value


class WorkSettings(Strict):
    """How the work of any experiment is carried out."""

    runner: Literal["threads", "processes", "dask"] = Field(
        "threads",
        description="where tasks run: threads of the command start at once; processes start seconds later and train "
        "small networks on small batches faster (`python -m benchmarks.runners`); dask has workers anywhere",
    )
    dask: DaskSettings = DaskSettings()
    workers: _Threads | None = Field(
        None, description="tasks at a time; default: one a core. A Dask scheduler that is there has workers of its own"
    )
    torch_threads: _Threads = Field(1, description="threads inside one task's tensor operations")
    retries: int = Field(1, ge=0, le=100, description="how often a failed task is tried again")
    timeout_seconds: float = Field(7200, ge=1, le=10**7, description="how long one task may take")
    store: StorePlace = Field(
        Path("artifacts"),
        description="folder of the artifacts, or s3://BUCKET/PREFIX of a service that speaks S3; its address and "
        "credentials are where all tools look for them, such as AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID",
    )
    cache: CacheSettings = CacheSettings()
    reports: Folder = Field(Path("results"), description="folder that gets one folder an experiment")

    @property
    def elsewhere(self) -> bool:
        """Whether tasks run on the workers of a scheduler that is there, on whatever machines."""
        return self.runner == "dask" and self.dask.scheduler is not None


class RunSettings(WorkSettings):
    """How the work of a benchmark is carried out."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    share_gpu: bool = Field(
        False, description="whether as many tasks as run at a time may compute on one GPU; default: one after another"
    )
    min_clients: Count | None = Field(
        None,
        description="go on when clients diverge as long as this many are left; default: all must succeed",
    )


class TrackingSettings(Strict):
    """Where runs are recorded."""

    mlflow: _Address = Field("sqlite:///mlflow.db", description="MLflow tracking URI")
    mlflow_artifacts: Folder = Field(Path("mlartifacts"), description="folder of MLflow's figures")
    prefect_api: _Address | None = Field(
        None, description="Prefect server; default: PREFECT_API_URL, else a temporary server"
    )

    @field_validator("mlflow")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if not value.startswith((FILE, "http://", "https://")):
            raise ValueError("must begin with sqlite:///, http:// or https://")
        return value

    @property
    def database(self) -> Path | None:
        """The SQLite file that MLflow keeps runs in; None where a server keeps them."""
        if not self.mlflow.startswith(FILE):
            return None
        # As SQLAlchemy reads it: a query may follow, and nothing is percent-encoded.
        return Path(self.mlflow.removeprefix(FILE).partition("?")[0])


class PageSettings(Strict):
    """What any report says beside the numbers."""

    title: Line | None = None
    notes: Paragraphs = Field("", description="paragraphs for the reader")


class ReportSettings(PageSettings):
    """What the report of a benchmark says beside the numbers."""

    published: Several[Line] | None = Field(
        None, description="'SOURCE, TABLE' of reports/published_results.csv to stand beside ours, one or several"
    )
