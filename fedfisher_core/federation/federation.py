"""The federations that settings span, and the jobs that train, aggregate and measure them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fedfisher_core.client.bound import BoundStatistic
from fedfisher_core.client.schemas import upload_schema
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.weights import Weights
from fedfisher_core.data.sampling import Sample
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs, Sent
from fedfisher_core.federation.aggregation import AggregateUploads
from fedfisher_core.federation.auditing import AuditClient
from fedfisher_core.federation.decoding import DecodeData
from fedfisher_core.federation.inputs import DataInputs, StartInputs
from fedfisher_core.federation.place import POOLED, Place, client_name
from fedfisher_core.federation.privacy import Budget
from fedfisher_core.federation.private_statistics import ReleaseStatistic
from fedfisher_core.federation.private_training import TrainPrivately
from fedfisher_core.federation.secure import AggregateSecurely
from fedfisher_core.federation.sending import SendInputs, SendUpload
from fedfisher_core.federation.splitting import SplitData
from fedfisher_core.federation.start import DrawStart
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.federation.training import TrainClient
from fedfisher_core.federation.uploads import PAYLOAD
from fedfisher_core.jobs import Job, Numerics
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import Cell, FederationSettings, Scope, WireSettings
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
    _computed: dict[tuple[Cell, int], dict[type[Statistic], ComputeStatistic]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def methods_of(self, place: Place) -> dict[str, BoundMethod]:
        """List the methods that run in a federation."""
        return {label: bound for label, bound in self.methods.items() if self.scopes[label].admits(place.cell)}

    def clients(self, place: Place) -> tuple[int, ...]:
        """List the clients that must be trained, the pooled one included where a method wants it."""
        groups = (self.members(place, bound) for bound in self.methods_of(place).values())
        return tuple(sorted({client for group in groups for client in group}))

    def members(self, place: Place, bound: BoundMethod) -> tuple[int, ...]:
        """List the clients whose uploads a method aggregates."""
        return (POOLED,) if bound.method.pooled else tuple(range(place.cell.clients))

    def statistics(self, place: Place, client: int) -> tuple[BoundStatistic, ...]:
        """List what a client must compute: the union of what its methods declare."""
        chosen = self.methods_of(place).values()
        wanted = [bound for bound in chosen if bound.method.pooled == (client == POOLED)]
        return tuple({one.statistic: one for bound in wanted for one in bound.uploads}.values())

    def jobs(self) -> Iterator[Job[Any]]:
        """List all jobs, some of them more than once."""
        for place in self.places:
            yield self.data(place)
            yield self.partition(place)
            yield self.start(place)
            if (audit := self.audit(place)) is not None:
                yield audit
            for client in self.clients(place):
                yield self.start(place, client)
                yield self.training(place, client)
                yield from self.statistics_jobs(place, client).values()
            for label, bound in self.methods_of(place).items():
                if bound.summation is None:
                    yield from (self.sending(place, client, bound) for client in self.members(place, bound))
                yield self.aggregation(place, label)

    @property
    def sample(self) -> Sample:
        """What is used of each data set."""
        return Sample(train_size=self.settings.data.train_size, held_out=self.settings.data.held_out)

    def data(self, place: Place) -> DecodeData:
        """The job that decodes the data set."""
        dataset = place.cell.dataset
        return DecodeData(dataset, self.settings.partition.column, self.sample, name=f"decode {dataset}")

    def partition(self, place: Place) -> SplitData:
        """The job that splits the data."""
        return SplitData(place, name=f"split {place.label}", needs=DataInputs(self.data(place).name))

    def start(self, place: Place, client: int = POOLED) -> DrawStart:
        """The job that draws the weights that a client starts from: the server's, unless it has its own."""
        if client == POOLED or self.settings.model.initialisation != "different":
            return DrawStart(place, POOLED, name=f"initial weights: {place.label}")
        return DrawStart(place, client, name=f"initial weights of {_title(place, client)}")

    def training(self, place: Place, client: int) -> TrainClient:
        """The job that trains a client."""
        name, needs = f"train {_title(place, client)}", self._started(place, client)
        # The pooled client has no others to go on with.
        losable = client != POOLED
        job = TrainClient(place, client, name=name, needs=needs, numerics=place.numerics, may_be_lost=losable)
        return job if self.settings.privacy is None else TrainPrivately(**vars(job), budget=self.budget(place, client))

    def audit(self, place: Place) -> AuditClient | None:
        """The job that audits the privacy of the first client; None where none is asked for."""
        if self.settings.audit is None:
            return None
        client = self.clients(place)[0]
        training, name = self.training(place, client), f"audit {_title(place, client)}"
        shared = {**vars(training), "name": name, "may_be_lost": False}
        return AuditClient(**shared, audit=self.settings.audit)

    def statistics_jobs(self, place: Place, client: int) -> dict[type[Statistic], ComputeStatistic]:
        """The jobs that compute what a client uploads beside its weights."""
        if (place.cell, client) not in self._computed:
            wanted = [one for one in self.statistics(place, client) if one.statistic is not Weights]
            self._computed[place.cell, client] = {one.statistic: self._computing(place, client, one) for one in wanted}
        return self._computed[place.cell, client]

    def _computing(self, place: Place, client: int, bound: BoundStatistic) -> ComputeStatistic:
        title, losable = _title(place, client), client != POOLED
        needs = StatisticInputs(**vars(self._started(place, client)), trained=self.training(place, client).name)
        # A client's statistics share passes over its data.
        name, task = f"{bound.statistic.name} of {title}", f"statistics of {title}"
        job = ComputeStatistic(
            place, client, bound, name=name, needs=needs, task=task, numerics=place.numerics, may_be_lost=losable
        )
        if self.settings.privacy is None:
            return job
        return ReleaseStatistic(**vars(job), budget=self.budget(place, client))

    def _started(self, place: Place, client: int) -> StartInputs[str]:
        return StartInputs(self.data(place).name, self.partition(place).name, self.start(place, client).name)

    def budget(self, place: Place, client: int) -> Budget:
        """What a client may spend on all that its methods have it release; only with differential privacy."""
        assert self.settings.privacy is not None
        return Budget(self.settings.privacy, self.settings.train, self.statistics(place, client))

    def names_of_statistics(self, place: Place, client: int, bound: BoundMethod) -> dict[str, str]:
        """Names of the jobs that make what a client uploads to a method, by the statistic's name."""
        jobs = self.statistics_jobs(place, client)
        trained = self.training(place, client).name
        return {one.name: trained if one is Weights else jobs[one].name for one in bound.method.uploads}

    def sending(self, place: Place, client: int, bound: BoundMethod) -> SendUpload:
        """The job that encodes what a client uploads to a method."""
        title, uploads, schema = _title(place, client), bound.uploads, schema_of(bound, place)
        names, form = " and ".join(one.statistic.name for one in uploads), schema.digest().hex()[:6]
        name, task = f"send {names} as {form}, {title}", f"send uploads of {title}"
        needs = SendInputs(self.partition(place).name, self.names_of_statistics(place, client, bound))
        # Clients encode on the processor.
        cpu, losable = Numerics(threads=place.numerics.threads), client != POOLED
        return SendUpload(
            place, client, uploads, schema, name=name, needs=needs, task=task, numerics=cpu, may_be_lost=losable
        )

    def aggregation(self, place: Place, label: str) -> Aggregation:
        """The job that aggregates by a method."""
        bound = self.methods[label]
        uploads = {
            client: (
                {PAYLOAD: self.sending(place, client, bound).name}
                if bound.summation is None
                else self.names_of_statistics(place, client, bound)
            )
            for client in self.members(place, bound)
        }
        sent = {one: Sent(names, self.names_of_client(place, one)) for one, names in uploads.items()}
        needs = AggregationInputs(**vars(self._started(place, POOLED)), clients=sent)
        name, numerics = f"{label}: {place.label}", place.numerics
        if bound.summation is not None:
            return AggregateSecurely(place, bound, name=name, needs=needs, numerics=numerics)
        return AggregateUploads(place, bound, schema_of(bound, place), name=name, needs=needs, numerics=numerics)

    def names_of_client(self, place: Place, client: int) -> tuple[str, ...]:
        """Names of the jobs that train a client and compute all of its statistics."""
        computed = (job.name for job in self.statistics_jobs(place, client).values())
        return (self.training(place, client).name, *computed)

    def stages(self) -> dict[str, list[str]]:
        """Name the jobs of the clients' side, and those of the servers'."""
        names: dict[str, list[str]] = {"clients": [], "aggregates": []}
        for job in self.jobs():
            names["aggregates" if isinstance(job, Aggregation) else "clients"].append(job.name)
        return names


def _title(place: Place, client: int) -> str:
    """What people read in the names of a client's jobs."""
    return f"{client_name(client)}: {place.label}"


def schema_of(bound: BoundMethod, place: Place) -> Schema:
    """Choose how a method's uploads are encoded, once a process; see `upload_schema`."""
    wire = bound.wire
    return _schema(bound.uploads, place.spec, wire.budget, wire.format, wire.factor_bits)


@cache
def _schema(uploads: tuple[BoundStatistic, ...], spec: ModelSpec, *encoding: Any) -> Schema:
    budget, family, factor_bits = encoding
    return upload_schema(uploads, spec, WireSettings(budget=budget, format=family, factor_bits=factor_bits))
