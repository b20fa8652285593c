"""Settings of federations: what clients train and send, and what servers make of it."""

import math
from typing import Any

from pydantic import Field, model_validator

from fedfisher_core.settings.base import MAX_POINTS, MAX_UPLOADS, ByLabel, Seed, Several, Strict
from fedfisher_core.settings.clients import (
    DIRICHLET_SCHEMES,
    AuditSettings,
    DataSettings,
    PartitionSettings,
    PrivacySettings,
    TrainSettings,
)
from fedfisher_core.settings.experiment import MeasureSettings, MethodEntry, RoundSettings, Scope, SeededSetting
from fedfisher_core.settings.fishers import FisherSettings
from fedfisher_core.settings.network import ModelSettings
from fedfisher_core.settings.wire import WireSettings
from fedfisher_core.settings.work import RunSettings

_POINTS = {
    "seed": "seeds",
    "dataset": "data.dataset",
    "model": "model.name",
    "scheme": "partition.scheme",
    "alpha": "partition.alpha",
    "clients": "partition.clients",
    "shift": "partition.shift",
    "objective": "train.objective",
    "server_optimiser": "rounds.server_optimiser",
}


class RecipeSettings(Strict):
    """Settings of every experiment that trains federations."""

    seeds: Several[Seed] = Field((0, 1, 2), min_length=1)
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    fisher: FisherSettings = FisherSettings()
    statistics: dict[str, dict[str, Any]] = Field(
        {}, description="settings of what clients upload, by the statistic's name, where they differ from its defaults"
    )
    methods: ByLabel[MethodEntry] = Field(
        min_length=1,
        description="names that `fedfisher methods` lists, each with the settings that differ from its defaults, and "
        "`wire` where that differs. The key `method` names the method where the label is not its name. `only` "
        "restricts a method to some seeded settings, such as {seed: [0], clients: [5]}",
    )
    wire: WireSettings = WireSettings()
    run: RunSettings = RunSettings()


class FederationSettings(RecipeSettings):
    """Federations over all combinations of data set, model, split and seed."""

    data: DataSettings = DataSettings()
    partition: PartitionSettings = PartitionSettings()
    rounds: RoundSettings = RoundSettings()
    measures: MeasureSettings = MeasureSettings()
    skip: tuple[Scope, ...] = Field(
        (),
        max_length=100,
        description="settings that are left out, such as [{clients: 50, alpha: 0.01}], where no split exists",
    )
    privacy: PrivacySettings | None = Field(
        None, description="differential privacy of every client; all its releases, for all methods, share one budget"
    )

    audit: AuditSettings | None = Field(
        None, description="with privacy: a separate run bounds the first client's epsilon from below"
    )

    @model_validator(mode="after")
    def _audits_are_of_privacy(self) -> "FederationSettings":
        if self.audit is not None and self.privacy is None:
            raise ValueError("audit with privacy=null; allowed: with `privacy`, as it audits its epsilon")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> "FederationSettings":
        for key, values in self.points().items():
            if len(set(values)) != len(values):
                raise ValueError(f"{_POINTS[key]}={list(values)}: values must differ from each other")
        return self

    @model_validator(mode="after")
    def _bounded(self) -> "FederationSettings":
        points = math.prod(map(len, self.points().values()))
        if points > MAX_POINTS:
            raise ValueError(f"{points:,} combinations of {', '.join(_POINTS.values())}; allowed: up to {MAX_POINTS:,}")
        seeded = self.seeded_settings()
        if not seeded:
            raise ValueError(f"skip={[one.model_dump(exclude_none=True) for one in self.skip]} leaves no setting")
        rounds, unseen = self.rounds.count, self.unseen_clients
        # An unseen client trains once for each method.
        each = (rounds * (self.rounds.cohort or setting.clients - unseen) + unseen for setting in seeded)
        uploads = len(self.methods) * sum(each)
        if uploads > MAX_UPLOADS:
            over = "" if rounds == 1 else f" over {rounds:,} rounds"
            raise ValueError(
                f"{len(self.methods)} methods with all clients in {len(seeded):,} seeded settings{over} are "
                f"{uploads:,} uploads{' and personalisations' if unseen else ''}; allowed: up to {MAX_UPLOADS:,}"
            )
        return self

    @model_validator(mode="after")
    def _cohorts_are_of_clients(self) -> "FederationSettings":
        cohort, fewest = self.rounds.cohort, self.fewest_clients
        if cohort is not None and cohort > fewest:
            raise ValueError(f"rounds.cohort={cohort} exceeds partition.clients={fewest}; allowed: 1 to {fewest}")
        return self

    @model_validator(mode="after")
    def _only_folders_are_pruned(self) -> "FederationSettings":
        if self.rounds.keep is not None and isinstance(self.run.store, str):
            raise ValueError(
                f"rounds.keep={self.rounds.keep} with run.store={self.run.store!r}: others may read from the bucket; "
                "allowed: null there, or a folder"
            )
        return self

    @model_validator(mode="after")
    def _enough_clients_take_part(self) -> "FederationSettings":
        unseen, fewest, cohort = self.unseen_clients, self.fewest_clients, self.rounds.cohort
        most = fewest - (cohort or 1)
        if unseen > most:
            needed = "leaves none to take part" if cohort is None else f"leaves fewer than rounds.cohort={cohort}"
            raise ValueError(
                f"measures.personalisation.unseen_clients={unseen} of partition.clients={fewest} {needed}; "
                f"allowed: {f'1 to {most}' if most else 'personalisation: null'}"
            )
        return self

    @model_validator(mode="after")
    def _unseen_clients_are_measured(self) -> "FederationSettings":
        if self.unseen_clients and self.partition.min_size < 2:
            raise ValueError(
                f"partition.min_size={self.partition.min_size} with measures.personalisation: a client with one image "
                "has none to be measured on; allowed: 2 or more"
            )
        return self

    @model_validator(mode="after")
    def _measures_go_without_privacy(self) -> "FederationSettings":
        measures = self.measures
        asked = "barrier=true" if measures.barrier else "personalisation" if self.unseen_clients else None
        if asked is None and measures.canary is not None:
            asked = "canary"
        if asked is not None and self.privacy is not None:
            raise ValueError(
                f"measures.{asked} with privacy: it shows how well networks know clients' own examples, which no "
                "budget counts; allowed: one of them"
            )
        return self

    @model_validator(mode="after")
    def _the_client_with_the_canary_takes_part(self) -> "FederationSettings":
        if self.measures.canary is not None and self.rounds.cohort is not None:
            raise ValueError(
                f"rounds.cohort={self.rounds.cohort} with measures.canary, which client 0 holds and trains on in every "
                "round; allowed: rounds.cohort=null"
            )
        return self

    @model_validator(mode="after")
    def _public_images_are_for_privacy(self) -> "FederationSettings":
        if self.data.public_validation and self.privacy is None:
            raise ValueError("data.public_validation=true without privacy, which alone asks for it; allowed: false")
        return self

    @model_validator(mode="after")
    def _factor_bits_are_of_the_papers_format(self) -> "FederationSettings":
        own = {label: entry.wire.model_dump(exclude_unset=True) for label, entry in self.methods.items()}
        formats = {label: wire.get("format", self.wire.format) for label, wire in own.items()}
        for label, wire in own.items():
            if "factor_bits" in wire and formats[label] != "paper":
                raise ValueError(
                    f"methods.{label}.wire.factor_bits={wire['factor_bits']} with format={formats[label]!r}; allowed: "
                    "with 'paper' alone"
                )
        default = type(self.wire).model_fields["factor_bits"].default
        if self.wire.factor_bits != default and "paper" not in formats.values():
            raise ValueError(
                f"wire.factor_bits={self.wire.factor_bits} without a method whose format is 'paper'; allowed: {default}"
            )
        return self

    @model_validator(mode="after")
    def _privacy_is_of_one_round(self) -> "FederationSettings":
        if self.privacy is not None and self.rounds.count > 1:
            raise ValueError(
                f"rounds.count={self.rounds.count} with privacy: no budget counts what clients release in later "
                "rounds; allowed: 1"
            )
        return self

    @property
    def may_validate(self) -> bool:
        """Whether the server may use its validation images: with privacy, only if they are public."""
        return self.privacy is None or self.data.public_validation

    @property
    def fewest_clients(self) -> int:
        """Number of clients of the smallest federation that `skip` leaves."""
        return min(one.clients for one in self.seeded_settings())

    @property
    def unseen_clients(self) -> int:
        """Number of clients of each federation that take part in no round."""
        personalisation = self.measures.personalisation
        return 0 if personalisation is None else personalisation.unseen_clients

    def points(self) -> dict[str, tuple[Any, ...]]:
        """Return the values that each coordinate of a `SeededSetting` takes, by the coordinate's name."""
        return {
            "seed": self.seeds,
            "dataset": self.data.dataset,
            "model": self.model.name,
            "scheme": self.partition.scheme,
            "alpha": self.partition.alpha,
            "clients": self.partition.clients,
            "shift": self.partition.shift,
            "objective": tuple(self.train.objective),
            "server_optimiser": tuple(self.rounds.server_optimiser),
        }

    def seeded_settings(self) -> "tuple[SeededSetting, ...]":
        """List the seeded settings in the order of data sets, networks, objectives and so on, with seeds last."""
        return tuple(one for one in self.combinations() if not any(scope.admits(one) for scope in self.skip))

    def combinations(self) -> "tuple[SeededSetting, ...]":
        """List the seeded settings with those that `skip` leaves out."""
        return tuple(
            SeededSetting(
                dataset=dataset,
                model=model,
                scheme=scheme,
                alpha=alpha,
                clients=clients,
                shift=shift,
                seed=seed,
                objective=objective,
                server_optimiser=optimiser,
            )
            for dataset in self.data.dataset
            for model in self.model.name
            for objective in self.train.objective
            for optimiser in self.rounds.server_optimiser
            for scheme in self.partition.scheme
            for alpha in (self.partition.alpha if scheme in DIRICHLET_SCHEMES else (None,))
            for clients in self.partition.clients
            for shift in self.partition.shift
            for seed in self.seeds
        )
