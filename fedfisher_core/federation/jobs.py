"""The federations that settings span, and the jobs that train, aggregate and measure them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.client.statistics.configured import ConfiguredStatistic
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.sampling import Sample
from fedfisher_core.engine.computed_once import computed_once
from fedfisher_core.engine.job import Job, Numerics, fields_of
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs, Sent
from fedfisher_core.federation.aggregation import AggregateByAsking, AggregateUploads
from fedfisher_core.federation.client_measures import Measuring
from fedfisher_core.federation.decoding import DecodeData, ExtractFeatures
from fedfisher_core.federation.federation import (
    FIRST,
    POOLED,
    DataInputs,
    Federation,
    Round,
    StartInputs,
    TrainingInputs,
    aggregation_name,
    client_title,
    testing_name,
    training_name,
)
from fedfisher_core.federation.partition import SplitData
from fedfisher_core.federation.privacy_audit import AuditClient
from fedfisher_core.federation.private_training import Budget, ReleaseStatistic, TrainPrivately
from fedfisher_core.federation.secure import AggregateSecurely
from fedfisher_core.federation.start import DrawStart, ReadStart, StartJob, pretrained_of
from fedfisher_core.federation.statistics import ComputeByTraining, ComputeStatistic, StatisticInputs
from fedfisher_core.federation.testing import MeasureModel
from fedfisher_core.federation.training import TrainClient, TrainTogether, group_of, group_size
from fedfisher_core.federation.uploads import PAYLOAD, SendInputs, SendUpload, schema_of
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.models.trunks.trunk import Trunk
from fedfisher_core.settings import FederationSettings, Scope

F = TypeVar("F", bound=Callable[..., Any])


def memoised(make: F) -> F:
    """Let a method of `Federations` make each job once, and return the same object from then on."""

    @wraps(make)
    def remembered(self: "Federations", federation: Federation, *asked: Any) -> Any:
        key = (
            make.__name__,
            federation.label,
            *(id(one) if isinstance(one, ConfiguredMethod) else one for one in asked),
        )
        if key not in self._made:
            self._made[key] = make(self, federation, *asked)
        return self._made[key]

    return remembered  # type: ignore[return-value]


@dataclass(frozen=True)
class Federations:
    """All federations of one block of settings.

    Args:
        all: federations in which at least one method runs.
        methods: by label.
        scopes: where each method runs, by label.
    """

    settings: FederationSettings
    all: tuple[Federation, ...]
    methods: Mapping[str, ConfiguredMethod]
    scopes: Mapping[str, Scope]
    # Many jobs need the same job, so each is made once. The keys are the function's name and its arguments.
    _made: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    def methods_of(self, federation: Federation) -> dict[str, ConfiguredMethod]:
        """List the methods that run in a federation."""
        return {
            label: configured
            for label, configured in self.methods.items()
            if self.scopes[label].admits(federation.setting)
        }

    @property
    def rounds(self) -> int:
        """How many rounds every federation has."""
        return self.settings.rounds.count

    def rounds_of(self, label: str) -> tuple[Round, ...]:
        """List the rounds of a method."""
        return (FIRST, *(Round(number, label) for number in range(2, self.rounds + 1)))

    def _transient(self, round_: Round) -> int | None:
        """The round's number where the results of its clients may be deleted later; None where they stay."""
        keep = self.settings.rounds.keep
        return None if keep is None or round_.number > self.rounds - keep else round_.number

    def clients(self, federation: Federation) -> tuple[int, ...]:
        """List the clients that train in the first round, including the pooled client where a method needs it."""
        groups = (self.members(federation, configured) for configured in self.methods_of(federation).values())
        return tuple(sorted({client for group in groups for client in group}))

    def members(self, federation: Federation, configured: ConfiguredMethod, round_: Round = FIRST) -> tuple[int, ...]:
        """List the clients whose uploads a method aggregates in a round."""
        return (POOLED,) if configured.method.pooled else federation.cohort(round_.number)

    def statistics(self, federation: Federation, client: int, round_: Round = FIRST) -> tuple[ConfiguredStatistic, ...]:
        """List what a client must compute for a method; in the first round, for all methods together."""
        chosen = self.methods_of(federation).values() if round_.method is None else [self.methods[round_.method]]
        wanted = [configured for configured in chosen if configured.method.pooled == (client == POOLED)]
        return tuple({one.statistic: one for configured in wanted for one in configured.uploads}.values())

    def jobs(self) -> Iterator[Job[Any]]:
        """List the jobs whose results are reported; they hold all other jobs."""
        for federation in self.all:
            yield self.decoding(federation)
            yield self.data(federation)
            yield self.partition(federation)
            if (audit := self.audit(federation)) is not None:
                yield audit
            for label in self.methods_of(federation):
                for round_ in self.rounds_of(label):
                    aggregation = self.aggregation(federation, label, round_)
                    yield aggregation
                    yield self.testing(federation, label, round_)
                yield from Measuring(label, aggregation).jobs()

    @memoised
    def testing(self, federation: Federation, label: str, round_: Round) -> MeasureModel:
        """The job that measures on the test examples what a method makes in a round."""
        return MeasureModel.of(
            self.aggregation(federation, label, round_), name=testing_name(federation, label, round_.number)
        )

    @property
    def sample(self) -> Sample:
        """What is used of each data set."""
        return Sample(examples=self.settings.data.examples, held_out=self.settings.data.held_out)

    @memoised
    def data(self, federation: Federation) -> DecodeData | ExtractFeatures:
        """The job that makes the examples as networks take them: decoded, or a trunk's features."""
        trunk, decoding = federation.trunk, self.decoding(federation)
        if trunk is None:
            return decoding
        size = self.settings.model.trunk_size or trunk.size if isinstance(trunk, Trunk) else None
        name = f"features of {federation.setting.dataset} by {trunk.name}"
        return ExtractFeatures(trunk.name, size, name=name, needs=DataInputs(decoding), numerics=federation.numerics)

    @memoised
    def decoding(self, federation: Federation) -> DecodeData:
        """The job that decodes the data set."""
        dataset, column, sizes = (
            federation.setting.dataset,
            self.settings.partition.column,
            self.settings.data.image_sizes,
        )
        return DecodeData(dataset, column, self.sample, sizes, self.settings.data.text, name=f"decode {dataset}")

    @memoised
    def partition(self, federation: Federation) -> SplitData:
        """The job that splits the data."""
        return SplitData(federation, name=f"split {federation.label}", needs=DataInputs(self.decoding(federation)))

    @memoised
    def start(self, federation: Federation, client: int = POOLED) -> StartJob:
        """The job that makes the weights that a client starts from: the server's, or the client's where they differ."""
        if (pretrained := pretrained_of(federation)) is not None:
            return ReadStart(federation, POOLED, pretrained, name=f"read pre-trained weights of {federation.label}")
        if client == POOLED or self.settings.model.initialisation != "different":
            return DrawStart(federation, POOLED, name=f"draw initial weights of {federation.label}")
        return DrawStart(federation, client, name=f"draw initial weights of {client_title(federation, client)}")

    @memoised
    def training(self, federation: Federation, client: int, round_: Round = FIRST) -> TrainClient:
        """The job that trains a client."""
        started = self._started(federation, client, round_)
        needs = TrainingInputs(**vars(started), before=self._before(federation, client, round_))
        # Without the pooled client, nothing is left to go on with.
        losable = client != POOLED
        job = TrainClient(
            federation,
            client,
            round_number=round_.number,
            name=training_name(federation, client, round_),
            needs=needs,
            numerics=federation.numerics,
            may_diverge=losable,
            transient=self._transient(round_),
        )
        if self.settings.privacy is not None:
            return TrainPrivately(**fields_of(job), budget=self.budget(federation, client))
        size = self._group_sizes[federation.label]
        members = () if size is None or client == POOLED else group_of(federation.cohort(round_.number), client, size)
        if len(members) < 2:
            return job
        task = f"train {len(members)} clients from {client_title(federation, members[0], round_)}"
        return TrainTogether(**{**fields_of(job), "task": task}, members=members)

    @computed_once
    def _group_sizes(self) -> dict[str, int | None]:
        """How many clients train in one call a step, by federation."""
        return {federation.label: group_size(federation) for federation in self.all}

    def _before(self, federation: Federation, client: int, round_: Round) -> dict[str, TrainClient]:
        """The client's last training before this round, where its objective reads the past."""
        if round_.method is None or Knowledge.PAST not in federation.objective.objective.reads:
            return {}
        configured = self.methods[round_.method]
        for number in range(round_.number - 1, 0, -1):
            earlier = FIRST if number == 1 else Round(number, round_.method)
            if client in self.members(federation, configured, earlier):
                return {str(number): self.training(federation, client, earlier)}
        return {}

    @memoised
    def audit(self, federation: Federation) -> AuditClient | None:
        """The job that audits the privacy of the first client; None where the settings ask for no audit."""
        if self.settings.audit is None:
            return None
        client = self.clients(federation)[0]
        training, name = self.training(federation, client), f"audit {client_title(federation, client)}"
        shared = {**fields_of(training), "name": name, "may_diverge": False, "transient": None}
        return AuditClient(**shared, audit=self.settings.audit)

    @memoised
    def statistics_jobs(
        self, federation: Federation, client: int, round_: Round = FIRST
    ) -> dict[type[Statistic], ComputeStatistic]:
        """The jobs that compute what a client uploads in addition to its weights."""
        wanted = [one for one in self.statistics(federation, client, round_) if one.statistic is not Weights]
        return {one.statistic: self._computing(federation, client, round_, one) for one in wanted}

    def _computing(
        self, federation: Federation, client: int, round_: Round, configured: ConfiguredStatistic
    ) -> ComputeStatistic:
        title, losable = client_title(federation, client, round_), client != POOLED
        trained = self.training(federation, client, round_)
        needs = StatisticInputs(**vars(self._started(federation, client, round_)), trained=trained)
        # A client's statistics share passes over its data. Those of further networks share the networks.
        again = configured.statistic.trains_again
        kind, task = (
            (ComputeByTraining, "statistics of further networks") if again else (ComputeStatistic, "statistics")
        )
        job = kind(
            federation,
            client,
            configured,
            round_number=round_.number,
            name=f"{configured.statistic.name} of {title}",
            needs=needs,
            task=f"compute {task} of {title}",
            numerics=federation.numerics,
            may_diverge=losable,
            transient=self._transient(round_),
        )
        if self.settings.privacy is None:
            return job
        return ReleaseStatistic(**fields_of(job), budget=self.budget(federation, client))

    def _started(self, federation: Federation, client: int, round_: Round = FIRST) -> StartInputs[Job[Any]]:
        """What a client has before it trains. From round 2 on, it starts from its method's global network."""
        start: Job[Any] = self.start(federation, client)
        if round_.method is not None:
            start = self.aggregation(federation, round_.method, self.rounds_of(round_.method)[round_.number - 2])
        return StartInputs(self.data(federation), self.partition(federation), start)

    def budget(self, federation: Federation, client: int) -> Budget:
        """What a client may spend on all that it releases to its methods; only with differential privacy."""
        assert self.settings.privacy is not None
        return Budget(self.settings.privacy, federation.train, self.statistics(federation, client))

    def uploaded(
        self, federation: Federation, client: int, configured: ConfiguredMethod, round_: Round = FIRST
    ) -> dict[str, Job[Any]]:
        """The jobs that make what a client uploads to a method, by the name of the statistic."""
        jobs, trained = self.statistics_jobs(federation, client, round_), self.training(federation, client, round_)
        return {one.name: trained if one is Weights else jobs[one] for one in configured.method.uploads}

    @memoised
    def sending(
        self, federation: Federation, client: int, configured: ConfiguredMethod, round_: Round = FIRST
    ) -> SendUpload:
        """The job that encodes what a client uploads to a method."""
        title, uploads, schema = (
            client_title(federation, client, round_),
            configured.uploads,
            schema_of(configured, federation.spec_of(client)),
        )
        names, form = " and ".join(one.statistic.name for one in uploads), schema.digest().hex()[:6]
        name, task = f"encode {names} as {form} of {title}", f"encode uploads of {title}"
        needs = SendInputs(self.partition(federation), self.uploaded(federation, client, configured, round_))
        # Clients encode on the processor.
        cpu, losable = Numerics(threads=federation.numerics.threads), client != POOLED
        shared: dict[str, Any] = {"name": name, "needs": needs, "task": task, "numerics": cpu, "may_diverge": losable}
        return SendUpload(federation, client, uploads, schema, **shared, transient=self._transient(round_))

    @memoised
    def aggregation(self, federation: Federation, label: str, round_: Round | None = None) -> Aggregation:
        """The job that aggregates by a method in a round, by default in the last."""
        if round_ is None:
            return self.aggregation(federation, label, self.rounds_of(label)[-1])
        # Each round's job holds that of the round before. Made in order, many rounds need no deep recursion.
        for earlier in self.rounds_of(label)[: round_.number - 1]:
            self.aggregation(federation, label, earlier)
        configured, numerics = self.methods[label], federation.numerics
        sent = {
            client: self._sent(federation, client, configured, round_)
            for client in self.members(federation, configured, round_)
        }
        reporting = () if federation.objective.objective.exchange is None else sent
        reports = {client: self.training(federation, client, round_) for client in reporting}
        needs = AggregationInputs(**vars(self._started(federation, POOLED, round_)), clients=sent, reports=reports)
        shared: dict[str, Any] = {
            "round_number": round_.number,
            "name": aggregation_name(federation, label, round_.number),
            "needs": needs,
            "numerics": numerics,
        }
        if configured.summation is not None:
            return AggregateSecurely(federation, configured, **shared)
        kind = AggregateByAsking if configured.method.asks_again else AggregateUploads
        return kind(federation, configured, **shared)

    def names_of_tests(self, federation: Federation, label: str) -> list[str]:
        """Names of the jobs that measure a method on the test examples, round by round."""
        return [testing_name(federation, label, round_.number) for round_ in self.rounds_of(label)]

    def measuring(self, federation: Federation, label: str) -> Measuring:
        """What is measured of a method's last network on clients' examples."""
        return Measuring(label, self.aggregation(federation, label))

    def _sent(self, federation: Federation, client: int, configured: ConfiguredMethod, round_: Round) -> Sent[Job[Any]]:
        """What a server has of a client in a round."""
        uploaded = self.uploaded(federation, client, configured, round_)
        uploads = (
            {PAYLOAD: self.sending(federation, client, configured, round_)}
            if configured.summation is None
            else uploaded
        )
        computed = {name: job for name, job in uploaded.items() if isinstance(job, ComputeStatistic)}
        # If one method loses a client, all do.
        others: tuple[Job[Any], ...] = ()
        if self.settings.run.min_clients is not None:
            others = tuple(self.statistics_jobs(federation, client, round_).values())
        return Sent(uploads, self.training(federation, client, round_), computed, others)
