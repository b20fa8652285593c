"""A tiny benchmark whose clients a caller merges as networks of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fedfisher
from fedfisher_core.client.training import train
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import path_of, read_tensors
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import POOLED, Federation, PartitionInputs
from fedfisher_core.federation.global_models import read_model
from fedfisher_core.federation.partition import examples_of, validation_set
from fedfisher_core.federation.start import load_start
from fedfisher_core.federation.uploads import PAYLOAD, TENSORS
from fedfisher_core.methods.server import Aggregate
from tests import tiny
from tests.walked import Walked, walk_tiny

SEED = 0
CLIENTS = range(3)
PREPROCESSING = fedfisher.Preprocessing(mean=tiny.TINY_DATA.mean, std=tiny.TINY_DATA.std)


@dataclass(frozen=True)
class Benchmarked:
    """A benchmark that is done, and what a caller has of its clients.

    Args:
        done: the benchmark.
    """

    done: Walked

    @cached_property
    def clients(self) -> list[fedfisher.Client]:
        """The trained networks with their examples."""
        return [self.client(number) for number in CLIENTS]

    def client(self, number: int, **changes: Any) -> fedfisher.Client:
        """One of them, from a module and two tensors."""
        examples = self.examples(number)
        return fedfisher.Client(
            self.trained(number),
            (examples.inputs, examples.labels),
            generator=torch_generator(SEED, Stream.FISHER, number + 1),
            batch_size=self.done.federation.train.batch_size,
            retrain=lambda further: self._retrained(number, further),
            **({"initial": self.start} | changes),
        )

    def examples(self, number: int) -> Examples:
        """What a client holds."""
        return examples_of(self.done.federation, PartitionInputs(self.done.data, self.done.partition), number)

    def trained(self, number: int) -> nn.Module:
        """A client's network after its training."""
        job = self.done.plan.federations.training(self.done.federation, number)
        return self.done.federation.spec.load(read_tensors(self.done.made(job), TENSORS))

    @cached_property
    def start(self) -> nn.Module:
        """The network that all of them started from."""
        artifact = self.done.made(self.done.plan.federations.start(self.done.federation))
        return self.done.federation.spec.load(load_start(artifact, torch.device("cpu")))

    @cached_property
    def validation(self) -> Examples:
        """The server's own examples."""
        dataset = load_data(self.done.data)
        return select(dataset.train, dataset.spec, validation_set(self.done.partition))

    @cached_property
    def test(self) -> Examples:
        """The test examples, the same in all federations."""
        federations = self.done.plan.federations
        dataset = load_data(self.done.made(federations.data(federations.all[0])))
        return select(dataset.test, dataset.spec)

    def server_generator(self) -> torch.Generator:
        """What a method of the benchmark draws from."""
        return torch_generator(SEED, Stream.SERVER)

    def aggregate(self, label: str) -> Aggregate:
        """What the benchmark made by a method."""
        return self.model(label, self.done.federation)

    def model(self, label: str, federation: Federation) -> Aggregate:
        """What the benchmark made by a method in one of its federations."""
        return read_model(self.done.made(self.done.plan.federations.aggregation(federation, label)), federation)

    def payload(self, label: str, number: int) -> bytes:
        """What a client sent for a method in the benchmark."""
        federations = self.done.plan.federations
        job = federations.sending(self.done.federation, number, federations.methods[label])
        return path_of(self.done.made(job), PAYLOAD).read_bytes()

    def _retrained(self, number: int, further: int) -> nn.Module:
        """Train a further network as the benchmark does."""
        federation = self.done.federation
        shared, own = (
            torch_generator(SEED, Stream.MODES, branch + 1, round_number=further + 1) for branch in (POOLED, number)
        )
        network = federation.spec.load(federation.spec.initialise(shared))
        train(network, self.examples(number), federation.train, generator=own)
        return network


def benchmarked(folder: Path, methods: Mapping[str, Mapping[str, Any]], **changes: Any) -> Benchmarked:
    """Run a tiny benchmark below a folder."""
    return Benchmarked(walk_tiny(folder, methods, **changes))
