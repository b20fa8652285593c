"""Results that pass: their tensors go as soon as all that needs them is done, and come back where they are missed."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedfisher_core.errors import CorruptArtifactError, InputError
from fedfisher_core.jobs import Job, names_in
from fedfisher_core.store import Artifact, Lease, Store


@dataclass
class Pruned:
    """What became of results that pass.

    Args:
        artifacts: how many lost their tensors.
        bytes: that were freed.
        rounds: of the jobs that had made them.
        left: how many could go, but for the reason.
        reason: why they are left.
    """

    artifacts: int = 0
    bytes: int = 0
    rounds: set[int] = field(default_factory=set)
    left: int = 0
    reason: str = ""

    def __str__(self) -> str:
        said = []
        if self.artifacts:
            rounds = f"{min(self.rounds)} to {max(self.rounds)}"
            said.append(f"pruned the tensors of {self.artifacts} artifacts of rounds {rounds}, {self.bytes:,} bytes")
        if self.left:
            said.append(f"left those of {self.left}: {self.reason}")
        return "; ".join(said)


class Passing:
    """Counts who still needs the results that pass.

    A result goes when each job that has made it passes, and all jobs that need these are done. What a job needs that
    was lost or has failed stays, as the next run tries that job again.

    Args:
        graph: jobs by name.
        dependents: of each job, those that need it directly.
        artifacts: by name of the job that made them, as the walk goes on; those that go are replaced.
        store: keeps the results.
    """

    def __init__(
        self,
        graph: Mapping[str, Job[Any]],
        dependents: Mapping[str, Sequence[str]],
        artifacts: MutableMapping[str, Artifact],
        store: Store,
    ) -> None:
        self._pruned = Pruned()
        self._graph = graph
        self._artifacts = artifacts
        self._store = store
        self._undone = {name: len(others) for name, others in dependents.items()}
        self._holders: dict[str, list[str]] = {}
        # Keys of what nobody needs, in the order in which it became so.
        self._free: dict[str, None] = {}

    def take_pruned(self) -> Pruned:
        """Say what went since this was asked for last."""
        pruned, self._pruned = self._pruned, Pruned()
        return pruned

    def holders(self, key: str) -> Sequence[str]:
        """Name the jobs that share an artifact."""
        return self._holders[key]

    def done(self, name: str) -> None:
        """Note that a job has its artifact, found or made.

        Args:
            name: the job's.
        """
        key = self._artifacts[name].key
        self._holders.setdefault(key, []).append(name)
        self._release(name)
        self._consider(key)

    def again(self, name: str) -> None:
        """Note that a job which was done is computed again, so that what it needs is needed."""
        for need in self._needs(name):
            self._undone[need] += 1

    def ended(self, name: str) -> None:
        """Note that a job is no longer computed again, whatever came of it."""
        self._release(name)

    @property
    def waits(self) -> bool:
        """Whether something could go."""
        return any(map(self._is_free, self._free))

    def shed(self, lease: Lease) -> None:
        """Remove the tensors of all that nobody needs, if no other run may need them; otherwise leave them for now.

        Args:
            lease: of this run.
        """
        if not self._free:
            return
        reason = "another run uses the store"
        try:
            with lease.only() as only:
                if only:
                    self._shed([key for key in self._free if self._is_free(key)])
                    self._free = {}
        except (InputError, CorruptArtifactError) as error:
            reason = str(error)
        # What is left is tried again with the next that can go.
        self._free = {key: None for key in self._free if not self._artifact(key).shed}
        self._pruned.left, self._pruned.reason = len(self._free), reason

    def _shed(self, keys: Sequence[str]) -> None:
        for artifact, freed in self._store.shed(map(self._artifact, keys)):
            for name in self._holders[artifact.key]:
                self._artifacts[name] = replace(artifact, shed=True)
            self._pruned.artifacts += 1
            self._pruned.bytes += freed
            self._pruned.rounds |= {one for one in map(self._round, self._holders[artifact.key]) if one is not None}

    def _round(self, name: str) -> int | None:
        return self._graph[name].passing

    def _needs(self, name: str) -> list[str]:
        return list(dict.fromkeys(names_in(self._graph[name].needs)))

    def _release(self, name: str) -> None:
        for need in self._needs(name):
            self._undone[need] -= 1
            if self._undone[need] == 0 and need in self._artifacts:
                self._consider(self._artifacts[need].key)

    def _consider(self, key: str) -> None:
        if self._is_free(key) and self._store.can_shed(self._artifact(key)):
            self._free[key] = None

    def _is_free(self, key: str) -> bool:
        return all(self._round(name) is not None and self._undone[name] == 0 for name in self._holders[key])

    def _artifact(self, key: str) -> Artifact:
        return self._artifacts[self._holders[key][0]]
