"""The federations that settings span, and the jobs that train, aggregate and measure them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fedfisher_core.client.bound import BoundStatistic
from fedfisher_core.client.schemas import upload_schema
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.client.weights import Weights
from fedfisher_core.federation.aggregating import Aggregation, AggregationInputs
from fedfisher_core.federation.aggregation import AggregateUploads
from fedfisher_core.federation.decoding import DecodeData
from fedfisher_core.federation.place import POOLED, Place
from fedfisher_core.federation.private_statistics import ReleaseStatistic
from fedfisher_core.federation.private_training import TrainPrivately
from fedfisher_core.federation.secure_aggregation import AggregateSecurely
from fedfisher_core.federation.sending import SendInputs, SendUpload
from fedfisher_core.federation.splitting import PartitionInputs, SplitData
from fedfisher_core.federation.start import DrawStart, start_of
from fedfisher_core.federation.statistics import ComputeStatistic, StatisticInputs
from fedfisher_core.federation.training import ClientInputs, TrainClient
from fedfisher_core.federation.uploads import PAYLOAD, Sent
from fedfisher_core.jobs import Job
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import Cell, FederationSettings, Scope, WireSettings
from fedfisher_core.wire.payload import Schema

AnyJob = Job[Any]


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
        chosen = self.methods_of(place).values()
        ordinary = any(not bound.method.pooled for bound in chosen)
        pooled = any(bound.method.pooled for bound in chosen)
        return ((POOLED,) if pooled else ()) + (tuple(range(place.cell.clients)) if ordinary else ())

    def members(self, place: Place, bound: BoundMethod) -> tuple[int, ...]:
        """List the clients whose uploads a method aggregates."""
        return (POOLED,) if bound.method.pooled else tuple(range(place.cell.clients))

    def statistics(self, place: Place, client: int) -> tuple[BoundStatistic, ...]:
        """List what a client must compute: the union of what its methods declare."""
        chosen = self.methods_of(place).values()
        wanted = [bound for bound in chosen if bound.method.pooled == (client == POOLED)]
        return tuple({one.statistic: one for bound in wanted for one in bound.uploads}.values())

    def jobs(self) -> Iterator[AnyJob]:
        """List all jobs, some of them more than once."""
        for place in self.places:
            yield self.data(place)
            yield self.partition(place)
            yield DrawStart(place)
            for client in self.clients(place):
                yield start_of(place, client)
                yield self.training(place, client)
                yield from self.statistics_jobs(place, client).values()
            for label, bound in self.methods_of(place).items():
                if bound.summation is None:
                    yield from (self.sending(place, client, bound) for client in self.members(place, bound))
                yield self.aggregation(place, label)

    def data(self, place: Place) -> DecodeData:
        """The job that decodes the data set."""
        return DecodeData(place.cell.dataset, self.settings.partition.column)

    def partition(self, place: Place) -> SplitData:
        """The job that splits the data."""
        return SplitData(place, PartitionInputs(self.data(place).name))

    def training(self, place: Place, client: int) -> TrainClient:
        """The job that trains a client."""
        needs = ClientInputs(
            data=self.data(place).name,
            partition=self.partition(place).name,
            start=start_of(place, client).name,
        )
        if self.settings.privacy is None:
            return TrainClient(place, client, needs)
        return TrainPrivately(place, client, needs, tuple(one.statistic for one in self.statistics(place, client)))

    def statistics_jobs(self, place: Place, client: int) -> dict[type[Statistic], ComputeStatistic]:
        """The jobs that compute what a client uploads beside its weights."""
        if (place.cell, client) not in self._computed:
            self._computed[place.cell, client] = self._statistics_jobs(place, client)
        return self._computed[place.cell, client]

    def _statistics_jobs(self, place: Place, client: int) -> dict[type[Statistic], ComputeStatistic]:
        wanted = self.statistics(place, client)
        needs = StatisticInputs(
            data=self.data(place).name,
            partition=self.partition(place).name,
            start=start_of(place, client).name,
            trained=self.training(place, client).name,
        )
        together = tuple(one.statistic for one in wanted)
        beside = [one for one in wanted if one.statistic is not Weights]
        if self.settings.privacy is None:
            return {one.statistic: ComputeStatistic(place, client, one, needs) for one in beside}
        return {one.statistic: ReleaseStatistic(place, client, one, needs, together) for one in beside}

    def names_of_statistics(self, place: Place, client: int, bound: BoundMethod) -> dict[str, str]:
        """Names of the jobs that make what a client uploads to a method, by the statistic's name."""
        jobs = self.statistics_jobs(place, client)
        trained = self.training(place, client).name
        return {one.name: trained if one is Weights else jobs[one].name for one in bound.method.uploads}

    def sending(self, place: Place, client: int, bound: BoundMethod) -> SendUpload:
        """The job that encodes what a client uploads to a method."""
        needs = SendInputs(self.partition(place).name, self.names_of_statistics(place, client, bound))
        return SendUpload(place, client, bound.uploads, schema_of(bound, place), needs)

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
        needs = AggregationInputs(
            data=self.data(place).name,
            partition=self.partition(place).name,
            start=DrawStart(place).name,
            clients={one: Sent(names, self.names_of_client(place, one)) for one, names in uploads.items()},
        )
        if bound.summation is not None:
            return AggregateSecurely(place, label, bound, needs)
        return AggregateUploads(place, label, bound, needs, schema_of(bound, place))

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


def schema_of(bound: BoundMethod, place: Place) -> Schema:
    """Choose how a method's uploads are encoded, once a process; see `upload_schema`."""
    wire = bound.wire
    return _schema(bound.uploads, place.spec, wire.budget, wire.format, wire.factor_bits)


@cache
def _schema(uploads: tuple[BoundStatistic, ...], spec: ModelSpec, *encoding: Any) -> Schema:
    budget, family, factor_bits = encoding
    return upload_schema(uploads, spec, WireSettings(budget=budget, format=family, factor_bits=factor_bits))
