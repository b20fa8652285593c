"""Settings of how the work is carried out, kept, recorded and reported."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from fedfisher_core.settings.base import (
    FILE,
    Count,
    Folder,
    Line,
    Paragraphs,
    Several,
    Strict,
    as_folder,
    without_credentials,
)

_PART = "[A-Za-z0-9_.=-]+"
BUCKET = re.compile(rf"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9])(?:/(?P<prefix>{_PART}(?:/{_PART})*))?")
"""The address of a bucket, with an optional prefix of all names in it."""
_SCHEME = re.compile("[a-z][a-z0-9]+:/(?!/)")


def _place(value: Any) -> Path | str:
    if isinstance(value, str) and _SCHEME.match(value):
        raise ValueError("has one slash after its scheme; allowed: a folder, or s3://BUCKET/PREFIX")
    if isinstance(value, Path) or (isinstance(value, str) and "://" not in value):
        return as_folder(value)
    if not isinstance(value, str):
        raise ValueError("must be a folder, or s3://BUCKET/PREFIX")
    url = without_credentials(value).removesuffix("/")
    if BUCKET.fullmatch(url) is None:
        raise ValueError("must be a folder, or s3://BUCKET or s3://BUCKET/PREFIX, where BUCKET has 3 to 63 characters")
    return url


StorePlace = Annotated[Path | str, BeforeValidator(_place)]
"""The location of a store: the path of a folder, or the address of a bucket."""


class CacheSettings(Strict):
    """Where a machine keeps copies of what it has read from a bucket."""

    folder: Folder = Field(Path(".artifacts"), description="in the working directory of each process")
    gib: float = Field(
        20,
        ge=0.1,
        le=10**6,
        description="its bound: the least recently used files are removed first, but none that was used within an hour",
    )


_Threads = Annotated[int, Field(ge=1, le=1024)]

_Address = Annotated[Line, BeforeValidator(without_credentials)]
_LAST_PORT = 2**16 - 1


class DaskSettings(Strict):
    """Where tasks run with the runner `dask`."""

    scheduler: _Address | None = Field(
        None, description="address of a scheduler, such as tcp://10.0.0.1:8786; default: a cluster on this machine"
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
        None, description="tasks at a time; default: one a core. A Dask scheduler that runs already has its own workers"
    )
    clients_per_task: Annotated[int, Field(ge=1, le=10**6)] | None = Field(
        None,
        description="how many clients of one step share a task; default: one up to 100 clients a federation, above "
        "that as many as make about four tasks for each worker and step",
    )
    torch_threads: _Threads = Field(1, description="threads inside one task's tensor operations")
    retries: int = Field(1, ge=0, le=100, description="how often a failed task is tried again")
    timeout_seconds: float = Field(
        7200, ge=1, le=10**7, description="how long one task may take; with several clients in it, for each"
    )
    store: StorePlace = Field(
        Path("artifacts"),
        description="folder of the artifacts, or s3://BUCKET/PREFIX of a service with the S3 protocol; its address and "
        "credentials are read from the usual variables, such as AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID",
    )
    cache: CacheSettings = CacheSettings()
    reports: Folder = Field(Path("results"), description="folder that gets one folder an experiment")

    @property
    def elsewhere(self) -> bool:
        """Whether tasks run on the workers of a scheduler that runs already, on any machines."""
        return self.runner == "dask" and self.dask.scheduler is not None


class RunSettings(WorkSettings):
    """How the work of an experiment with federations is carried out."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    share_gpu: bool = Field(
        False, description="whether several tasks may compute on one GPU at a time; default: one after another"
    )
    min_clients: Count | None = Field(
        None,
        description="fewest clients to aggregate: a federation goes on without clients that diverge; default: all",
    )


KeptNetworks = Literal["best", "all", "none"]
"""Which global networks of a benchmark MLflow keeps."""


class TrackingSettings(Strict):
    """Where runs are recorded."""

    mlflow: _Address = Field("sqlite:///mlflow.db", description="MLflow tracking URI")
    mlflow_artifacts: Folder = Field(Path("mlartifacts"), description="folder of MLflow's figures")
    models: KeptNetworks = Field(
        "all",
        description="global networks of a benchmark that MLflow keeps as models: all runs', the best method's or none; "
        "the first of a command takes seconds, each other less than one and its own size",
    )
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
        """The SQLite file in which MLflow keeps runs; None where a server keeps them."""
        if not self.mlflow.startswith(FILE):
            return None
        # SQLAlchemy allows a query after the path, and decodes no percent signs.
        return Path(self.mlflow.removeprefix(FILE).partition("?")[0])


class PageSettings(Strict):
    """What any report says besides its numbers."""

    title: Line | None = None
    notes: Paragraphs = Field("", description="paragraphs for the reader")


class ReportSettings(PageSettings):
    """What the report of a benchmark says besides its numbers."""

    published: Several[Line] | None = Field(
        None, description="'SOURCE, TABLE' of reports/published_results.csv to show next to the results, one or several"
    )
