"""What all aggregations have in common."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, Generic

import torch

from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.data.tensors import select
from fedfisher_core.errors import DivergedClientError, shown
from fedfisher_core.evaluation.memory import working_memory
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.downloads import download
from fedfisher_core.federation.global_models import RESULT, Result, Traffic, files_of
from fedfisher_core.federation.inputs import R, StartInputs
from fedfisher_core.federation.memory import Files, Memory
from fedfisher_core.federation.partition import held_by, training_scale, validation_set
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.start import load_start
from fedfisher_core.finite import is_finite
from fedfisher_core.jobs import Job, digests_of, names_in
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.running_statistics import batch_norms, estimate
from fedfisher_core.models.spec import ModelSpec, Parameters
from fedfisher_core.seeds import Stream, torch_generator
from fedfisher_core.server_optimisers.binding import BoundServerOptimiser, bind_server_optimiser
from fedfisher_core.sources import source_digest
from fedfisher_core.store import Artifact, Content, Step, read_tensors

_MOMENTS = "moments.safetensors"


@dataclass(frozen=True)
class Sent(Generic[R]):
    """What a server has of one client; a client that lost any of it is missing in all methods alike.

    Args:
        uploads: what the method needs, by name.
        trained: its training.
        beside: whatever else the client computes for methods of the same federation.
    """

    uploads: Mapping[str, R]
    trained: R
    beside: tuple[R, ...]


@dataclass(frozen=True)
class AggregationInputs(StartInputs[R]):
    """What a server has.

    Args:
        clients: by number, what each has ready for the method.
        reports: by number, the training of each whose objective has it report to the server; it counts where an upload
            is lost too, as the client goes on from it.
    """

    clients: Mapping[int, Sent[R]]
    reports: Mapping[int, R]


@dataclass(frozen=True)
class Aggregation(Job[AggregationInputs[Artifact]]):
    """Aggregate what clients send.

    Args:
        place: the federation.
        bound: the method and its settings.
        turn: the round, from 1.
    """

    place: Place
    bound: BoundMethod
    turn: int = field(default=1, kw_only=True)

    @property
    def pace(self) -> Hashable:
        """See `Job.pace`: one method takes a moment and another minutes."""
        return type(self), self.bound.method.name

    @property
    def optimiser(self) -> BoundServerOptimiser:
        """How the server goes on from the aggregate."""
        place = self.place
        return bind_server_optimiser(place.cell.server_optimiser, place.settings.rounds.server_optimiser)

    @property
    def memory(self) -> Memory:
        """What the clients' objective leaves from round to round."""
        place = self.place
        objective = bind_objective(place.cell.objective, place.settings.train.objective)
        return Memory(objective, place, self.turn)

    def reads(self) -> Iterator[str]:
        """See `Job.reads`: of a client, its uploads; its training where the objective has it report."""
        for need in (self.needs.data, self.needs.partition, self.needs.start):
            yield from names_in(need)
        for sent in self.needs.clients.values():
            yield from names_in(sent.uploads)
        yield from self.needs.reports.values()

    def without(self, lost: Mapping[str, Exception]) -> None:
        """See `Job.without`: the settings say how many clients must be left.

        Raises:
            DivergedClientError: names the last client that was lost, and how many are left.
        """
        missing = sum(not lost.keys().isdisjoint(names_in(sent)) for sent in self.needs.clients.values())
        allowed, left = self.place.settings.run.min_clients, len(self.needs.clients) - missing
        if allowed is None or left < allowed:
            *_, error = lost.values()
            least = "all clients" if allowed is None else f"{allowed} clients"
            raise DivergedClientError(f"{error}; run.min_clients asks for {least}, {left} are left") from error

    def _step(self, inputs: AggregationInputs[Artifact], sources: Sequence[Any], **protocol: Any) -> Step:
        """Name the result by the code that makes it, and by how uploads reach the server."""
        place, optimiser, exchange = self.place, self.optimiser, self.memory.objective.objective.exchange
        beside: list[Any] = [] if exchange is None else [exchange.begin, exchange.update]
        if not optimiser.is_average:
            beside.append(optimiser.optimiser.function)
        if self._estimates:
            beside.append(estimate)
        uploads = {
            f"client_{client}.{name}": artifact.digest
            for client, sent in inputs.clients.items()
            for name, artifact in sent.uploads.items()
        }
        return Step(
            kind="aggregates",
            code=source_digest(type(self), *sources, *beside),
            settings={
                "method": self.bound.method.name,
                "method_settings": self.bound.dumped_settings(),
                "model": {"name": place.spec.name, "bias": place.settings.model.bias},
                "seed": place.cell.seed,
                **protocol,
                **({} if place.settings.may_validate else {"validation": "private"}),
                **({} if self.turn == 1 else {"round": self.turn}),
                **({"running_statistics": "estimated"} if self._estimates else {}),
                **({"augment": "never"} if place.settings.data.augment == "never" else {}),
                **optimiser.described(),
                **({} if exchange is None else self.memory.objective.described()),
                **self.numerics.described(),
            },
            inputs=digests_of(inputs) | uploads | {f"client_{one}": job.digest for one, job in inputs.reports.items()},
        )

    def compute(self, inputs: AggregationInputs[Artifact]) -> Content:
        """See `Job.compute`."""
        server = server_of(self.place, inputs, self.turn)
        made, traffic, timings = self.aggregate(server, inputs)
        begun = perf_counter()
        made, moments = self._advanced(server, made, inputs)
        made = self._estimated(server, made)
        trained = [(len(held_by(inputs.partition, one)), training) for one, training in inputs.reports.items()]
        # What is trained on all data in one place is one client, and what it reports crosses no network.
        pooled = self.bound.method.pooled
        memory, sent_bits = self.memory.after_round(inputs, trained, 1 if pooled else len(self.place.participants))
        report_bits = 0 if pooled else sent_bits
        timings["seconds"] += perf_counter() - begun
        counted = traffic.upload_bits + report_bits, traffic.upload_bits_formula + report_bits
        traffic = replace(traffic, upload_bits=counted[0], upload_bits_formula=counted[1])
        result = Result(
            networks=len(made.networks),
            combine=made.combine,
            details=made.details,
            widths=(made.spec or self.place.spec).widths,
            uses_validation=server.used_validation,
            traffic=traffic,
        )
        tensors = files_of(made) | memory | moments
        return Content(tensors=tensors, documents={RESULT: asdict(result)}, timings=timings)

    @abstractmethod
    def aggregate(
        self, server: Server, inputs: AggregationInputs[Artifact]
    ) -> tuple[Aggregate, Traffic, dict[str, float]]:
        """Bring the uploads to the server, and apply the method.

        Args:
            server: what it holds before the first upload.
            inputs: what clients have ready.

        Returns:
            The global model, what was sent for it, and what it took in seconds and bytes.

        Raises:
            ArithmeticError: a parameter of the global network is not finite.
        """

    def _timed(self, work: Callable[[], Aggregate]) -> tuple[Aggregate, dict[str, float]]:
        """Do the server's work, decoding included, and measure its seconds and its working memory."""
        device, name = self.place.device, self.bound.method.name
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        with working_memory(device) as peak:
            begun = perf_counter()
            made = work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds = perf_counter() - begun
        _require_networks(name, made, self.place.spec)
        return made, {"seconds": seconds, "peak_memory_bytes": float(peak.bytes)}

    def _advanced(
        self, server: Server, made: Aggregate, inputs: AggregationInputs[Artifact]
    ) -> tuple[Aggregate, Files]:
        """Let the server's optimiser go on from the aggregate, and make the file of its moments."""
        optimiser = self.optimiser
        if optimiser.is_average:
            return made, {}
        # Running statistics have no gradient: they are those of the aggregate.
        trained = self.place.spec.learnt()
        start = {name: weight for name, weight in server.initial.items() if name in trained}
        moments: dict[str, Parameters] = optimiser.begin(start)
        if self.turn > 1:
            for key, tensor in read_tensors(inputs.start, _MOMENTS).items():
                moment, _, name = key.partition("/")
                moments[moment][name] = tensor.to(self.place.device)
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
        """Whether there are running statistics to be estimated anew: not those of networks that no method merged."""
        place = self.place
        if place.settings.model.running_statistics != "estimated" or not self.bound.method.returns_merged:
            return False
        return bool(batch_norms(place.spec.skeleton()))

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
        """Count what was sent; the server sends `protocol_bits` beside the start and the global model."""
        beside = 0 if self.bound.method.pooled else self.memory.sent_bits(inputs)
        down = download(self.place, made, server.initial, bound=self.bound, turn=self.turn, beside_bits=beside)
        # Each round has a protocol of its own.
        start_bits = down.start_bits + protocol_bits
        return Traffic(
            upload_bits, upload_bits_formula, start_bits + down.model_bits, down.start_sent, start_bits=start_bits
        )


def _require_networks(name: str, made: object, spec: ModelSpec) -> None:
    """Check what a method returns, which anyone may have written.

    Args:
        name: the method's.
        made: what it returned.
        spec: the network that clients trained.

    Raises:
        TypeError: it is no `Aggregate`.
        ValueError: a network has other parameters than it should have.
        ArithmeticError: a parameter is not finite.
    """
    if not isinstance(made, Aggregate):
        raise TypeError(f"method {name!r} returned {type(made).__name__}; allowed: Aggregate")
    shapes = (made.spec or spec).shapes()
    for network in made.networks:
        if network.keys() != shapes.keys():
            raise ValueError(f"method {name!r} returned parameters {shown(sorted(network))}; allowed: {sorted(shapes)}")
        for key, tensor in network.items():
            if tuple(tensor.shape) != tuple(shapes[key]):
                raise ValueError(
                    f"method {name!r} returned a parameter {key!r} of shape {tuple(tensor.shape)}; allowed: "
                    f"{tuple(shapes[key])}"
                )
            if not is_finite(tensor):
                raise ArithmeticError(f"method {name!r} returned a parameter {key!r} that is not finite")


def server_of(place: Place, inputs: StartInputs[Artifact], turn: int = 1) -> Server:
    """Give a server what it holds before the first upload; with privacy, no validation images that are not public.

    Args:
        place: the federation.
        inputs: the data set, who holds what, and the weights that the round starts from.
        turn: the round, from 1.

    Returns:
        The server.
    """
    dataset = load_data(inputs.data)
    held = validation_set(inputs.partition)[: None if place.settings.may_validate else 0]
    return Server(
        spec=place.spec,
        dataset=replace(dataset.spec, augment=place.dataset.augment),
        fisher=place.fisher,
        initial=load_start(inputs.start, place.device),
        generator=torch_generator(place.cell.seed, Stream.SERVER, turn=turn),
        device=place.device,
        # Each example scaled as by the client that holds it, and under no shift.
        validation=select(dataset.train, dataset.spec, held, scale=training_scale(inputs.partition, held)).to(
            place.device
        ),
    )
