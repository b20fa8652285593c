"""The jobs that measure a method's last network on clients' own examples."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedfisher_core.federation.aggregating import Aggregation
from fedfisher_core.federation.client_measures import BarrierInputs, MeasureBarrier, Personalise
from fedfisher_core.federation.inputs import ModelInputs
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.turns import client_title
from fedfisher_core.jobs import Job
from fedfisher_core.methods.method import Method


@dataclass(frozen=True)
class Measuring:
    """What is measured of one method in one federation, as the settings ask; nothing where it returns no such network.

    Args:
        label: the method's.
        last: its last aggregation.
    """

    label: str
    last: Aggregation

    @property
    def _place(self) -> Place:
        return self.last.place

    @property
    def _method(self) -> Method:
        return self.last.bound.method

    @property
    def _needs(self) -> dict[str, str]:
        """Name what every measure needs."""
        return {"data": self.last.needs.data, "partition": self.last.needs.partition, "aggregate": self.last.name}

    def jobs(self) -> Iterator[Job[Any]]:
        """List all jobs."""
        if (barrier := self.barrier) is not None:
            yield barrier
        yield from self.personalisations

    @property
    def barrier(self) -> MeasureBarrier | None:
        """The job that compares the clients of the last round with the network; None where it is not measured."""
        # What is trained on all data in one place is no client's network.
        if not self._place.settings.measures.barrier or not self._method.continues or self._method.pooled:
            return None
        return MeasureBarrier(
            self._place,
            name=f"barrier of {self.label}: {self._place.label}",
            needs=BarrierInputs(**self._needs, clients=self.last.needs.clients),
            numerics=self._place.numerics,
        )

    @property
    def personalisations(self) -> tuple[Personalise, ...]:
        """The jobs that let each unseen client train the network; none where it is not measured."""
        settings = self._place.settings.measures.personalisation
        if settings is None or not self._method.continues:
            return ()
        return tuple(
            Personalise(
                self._place,
                client,
                settings,
                name=f"personalise {self.label}, {client_title(self._place, client)}",
                needs=ModelInputs(**self._needs),
                numerics=self._place.numerics,
            )
            for client in self._place.unseen
        )
