"""The typed settings that every layer shares."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)


def as_tuple(value: Any) -> Any:
    """Let a setting with several values be given as one."""
    return value if value is None or isinstance(value, list | tuple) else (value,)


def as_mapping(value: Any) -> Any:
    """Let a mapping to settings be given as a list of its keys."""
    return {key: {} for key in value} if isinstance(value, list | tuple) else value


class Strict(BaseModel):
    """Frozen settings that refuse keys they do not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataSettings(Strict):
    """Which images the clients hold."""

    dataset: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        ("mnist5k",), min_length=1, description="names that `fedfisher datasets` lists, one setting each"
    )
    validation_size: NonNegativeInt = Field(
        500, description="training images that the server holds; methods that select on them say so"
    )


PartitionScheme = Literal["dirichlet_client", "dirichlet_class", "paper", "classes", "iid", "column", "target"]
_DIRICHLET = ("dirichlet_client", "dirichlet_class", "paper", "target")


class PartitionSettings(Strict):
    """How the training images are split over clients."""

    scheme: Annotated[tuple[PartitionScheme, ...], BeforeValidator(as_tuple)] = Field(
        ("dirichlet_client",),
        min_length=1,
        description="one setting each. dirichlet_client: class proportions drawn for each client (FedFisher); "
        "dirichlet_class: client proportions drawn for each class; paper: FedFisher's fixed split; classes: k classes "
        "a client; iid; column: by a column of the data; target: all images of one label to client 0, the others by "
        "dirichlet_client (FedFisher's privacy attack)",
    )
    alpha: Annotated[tuple[PositiveFloat, ...], BeforeValidator(as_tuple)] = Field(
        (0.1, 0.5),
        min_length=1,
        description="Dirichlet concentrations, one setting each; smaller is more skewed",
    )
    clients: Annotated[tuple[PositiveInt, ...], BeforeValidator(as_tuple)] = Field(
        (5,), min_length=1, description="numbers of clients, one setting each"
    )
    min_size: PositiveInt = Field(10, description="images that every client must hold at least")
    max_retries: PositiveInt = Field(100, description="draws before a split with `min_size` is given up")
    classes_per_client: PositiveInt = Field(2, description="classes that a client holds (scheme: classes)")
    column: str | None = Field(None, description="column that names the client of an image (scheme: column)")
    target_label: NonNegativeInt | None = Field(
        None, description="label whose images client 0 holds, all of them (scheme: target)"
    )
    target_extra: NonNegativeInt = Field(
        1000, description="random images of other labels that client 0 holds beside them (scheme: target)"
    )

    @model_validator(mode="after")
    def _schemes_have_what_they_need(self) -> "PartitionSettings":
        for scheme, key, value in (
            ("column", "column", self.column),
            ("target", "target_label", self.target_label),
        ):
            if (scheme in self.scheme) != (value is not None):
                raise ValueError(f"partition.{key} must be set with partition.scheme={scheme}, and only then")
        return self

    def described(self) -> dict[str, Any]:
        """What decides a split beside the point of the benchmark, as JSON has it."""
        unused = set() if "target" in self.scheme else {"target_label", "target_extra"}
        return self.model_dump(mode="json", exclude={"scheme", "alpha", "clients"} | unused)


class ModelSettings(Strict):
    """The network that every client trains."""

    name: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        ("lenet",), min_length=1, description="names that `fedfisher models` lists, one setting each"
    )
    bias: bool = Field(False, description="whether layers have a bias; the papers' models have none")
    initialisation: Literal["same", "different"] = Field(
        "same", description="whether all clients start from the same weights, or each from its own"
    )


class TrainSettings(Strict):
    """Local training: SGD with momentum."""

    epochs: PositiveInt | None = Field(None, description="passes over a client's data; default: 30, or `steps`")
    steps: PositiveInt | None = Field(None, description="gradient steps, in place of epochs")
    learning_rate: PositiveFloat = 0.01
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 0.0
    batch_size: PositiveInt = 64

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        epochs, steps = given.get("epochs"), given.get("steps")
        if epochs is not None and steps is not None:
            raise ValueError(f"train.epochs={epochs} with train.steps={steps}; allowed: one of them, the other null")
        return {**given, "epochs": 30} if epochs is None and steps is None else given


class FisherSettings(Strict):
    """How clients compute their Fisher information."""

    backend: Literal["native", "nngeometry"] = Field(
        "native", description="nngeometry: the library that the paper used; exact only, a pass for each Fisher"
    )
    estimator: Literal["exact", "monte_carlo", "empirical"] = Field(
        "exact", description="expectation over the model's outputs: exact, sampled, or at the true labels"
    )
    samples: PositiveInt = Field(1, description="outputs drawn for each image (estimator: monte_carlo)")
    passes: Literal["shared", "separate"] = Field(
        "shared",
        description="shared: all Fishers of a client in one pass, whose seconds each of them reports; separate: a pass "
        "each, so that the seconds are each Fisher's own",
    )
    memory_mib: PositiveInt = Field(256, description="most working memory of a pass, in MiB")

    @model_validator(mode="after")
    def _nngeometry_is_exact(self) -> "FisherSettings":
        if self.backend == "nngeometry" and self.estimator != "exact":
            raise ValueError(f"fisher.estimator={self.estimator!r} with fisher.backend='nngeometry'; allowed: 'exact'")
        return self


class PrivacyMechanism(Strict):
    """How clients are kept private by DP-SGD and noise on their Fishers, whatever the budget."""

    delta: float = Field(1e-5, gt=0, lt=1, description="of (epsilon, delta); well below 1 / examples of a client")
    gradient_clip: PositiveFloat = Field(1.0, description="largest L2 norm of an example's gradient in training")
    statistics_share: float = Field(
        0.3, gt=0, lt=1, description="part of epsilon that the release of one Fisher alone would cost"
    )
    diagonal_clip: PositiveFloat = Field(
        0.1, description="largest L2 norm of an example's squared derivatives, which the diagonal Fisher averages"
    )
    input_clip: PositiveFloat = Field(
        0.5, description="of K-FAC's inputs: largest mean square of an example's inputs of a layer"
    )
    output_clip: PositiveFloat = Field(
        0.01, description="of K-FAC's outputs: largest squared norm of an example's gradients at a layer's outputs"
    )


class PrivacySettings(PrivacyMechanism):
    """Differential privacy of every client."""

    epsilon: PositiveFloat = Field(description="budget of all that one client releases: its weights and its Fishers")


Round = Literal["keys", "shares", "upload", "unmasking"]
"""The messages of a client in the protocol of secure aggregation, in their order."""


class SecureSettings(Strict):
    """How clients add up their uploads so that the server learns only the sum (wire.server_view: secure_sum)."""

    bits: Literal[32, 64] = Field(64, description="of a number under the mask; Fishers, which vary widely, need 64")
    threshold: int | None = Field(
        None, ge=2, description="clients that must stay to the end, else nothing is learned; default: more than half"
    )
    dropouts: dict[NonNegativeInt, Round] = Field(
        {},
        description="simulated: clients by number, with the first message that each fails to send: keys, shares, "
        "upload (none of them counts in the sum) or unmasking (counts)",
    )


class WireSettings(Strict):
    """What an upload may cost, and how it is encoded."""

    budget: Literal["fedavg", "none"] | PositiveInt = Field(
        "fedavg", description="bits of one client's upload: fedavg (what FedAvg sends), none, or a number"
    )
    format: Literal["fedfisher", "paper", "float32"] = Field(
        "fedfisher",
        description="how statistics are shortened to fit the budget: fedfisher (this project's), paper (FedFisher's "
        "own), float32 (not at all)",
    )
    factor_bits: int = Field(
        9, ge=2, le=24, description="bits of a number in the singular vectors of a matrix (format: paper)"
    )
    server_view: Literal["declared", "secure_sum"] = Field(
        "declared",
        description="declared: the server receives each client's upload, whatever the method needs of it; secure_sum: "
        "by secure aggregation it learns only the sum (methods that are written in sums, budget: none)",
    )
    secure: SecureSettings = SecureSettings()

    @model_validator(mode="after")
    def _sums_are_not_shortened(self) -> "WireSettings":
        if self.server_view == "secure_sum" and self.budget != "none":
            raise ValueError(
                f"wire.budget={self.budget!r} with wire.server_view='secure_sum'; allowed: 'none', since what is "
                "masked can't be shortened"
            )
        return self

    def described(self) -> dict[str, Any]:
        """The settings as JSON has them, without those of secure aggregation where there is none."""
        unused = set() if self.server_view == "secure_sum" else {"server_view", "secure"}
        return self.model_dump(mode="json", exclude=unused)


class WorkSettings(Strict):
    """How the work of any experiment is carried out."""

    runner: Literal["threads", "processes"] = "threads"
    workers: PositiveInt | None = Field(None, description="tasks at a time; default: one a core")
    torch_threads: PositiveInt = Field(1, description="threads inside one task's tensor operations")
    retries: NonNegativeInt = Field(1, description="how often a failed task is tried again")
    timeout_seconds: PositiveFloat = Field(7200, description="how long one task may take")
    store: Path = Field(Path("artifacts"), description="folder of the artifacts")
    reports: Path = Field(Path("reports"), description="folder that gets one folder a benchmark")


class RunSettings(WorkSettings):
    """How the work of a benchmark is carried out."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    min_clients: PositiveInt | None = Field(
        None,
        description="go on when clients diverge as long as this many are left; default: all must succeed",
    )


class TrackingSettings(Strict):
    """Where runs are recorded."""

    mlflow: str = Field("sqlite:///mlflow.db", description="MLflow tracking URI")
    mlflow_artifacts: Path = Field(Path("mlartifacts"), description="folder of MLflow's figures")
    prefect_api: str | None = Field(
        None, description="Prefect server; default: PREFECT_API_URL, else a temporary server"
    )

    @field_validator("mlflow")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if not value.startswith(("sqlite:///", "http://", "https://")):
            raise ValueError("must begin with sqlite:///, http:// or https://")
        return value


class PageSettings(Strict):
    """What any report says beside the numbers."""

    title: str | None = None
    notes: str = Field("", description="paragraphs for the reader")


class ReportSettings(PageSettings):
    """What the report of a benchmark says beside the numbers."""

    published: str | None = Field(
        None, description="'SOURCE, TABLE' of reports/published_results.csv to stand beside ours"
    )


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="folder name of the report")]


class Experiment(Strict):
    """What one configuration file describes."""

    name: Name

    def digest(self) -> str:
        """Digest of all settings but the name, 8 hexadecimal digits."""
        content = json.dumps(self.model_dump(mode="json", exclude={"name"}), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def to_yaml(self) -> str:
        """Write the settings as a configuration file."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


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
            for alpha in (self.partition.alpha if scheme in _DIRICHLET else (None,))
            for clients in self.partition.clients
            for seed in self.seeds
        )
        return tuple(cell for cell in every if not any(scope.admits(cell) for scope in self.skip))
