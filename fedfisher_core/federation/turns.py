"""Rounds of federations, and what their jobs are called."""

from dataclasses import dataclass

from fedfisher_core.federation.place import Place, client_name


@dataclass(frozen=True)
class Turn:
    """One round of those federations that share its clients.

    Args:
        number: of the round, from 1.
        method: label of the method whose global network clients start from; None in round 1, which all methods share.
    """

    number: int = 1
    method: str | None = None

    @property
    def suffix(self) -> str:
        """What tells its jobs from those of the first round."""
        return "" if self.number == 1 else f", round {self.number} of {self.method}"


FIRST = Turn()


def client_title(place: Place, client: int, turn: Turn = FIRST) -> str:
    """What people read in the names of a client's jobs."""
    return f"{client_name(client)}: {place.label}{turn.suffix}"


def training_name(place: Place, client: int, turn: Turn = FIRST) -> str:
    """Name the training of a client in a round."""
    return f"train {client_title(place, client, turn)}"


def aggregation_name(place: Place, label: str, number: int) -> str:
    """Name the aggregation by a method in a round."""
    return f"{label}{'' if number == 1 else f', round {number}'}: {place.label}"


def testing_name(place: Place, label: str, number: int) -> str:
    """Name the test of what a method makes in a round."""
    return f"test {aggregation_name(place, label, number)}"
