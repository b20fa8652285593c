"""The federations that settings span, and the jobs that train, aggregate and measure them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fedfisher_core.client.bound import BoundStatistic
from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.client.schemas import upload_schema
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.sampling import Sample
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs, Sent
from fedfisher_core.federation.aggregation import AggregateUploads
from fedfisher_core.federation.asking import AggregateByAsking
from fedfisher_core.federation.auditing import AuditClient
from fedfisher_core.federation.client_measures import MeasureBarrier, Personalise
from fedfisher_core.federation.decoding import DecodeData
from fedfisher_core.federation.features import ExtractFeatures
from fedfisher_core.federation.inputs import DataInputs, StartInputs, TrainingInputs
from fedfisher_core.federation.measuring import Measuring
from fedfisher_core.federation.place import POOLED, Place
from fedfisher_core.federation.pretrained import ReadStart, pretrained_of
from fedfisher_core.federation.privacy import Budget
from fedfisher_core.federation.private_statistics import ReleaseStatistic
from fedfisher_core.federation.private_training import TrainPrivately
from fedfisher_core.federation.secure import AggregateSecurely
from fedfisher_core.federation.sending import SendInputs, SendUpload
from fedfisher_core.federation.splitting import SplitData
from fedfisher_core.federation.start import DrawStart, StartJob
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.federation.testing import MeasureModel
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.training_again import ComputeByTraining
from fedfisher_core.federation.training_together import TrainTogether, group_of, group_size
from fedfisher_core.federation.turns import FIRST, Turn, aggregation_name, client_title, testing_name, training_name
from fedfisher_core.federation.uploads import PAYLOAD
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.lazily import computed_once
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FederationSettings, Scope, WireSettings
from fedfisher_core.wire.payload import Schema


@dataclass(frozen=True)
class Federations:
    """All federations of one block of settings.

    Args:
        settings: the settings.
        places: one federation each, at least one method runs in it.
        methods: by label.
        scopes: by label, where the method runs.
    """

    settings: FederationSettings
    places: tuple[Place, ...]
    methods: Mapping[str, BoundMethod]
    scopes: Mapping[str, Scope]
    # Jobs of the same client are asked for by every method.
    _computed: dict[tuple[str, int, Turn], dict[type[Statistic], ComputeStatistic]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def methods_of(self, place: Place) -> dict[str, BoundMethod]:
        """List the methods that run in a federation."""
        return {label: bound for label, bound in self.methods.items() if self.scopes[label].admits(place.cell)}

    @property
    def rounds(self) -> int:
        """How many rounds every federation has."""
        return self.settings.rounds.count

    def turns(self, label: str) -> tuple[Turn, ...]:
        """List the rounds of a method."""
        return (FIRST, *(Turn(number, label) for number in range(2, self.rounds + 1)))

    def _passing(self, turn: Turn) -> int | None:
        """Say which round it is where the tensors of its clients need not stay."""
        keep = self.settings.rounds.keep
        return None if keep is None or turn.number > self.rounds - keep else turn.number

    def clients(self, place: Place) -> tuple[int, ...]:
        """List the clients that are trained in the first round, the pooled one included where a method wants it."""
        groups = (self.members(place, bound) for bound in self.methods_of(place).values())
        return tuple(sorted({client for group in groups for client in group}))

    def members(self, place: Place, bound: BoundMethod, turn: Turn = FIRST) -> tuple[int, ...]:
        """List the clients whose uploads a method aggregates in a round."""
        return (POOLED,) if bound.method.pooled else place.cohort(turn.number)

    def statistics(self, place: Place, client: int, turn: Turn = FIRST) -> tuple[BoundStatistic, ...]:
        """List what a client must compute: what a method declares; in the first round, the union over all methods."""
        chosen = self.methods_of(place).values() if turn.method is None else [self.methods[turn.method]]
        wanted = [bound for bound in chosen if bound.method.pooled == (client == POOLED)]
        return tuple({one.statistic: one for bound in wanted for one in bound.uploads}.values())

    def jobs(self) -> Iterator[Job[Any]]:
        """List all jobs, some of them more than once."""
        for place in self.places:
            yield self.decoding(place)
            yield self.data(place)
            yield self.partition(place)
            yield self.start(place)
            if (audit := self.audit(place)) is not None:
                yield audit
            for client in self.clients(place):
                yield self.start(place, client)
                yield from self._client_jobs(place, client, FIRST)
            for label, bound in self.methods_of(place).items():
                for turn in self.turns(label):
                    for client in self.members(place, bound, turn):
                        if turn.number > 1:
                            yield from self._client_jobs(place, client, turn)
                        if bound.summation is None:
                            yield self.sending(place, client, bound, turn)
                    aggregation = self.aggregation(place, label, turn)
                    yield aggregation
                    yield MeasureModel.of(aggregation, name=testing_name(place, label, turn.number))
                yield from Measuring(label, aggregation).jobs()

    def _client_jobs(self, place: Place, client: int, turn: Turn) -> Iterator[Job[Any]]:
        yield self.training(place, client, turn)
        yield from self.statistics_jobs(place, client, turn).values()

    @property
    def sample(self) -> Sample:
        """What is used of each data set."""
        return Sample(examples=self.settings.data.examples, held_out=self.settings.data.held_out)

    def data(self, place: Place) -> DecodeData | ExtractFeatures:
        """The job that makes the examples as networks take them: a trunk's features, or what is decoded."""
        trunk, decoding = place.trunk, self.decoding(place)
        if trunk is None:
            return decoding
        size = self.settings.model.trunk_size or trunk.size
        name = f"features of {place.cell.dataset} by {trunk.name}"
        return ExtractFeatures(trunk.name, size, name=name, needs=DataInputs(decoding.name), numerics=place.numerics)

    def decoding(self, place: Place) -> DecodeData:
        """The job that decodes the data set."""
        dataset, column, sizes = place.cell.dataset, self.settings.partition.column, self.settings.data.image_sizes
        return DecodeData(dataset, column, self.sample, sizes, name=f"decode {dataset}")

    def partition(self, place: Place) -> SplitData:
        """The job that splits the data."""
        return SplitData(place, name=f"split {place.label}", needs=DataInputs(self.decoding(place).name))

    def start(self, place: Place, client: int = POOLED) -> StartJob:
        """The job that makes the weights that a client starts from: the server's, unless it has its own."""
        if (pretrained := pretrained_of(place)) is not None:
            return ReadStart(place, POOLED, pretrained, name=f"pre-trained weights: {place.label}")
        if client == POOLED or self.settings.model.initialisation != "different":
            return DrawStart(place, POOLED, name=f"initial weights: {place.label}")
        return DrawStart(place, client, name=f"initial weights of {client_title(place, client)}")

    def training(self, place: Place, client: int, turn: Turn = FIRST) -> TrainClient:
        """The job that trains a client."""
        started = self._started(place, client, turn)
        needs = TrainingInputs(**vars(started), before=self._before(place, client, turn))
        # The pooled client has no others to go on with.
        losable = client != POOLED
        job = TrainClient(
            place,
            client,
            turn=turn.number,
            name=training_name(place, client, turn),
            needs=needs,
            numerics=place.numerics,
            may_be_lost=losable,
            passing=self._passing(turn),
        )
        if self.settings.privacy is not None:
            return TrainPrivately(**vars(job), budget=self.budget(place, client))
        size = self._group_sizes[place.label]
        members = () if size is None or client == POOLED else group_of(place.cohort(turn.number), client, size)
        if len(members) < 2:
            return job
        task = f"train {len(members)} clients from {client_title(place, members[0], turn)}"
        return TrainTogether(**{**vars(job), "task": task}, members=members)

    @computed_once
    def _group_sizes(self) -> dict[str, int | None]:
        """By federation, how many clients train in one call a step."""
        return {place.label: group_size(place) for place in self.places}

    def _before(self, place: Place, client: int, turn: Turn) -> dict[str, str]:
        """Name the client's training when it last took part, where its objective looks at it."""
        if turn.method is None or place.cell.objective not in self._remembering:
            return {}
        bound = self.methods[turn.method]
        for number in range(turn.number - 1, 0, -1):
            earlier = FIRST if number == 1 else Turn(number, turn.method)
            if client in self.members(place, bound, earlier):
                return {str(number): training_name(place, client, earlier)}
        return {}

    @computed_once
    def _remembering(self) -> frozenset[str]:
        """Labels of the objectives that look at earlier rounds."""
        entries = self.settings.train.objective
        return frozenset(one for one in entries if Knowledge.PAST in bind_objective(one, entries).objective.reads)

    @computed_once
    def _reporting(self) -> frozenset[str]:
        """Labels of the objectives whose trainings report to the server."""
        entries = self.settings.train.objective
        return frozenset(one for one in entries if bind_objective(one, entries).objective.exchange is not None)

    def audit(self, place: Place) -> AuditClient | None:
        """The job that audits the privacy of the first client; None where none is asked for."""
        if self.settings.audit is None:
            return None
        client = self.clients(place)[0]
        training, name = self.training(place, client), f"audit {client_title(place, client)}"
        shared = {**vars(training), "name": name, "may_be_lost": False, "passing": None}
        return AuditClient(**shared, audit=self.settings.audit)

    def statistics_jobs(self, place: Place, client: int, turn: Turn = FIRST) -> dict[type[Statistic], ComputeStatistic]:
        """The jobs that compute what a client uploads beside its weights."""
        key = (place.label, client, turn)
        if key not in self._computed:
            wanted = [one for one in self.statistics(place, client, turn) if one.statistic is not Weights]
            self._computed[key] = {one.statistic: self._computing(place, client, turn, one) for one in wanted}
        return self._computed[key]

    def _computing(self, place: Place, client: int, turn: Turn, bound: BoundStatistic) -> ComputeStatistic:
        title, losable = client_title(place, client, turn), client != POOLED
        trained = training_name(place, client, turn)
        needs = StatisticInputs(**vars(self._started(place, client, turn)), trained=trained)
        # A client's statistics share passes over its data, and those of further networks the networks.
        again = bound.statistic.trains_again
        kind, task = (ComputeByTraining, "further networks") if again else (ComputeStatistic, "statistics")
        job = kind(
            place,
            client,
            bound,
            turn=turn.number,
            name=f"{bound.statistic.name} of {title}",
            needs=needs,
            task=f"{task} of {title}",
            numerics=place.numerics,
            may_be_lost=losable,
            passing=self._passing(turn),
        )
        if self.settings.privacy is None:
            return job
        return ReleaseStatistic(**vars(job), budget=self.budget(place, client))

    def _started(self, place: Place, client: int, turn: Turn = FIRST) -> StartInputs[str]:
        """Name what a client has before it trains: from round 2 on, the global network of its method."""
        drawn = self.start(place, client).name
        start = drawn if turn.method is None else aggregation_name(place, turn.method, turn.number - 1)
        return StartInputs(self.data(place).name, self.partition(place).name, start)

    def budget(self, place: Place, client: int) -> Budget:
        """What a client may spend on all that its methods have it release; only with differential privacy."""
        assert self.settings.privacy is not None
        return Budget(self.settings.privacy, place.train, self.statistics(place, client))

    def names_of_statistics(self, place: Place, client: int, bound: BoundMethod, turn: Turn = FIRST) -> dict[str, str]:
        """Names of the jobs that make what a client uploads to a method, by the statistic's name."""
        jobs = self.statistics_jobs(place, client, turn)
        trained = training_name(place, client, turn)
        return {one.name: trained if one is Weights else jobs[one].name for one in bound.method.uploads}

    def sending(self, place: Place, client: int, bound: BoundMethod, turn: Turn = FIRST) -> SendUpload:
        """The job that encodes what a client uploads to a method."""
        title, uploads, schema = client_title(place, client, turn), bound.uploads, schema_of(bound, place)
        names, form = " and ".join(one.statistic.name for one in uploads), schema.digest().hex()[:6]
        name, task = f"send {names} as {form}, {title}", f"send uploads of {title}"
        needs = SendInputs(self.partition(place).name, self.names_of_statistics(place, client, bound, turn))
        # Clients encode on the processor.
        cpu, losable = Numerics(threads=place.numerics.threads), client != POOLED
        shared: dict[str, Any] = {"name": name, "needs": needs, "task": task, "numerics": cpu, "may_be_lost": losable}
        return SendUpload(place, client, uploads, schema, **shared, passing=self._passing(turn))

    def aggregation(self, place: Place, label: str, turn: Turn | None = None) -> Aggregation:
        """The job that aggregates by a method in a round; without one, in the last."""
        turn = self.turns(label)[-1] if turn is None else turn
        bound, numerics = self.methods[label], place.numerics
        sent = {client: self._sent(place, client, bound, turn) for client in self.members(place, bound, turn)}
        reporting = sent if place.cell.objective in self._reporting else ()
        reports = {client: training_name(place, client, turn) for client in reporting}
        needs = AggregationInputs(**vars(self._started(place, POOLED, turn)), clients=sent, reports=reports)
        shared: dict[str, Any] = {
            "turn": turn.number,
            "name": aggregation_name(place, label, turn.number),
            "needs": needs,
            "numerics": numerics,
        }
        if bound.summation is not None:
            return AggregateSecurely(place, bound, **shared)
        kind = AggregateByAsking if bound.method.asks_again else AggregateUploads
        return kind(place, bound, schema_of(bound, place), **shared)

    def names_of_tests(self, place: Place, label: str) -> list[str]:
        """Names of the jobs that measure what a method makes on the test examples, round by round."""
        return [testing_name(place, label, turn.number) for turn in self.turns(label)]

    def measuring(self, place: Place, label: str) -> Measuring:
        """What is measured of a method's last network on clients' own examples."""
        return Measuring(label, self.aggregation(place, label))

    def _sent(self, place: Place, client: int, bound: BoundMethod, turn: Turn) -> Sent[str]:
        """Name what a server has of a client in a round."""
        uploads = (
            {PAYLOAD: self.sending(place, client, bound, turn).name}
            if bound.summation is None
            else self.names_of_statistics(place, client, bound, turn)
        )
        computed = tuple(job.name for job in self.statistics_jobs(place, client, turn).values())
        return Sent(uploads, training_name(place, client, turn), computed)

    def names_of_client(self, place: Place, client: int, turn: Turn = FIRST) -> tuple[str, ...]:
        """Names of the jobs that train a client and compute all of its statistics."""
        computed = (job.name for job in self.statistics_jobs(place, client, turn).values())
        return (training_name(place, client, turn), *computed)


def stages_of(jobs: Iterable[Job[Any]]) -> dict[str, list[str]]:
    """Name the jobs of the clients' side, and those of the servers' with what is measured of their networks.

    Those whose results pass are left out.
    """
    names: dict[str, list[str]] = {"clients": [], "aggregates": []}
    for job in jobs:
        if job.passing is None:
            after = isinstance(job, Aggregation | MeasureModel | MeasureBarrier | Personalise)
            names["aggregates" if after else "clients"].append(job.name)
    return names


def schema_of(bound: BoundMethod, place: Place) -> Schema:
    """Choose how a method's uploads are encoded, once a process; see `upload_schema`."""
    wire = bound.wire
    return _schema(bound.uploads, place.spec, wire.budget, wire.format, wire.factor_bits)


@cache
def _schema(uploads: tuple[BoundStatistic, ...], spec: ModelSpec, *encoding: Any) -> Schema:
    budget, family, factor_bits = encoding
    return upload_schema(uploads, spec, WireSettings(budget=budget, format=family, factor_bits=factor_bits))
