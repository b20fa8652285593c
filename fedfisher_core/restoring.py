"""Computing again what was shed, where a job that reads its tensors has to be computed."""

from collections.abc import Mapping, MutableMapping
from typing import Any

from fedfisher_core.failures import Failure
from fedfisher_core.jobs import Job
from fedfisher_core.passing import Passing
from fedfisher_core.store import Artifact

_CAME_OUT_OTHERWISE = (
    "its tensors were pruned, and came out otherwise when they were made again, as with other libraries; run again: "
    "all that rests on them is then computed anew"
)


class Restoring:
    """The jobs that are computed again, and those that wait for them.

    Args:
        graph: jobs by name.
        artifacts: by name of the job that made them, as the walk goes on; those that are made again are replaced.
        passing: counts who needs them, and knows which jobs share one.
    """

    def __init__(
        self, graph: Mapping[str, Job[Any]], artifacts: MutableMapping[str, Artifact], passing: Passing
    ) -> None:
        self._graph = graph
        self._artifacts = artifacts
        self._passing = passing
        # By key of what is computed again, the jobs that wait for it; of each of these, for how many it waits.
        self._waiting: dict[str, list[str]] = {}
        self._lacking: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        """Say whether what has this key is computed again."""
        return key in self._waiting

    def ask(self, name: str) -> list[str]:
        """Have all made again that a job reads and that was shed, and what is read for that in turn.

        Args:
            name: of a job that has to be computed.

        Returns:
            The jobs that can start now: this one, where all that it reads is there, or some that it waits for.
        """
        ready, todo = [], [name]
        for reader in todo:
            read = {one: self._artifacts[one] for one in self._graph[reader].reads() if one in self._artifacts}
            shed = {artifact.key: one for one, artifact in read.items() if artifact.shed}
            for key, one in shed.items():
                if key not in self._waiting:
                    self._waiting[key] = []
                    self._passing.again(one)
                    todo.append(one)
                self._waiting[key].append(reader)
            if shed:
                self._lacking[reader] = len(shed)
            else:
                ready.append(reader)
        return ready

    def keep(self, name: str, artifact: Artifact) -> tuple[list[str], Failure | None]:
        """Note what was made again.

        Args:
            name: of the job that was computed again.
            artifact: whole.

        Returns:
            The jobs that can start now, and why those can't that waited for it, where it is not what it was.
        """
        if artifact.digest != self._artifacts[name].digest:
            # What was made of it before, and is there still, rests on something else.
            return [], Failure(name, _CAME_OUT_OTHERWISE, f"{name}: {_CAME_OUT_OTHERWISE}\n", by_user=False)
        for holder in self._passing.holders(artifact.key):
            self._artifacts[holder] = artifact
        ready = []
        for reader in self._waiting.pop(artifact.key):
            # Others have been left out meanwhile.
            if reader in self._lacking:
                self._lacking[reader] -= 1
                if self._lacking[reader] == 0:
                    del self._lacking[reader]
                    ready.append(reader)
        self._passing.ended(name)
        return ready, None

    def leave(self, name: str) -> list[str]:
        """Note that a job can't be computed again.

        Args:
            name: the job's.

        Returns:
            The jobs that can't be computed for want of it.
        """
        wanting: list[str] = []
        todo = [name]
        while todo:
            lost = todo.pop()
            self._passing.ended(lost)
            for reader in self._waiting.pop(self._artifacts[lost].key):
                if self._lacking.pop(reader, None) is not None:
                    (todo if reader in self._artifacts else wanting).append(reader)
        return wanting
