"""What all aggregations have in common: they wait for clients, apply a method and count what was sent."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, ClassVar, Generic

import torch

from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.data.tensors import select
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.costs import Spent, Stopwatch, total
from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.engine.job import Job, artifacts_in
from fedfisher_core.engine.performing import divergence
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact, Content, read_tensors, read_timings
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation, R, StartInputs
from fedfisher_core.federation.global_models import (
    CLIENTS,
    ENCODING,
    RESULT,
    TRAINING,
    Files,
    Memory,
    Result,
    Traffic,
    files_of,
    statistic_timing,
)
from fedfisher_core.federation.partition import held_by, training_scale, validation_set
from fedfisher_core.federation.private_training import epsilon_spent
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.statistics import read_scatter
from fedfisher_core.federation.uploads import PAYLOAD, download
from fedfisher_core.fisher.estimators import draws_directions
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.server import Aggregate, Server, require_networks
from fedfisher_core.models.batch_norm import batch_norms, estimate
from fedfisher_core.models.memory import working_memory
from fedfisher_core.models.spec import Parameters, models

_MOMENTS = "moments.safetensors"


@dataclass(frozen=True)
class Sent(Generic[R]):
    """What a server has of one client. A client that lost any of it is missing in all methods alike.

    Args:
        uploads: what the method needs, by name.
        statistics: what the client has computed for the method, by name.
        others: what it computes for other methods of the federation; empty where every client is needed.
    """

    uploads: Mapping[str, R]
    trained: R
    statistics: Mapping[str, R]
    others: tuple[R, ...] = ()


def finite_clients(
    clients: Mapping[int, Sent[Artifact]],
) -> tuple[dict[int, Sent[Artifact]], dict[int, DivergedClientError]]:
    """Separate the clients that are finite from those that have diverged; the latter come with their errors."""
    diverged = {client: error for client, sent in clients.items() if (error := divergence(artifacts_in(sent)))}
    return {client: sent for client, sent in clients.items() if client not in diverged}, diverged


@dataclass(frozen=True)
class Timings:
    """What an aggregation took: the server and, where they take part in it, the clients."""

    server: Spent
    peak_memory_bytes: int
    clients: Spent | None = None

    def described(self) -> dict[str, float]:
        """Describe them as the store keeps them."""
        clients = {} if self.clients is None else self.clients.timings("client_")
        return {**self.server.timings(), **clients, "peak_memory_bytes": float(self.peak_memory_bytes)}


@dataclass(frozen=True)
class AggregationInputs(StartInputs[R]):
    """What a server has.

    Args:
        clients: what each client has ready for the method, by number.
        reports: the training of each client whose objective reports to the server, by number. It counts even where the
            upload is lost, as the client goes on from it.
    """

    clients: Mapping[int, Sent[R]]
    reports: Mapping[int, R]


@dataclass(frozen=True)
class Aggregation(Job[AggregationInputs[Artifact]]):
    """Aggregate what clients send in one round, counted from 1."""

    kind: ClassVar[str] = "aggregates"
    action: ClassVar[str] = "aggregate"

    federation: Federation
    configured: ConfiguredMethod
    round_number: int = field(default=1, kw_only=True)

    @property
    def tags(self) -> tuple[str, ...]:
        """See `Job.tags`."""
        return (
            *super().tags,
            self.federation.setting.dataset,
            self.configured.method.name,
            f"round {self.round_number}",
        )

    @property
    def memory(self) -> Memory:
        """What the clients' objective leaves from round to round."""
        return Memory(self.federation.objective, self.federation, self.round_number)

    @property
    @abstractmethod
    def protocol(self) -> dict[str, Any]:
        """How uploads reach the server, as JSON has it."""

    def settings(self) -> dict[str, Any]:
        """See `Job.settings`."""
        federation, optimiser, objective = self.federation, self.federation.optimiser, self.federation.objective
        method, summation = self.configured.method, self.configured.summation
        sources: list[Any] = [method.function, models.get(federation.spec.name)]
        if summation is not None:
            sources += [summation.aggregate, summation.terms]
        if not optimiser.is_average:
            sources.append(optimiser.optimiser.function)
        least = federation.settings.run.min_clients
        return {
            "method": method.name,
            "code": code_of(*sources),
            "method_settings": self.configured.dumped_settings(),
            "model": {"name": federation.spec.identity, "bias": federation.settings.model.bias},
            "seed": federation.setting.seed,
            **self.protocol,
            **({} if least is None else {"min_clients": least}),
            **({} if federation.settings.may_validate else {"validation": "private"}),
            **({} if self.round_number == 1 else {"round": self.round_number}),
            **({"running_statistics": "estimated"} if self._estimates else {}),
            **({"augment": "never"} if federation.settings.data.augment == "never" else {}),
            **optimiser.described(),
            **({} if objective.objective.exchange is None else objective.described()),
            **self.numerics.described(),
        }

    def _left(self, inputs: AggregationInputs[Artifact]) -> AggregationInputs[Artifact]:
        """Leave out clients that have diverged.

        Raises:
            DivergedClientError: fewer clients are left than `run.min_clients` asks for.
        """
        finite, diverged = finite_clients(inputs.clients)
        allowed = self.federation.settings.run.min_clients
        if diverged and (allowed is None or len(finite) < allowed):
            *_, error = diverged.values()
            least = "all clients" if allowed is None else f"{allowed} clients"
            raise DivergedClientError(f"{error}; run.min_clients asks for {least}, {len(finite)} are left") from error
        # A report counts even where the upload is lost, as the client goes on from its training.
        reports = {one: report for one, report in inputs.reports.items() if divergence([report]) is None}
        return replace(inputs, clients=finite, reports=reports)

    def compute(self, inputs: AggregationInputs[Artifact]) -> Content:
        """See `Job.compute`.

        Raises:
            DivergedClientError: too few clients are left.
        """
        failed = sorted(finite_clients(inputs.clients)[1])
        inputs = self._left(inputs)
        server = server_of(self.federation, inputs, self.round_number)
        made, traffic, timings = self.aggregate(server, inputs)
        watch = Stopwatch(self.federation.device.type)
        made, moments = self._advanced(server, made, inputs)
        made = self._estimated(server, made)
        trained = [(len(held_by(inputs.partition, one)), training) for one, training in inputs.reports.items()]
        # The pooled client is one client, and what it reports crosses no network.
        pooled = self.configured.method.pooled
        memory, sent_bits = self.memory.after_round(inputs, trained, 1 if pooled else len(self.federation.participants))
        report_bits = 0 if pooled else sent_bits
        timings = replace(timings, server=timings.server + watch.spent())
        counted = traffic.upload_bits + report_bits, traffic.upload_bits_formula + report_bits
        traffic = replace(traffic, upload_bits=counted[0], upload_bits_formula=counted[1])
        result = Result(
            networks=len(made.networks),
            combine=made.combine,
            details=made.details,
            widths=(made.spec or self.federation.spec).widths,
            uses_validation=server.used_validation,
            traffic=traffic,
        )
        tensors = files_of(made) | memory | moments
        documents = {RESULT: asdict(result), CLIENTS: self._told(inputs, failed)}
        return Content(
            tensors=tensors, documents=documents, timings={**timings.described(), **self._client_timings(inputs)}
        )

    def _told(self, inputs: AggregationInputs[Artifact], failed: Sequence[int]) -> dict[str, Any]:
        """What results say of the round's clients, even after the clients' own results are deleted."""
        names = [one.name for one in self.configured.method.uploads if one is not Weights]
        protocol = self.configured.summation is not None
        told: dict[str, Any] = {"failed": failed, "statistics": names, "protocol": protocol}
        if self.federation.settings.privacy is not None:
            told["epsilon"] = max(epsilon_spent(sent.trained) for sent in inputs.clients.values())
        # All Fishers of a client see the same directions.
        fishers = [one.name for one in self.configured.method.uploads if one.approximation is not None]
        if fishers and draws_directions(estimator_of(self.federation.fisher)):
            told["scatter"] = fmean(read_scatter(sent.statistics[fishers[0]]) for sent in inputs.clients.values())
        return told

    def _client_timings(self, inputs: AggregationInputs[Artifact]) -> dict[str, float]:
        """What the clients' side took, summed over clients; a protocol measures its clients itself."""

        def spent(artifacts: Iterable[Artifact]) -> Spent:
            return total(Spent.of(read_timings(one)) for one in artifacts)

        clients, method = inputs.clients.values(), self.configured.method
        trained = spent(sent.trained for sent in clients) if method.trains else Spent()
        found = trained.timings(TRAINING)
        if self.configured.summation is None:
            found |= spent(sent.uploads[PAYLOAD] for sent in clients).timings(ENCODING)
        for one in method.uploads:
            if one is not Weights:
                found |= spent(sent.statistics[one.name] for sent in clients).timings(statistic_timing(one.name))
        return found

    @abstractmethod
    def aggregate(self, server: Server, inputs: AggregationInputs[Artifact]) -> tuple[Aggregate, Traffic, Timings]:
        """Bring the uploads to the server, and apply the method.

        Returns:
            The global model, what was sent for it, and what it took.

        Raises:
            ArithmeticError: a parameter of the global network is not finite.
        """

    def _timed(self, work: Callable[[], Aggregate]) -> tuple[Aggregate, Timings]:
        """Do the server's work, decoding included, and measure what it takes."""
        device, name = self.federation.device, self.configured.method.name
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        with working_memory(device) as peak:
            watch = Stopwatch(device.type)
            made = work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            spent = watch.spent()
        require_networks(name, made, self.federation.spec)
        return made, Timings(spent, peak.bytes)

    def _advanced(
        self, server: Server, made: Aggregate, inputs: AggregationInputs[Artifact]
    ) -> tuple[Aggregate, Files]:
        """Let the server's optimiser go on from the aggregate; the file holds its moments."""
        optimiser = self.federation.optimiser
        if optimiser.is_average:
            return made, {}
        # Running statistics have no gradient, so they stay those of the aggregate.
        trained = self.federation.spec.learnt()
        start = {name: weight for name, weight in server.initial.items() if name in trained}
        moments: dict[str, Parameters] = optimiser.begin(start)
        if self.round_number > 1:
            for key, tensor in read_tensors(inputs.start, _MOMENTS).items():
                moment, _, name = key.partition("/")
                moments[moment][name] = tensor.to(self.federation.device)
        (aggregate,) = made.networks
        stepped, moments = optimiser.advance(start, aggregate, moments)
        weights = {name: stepped.get(name, aggregate[name]) for name in server.initial}
        kept = {
            f"{moment}/{name}": tensor.cpu().contiguous()
            for moment, tensors in moments.items()
            for name, tensor in tensors.items()
        }
        return replace(made, networks=(weights,)), {_MOMENTS: kept}

    @property
    def _estimates(self) -> bool:
        """Whether running statistics must be estimated anew; those of networks that no method merged stay."""
        federation = self.federation
        if federation.settings.model.running_statistics != "estimated" or not self.configured.method.returns_merged:
            return False
        return bool(batch_norms(federation.spec.skeleton()))

    def _estimated(self, server: Server, made: Aggregate) -> Aggregate:
        """Estimate the running statistics of a merged network."""
        if not self._estimates:
            return made
        networks = tuple(estimate(server.network(one), server.validation.inputs) for one in made.networks)
        return replace(made, networks=networks)

    def _traffic(
        self,
        server: Server,
        made: Aggregate,
        inputs: AggregationInputs[Artifact],
        upload_bits: int,
        upload_bits_formula: int,
        protocol_bits: int = 0,
    ) -> Traffic:
        """Count what was sent; the server sends `protocol_bits` in addition to the start and the global model."""
        extra = 0 if self.configured.method.pooled else self.memory.sent_bits(inputs)
        down = download(
            self.federation,
            made,
            server.initial,
            configured=self.configured,
            round_number=self.round_number,
            extra_bits=extra,
        )
        # Each round repeats the protocol.
        start_bits = down.start_bits + protocol_bits
        return Traffic(
            upload_bits, upload_bits_formula, start_bits + down.model_bits, down.start_sent, start_bits=start_bits
        )


def server_of(federation: Federation, inputs: StartInputs[Artifact], round_number: int = 1) -> Server:
    """Set up a server before the first upload. With privacy, it holds only public validation images."""
    dataset = load_data(inputs.data)
    held = validation_set(inputs.partition)[: None if federation.settings.may_validate else 0]
    return Server(
        spec=federation.spec,
        dataset=replace(dataset.spec, augment=federation.dataset.augment),
        fisher=federation.fisher,
        initial=load_start(inputs.start, federation.device),
        generator=torch_generator(federation.setting.seed, Stream.SERVER, round_number=round_number),
        device=federation.device,
        # Each example is scaled as by the client that holds it, and under no shift.
        validation=select(dataset.train, dataset.spec, held, scale=training_scale(inputs.partition, held)).to(
            federation.device
        ),
    )
