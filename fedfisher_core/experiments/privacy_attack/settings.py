"""The settings of the privacy attack."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from fedfisher_core.privacy.attack.factors import Factors
from fedfisher_core.privacy.attack.settings import EvaluatorSettings, GanSettings, InversionSettings
from fedfisher_core.settings import (
    MAX_UPLOADS,
    ByLabel,
    DataSettings,
    Examples,
    ExperimentSettings,
    FederationSettings,
    MethodEntry,
    ModelSettings,
    Name,
    PageSettings,
    PartitionSettings,
    PrivacyMechanism,
    PrivacySettings,
    RecipeSettings,
    RunSettings,
    Seed,
    Several,
    Strict,
    TrackingSettings,
    WireFields,
)
from fedfisher_core.settings.clients import Concentration, Epsilon


class AttackedData(Strict):
    """Which images the clients hold."""

    dataset: Several[str] = Field(
        ("mnist5k",), min_length=1, description="names that `fedfisher datasets` lists, of 4 classes at least"
    )


class ThreatSettings(Strict):
    """What the attacked client holds, and what the attacker has (FedFisher, Appendix E).

    The paper's text lacks its numbers of clients and images and its alpha, so the defaults are choices of this project.
    """

    target_labels: Several[Examples] = Field(
        (0, 1, 2), min_length=1, description="labels, attacked one after another; client 0 holds all images of each"
    )
    clients: int = Field(5, ge=2, le=10_000, description="the attacked one included")
    alpha: Concentration = Field(0.5, description="skew of the other clients' split (dirichlet_client)")
    extra_images: Examples = Field(
        1000, description="random images of other labels that the attacked client holds in addition"
    )
    auxiliary_images: int = Field(2000, ge=1, le=10**9, description="images of other clients that the attacker has")
    auxiliary_clients: tuple[Examples, ...] | None = Field(
        None, description="clients that they are drawn from; default: all but the attacked one"
    )

    @model_validator(mode="after")
    def _auxiliary_images_lack_the_target(self) -> "ThreatSettings":
        chosen = self.sources
        if not chosen or 0 in chosen or max(chosen) >= self.clients:
            raise ValueError(
                f"threat.auxiliary_clients={list(chosen)}; allowed: of 1 to {self.clients - 1}, at least one. Client 0 "
                f"holds the target label, and an attacker who has images of it proves nothing"
            )
        return self

    @property
    def sources(self) -> tuple[int, ...]:
        """The clients whose images the attacker has some of."""
        return tuple(range(1, self.clients)) if self.auxiliary_clients is None else self.auxiliary_clients


class PrivacyGrid(PrivacyMechanism):
    """Differential privacy at several budgets."""

    epsilon: Several[Epsilon | Literal["none"]] = Field(
        ("none",),
        min_length=1,
        description="budgets of all that a client releases, one federation each; none: without differential privacy",
    )

    def at(self, epsilon: float) -> PrivacySettings:
        """Choose one budget."""
        return PrivacySettings.model_validate({**self.model_dump(), "epsilon": epsilon})


class InversionGrid(InversionSettings):
    """The search, and what it compares of a client's K-FAC."""

    factors: Several[Factors] = Field(
        (Factors.ALL,),
        min_length=1,
        description="which Kronecker factors are compared, one attack each on methods that send them; first_inputs: "
        "A_1 alone, later_inputs: A_2 to A_L, outputs: G_1 to G_L, relative: all, each in units of its own squared "
        "size, also with differential privacy, where the others are in units of the noise",
    )


@dataclass(frozen=True)
class Victim:
    """The federations with one target label and one privacy budget, one a seed, data set and model.

    Args:
        target_label: the label whose images client 0 holds.
        epsilon: what all that a client releases may cost; None without differential privacy.
        title: distinguishes them from the other federations of the experiment.
        settings: of their training and aggregation.
    """

    target_label: int
    epsilon: float | None
    title: str
    settings: FederationSettings


class AttackSettings(RecipeSettings, ExperimentSettings):
    """A privacy attack: which clients are attacked through which methods, by which means, and how it is carried out."""

    name: Name = "privacy_attack"
    experiment: Literal["privacy_attack"] = "privacy_attack"
    seeds: Several[Seed] = Field((0, 1), min_length=1)
    data: AttackedData = AttackedData()
    threat: ThreatSettings = ThreatSettings()
    model: ModelSettings = ModelSettings(name=("mlp",))
    methods: ByLabel[MethodEntry] = Field(
        {
            "ensemble": MethodEntry(),
            "fedavg": MethodEntry(),
            "fedfisher_diag": MethodEntry(),
            "fedfisher_kfac": MethodEntry(wire=WireFields(budget="none")),
            "fedfisher_kfac, compressed": MethodEntry(method="fedfisher_kfac"),
        },
        min_length=1,
        description="as in a benchmark; each is attacked through what its uploads let the server see",
    )
    privacy: PrivacyGrid = PrivacyGrid()
    gan: GanSettings = GanSettings()
    inversion: InversionGrid = InversionGrid()
    evaluator: EvaluatorSettings = EvaluatorSettings()
    run: RunSettings = RunSettings()
    tracking: TrackingSettings = TrackingSettings()
    report: PageSettings = PageSettings()

    @model_validator(mode="after")
    def _distinct(self) -> "AttackSettings":
        for key, values in (
            ("seeds", self.seeds),
            ("data.dataset", self.data.dataset),
            ("threat.target_labels", self.threat.target_labels),
            ("privacy.epsilon", self.privacy.epsilon),
            ("inversion.factors", tuple(map(str, self.inversion.factors))),
        ):
            if len(set(values)) != len(values):
                raise ValueError(f"{key}={list(values)}: values must differ from each other")
        return self

    @model_validator(mode="after")
    def _one_objective(self) -> "AttackSettings":
        if len(self.train.objective) > 1:
            raise ValueError(
                f"train.objective={list(self.train.objective)}; allowed: one, as an attack is compared over what "
                "clients upload, not over how they train"
            )
        return self

    @model_validator(mode="after")
    def _bounded(self) -> "AttackSettings":
        trials = len(self.privacy.epsilon) * len(self.threat.target_labels)
        federations = trials * len(self.seeds) * len(self.data.dataset) * len(self.model.name)
        uploads = federations * len(self.methods) * self.threat.clients
        if uploads > MAX_UPLOADS:
            raise ValueError(
                f"{federations:,} federations of {self.threat.clients:,} clients with {len(self.methods)} methods are "
                f"{uploads:,} uploads; allowed: up to {MAX_UPLOADS:,}"
            )
        return self

    @model_validator(mode="after")
    def _no_client_may_be_missing(self) -> "AttackSettings":
        if self.run.min_clients is not None:
            raise ValueError(f"run.min_clients={self.run.min_clients}; allowed: null, as the attack needs its client")
        return self

    def victims(self) -> Iterator[Victim]:
        """List the federations of each target label, budget and, with differential privacy, method.

        With differential privacy each method has its own clients. All that a client releases shares one budget, so
        methods that need less of it train with less noise.
        """
        for epsilon in self.privacy.epsilon:
            for label in self.threat.target_labels:
                if epsilon == "none":
                    yield Victim(label, None, f"label {label}", self._federations(label, self.methods, None))
                    continue
                for name, entry in self.methods.items():
                    title = f"label {label}, epsilon {epsilon:g}, {name}"
                    privacy = self.privacy.at(epsilon)
                    yield Victim(label, epsilon, title, self._federations(label, {name: entry}, privacy))

    def _federations(
        self, label: int, methods: Mapping[str, MethodEntry], privacy: PrivacySettings | None
    ) -> FederationSettings:
        shared = {name: getattr(self, name) for name in RecipeSettings.model_fields}
        partition = PartitionSettings(
            scheme=("target",),
            target_label=label,
            target_extra=self.threat.extra_images,
            alpha=(self.threat.alpha,),
            clients=(self.threat.clients,),
        )
        # Validation images would show the target label to the server.
        data = DataSettings(dataset=self.data.dataset, validation_size=0)
        return FederationSettings(
            **{**shared, "methods": dict(methods)}, data=data, partition=partition, privacy=privacy
        )
