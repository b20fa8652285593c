"""One pool for all jobs of an experiment: whatever is ready runs, and its result decides what is ready next."""

import logging

from fedfisher_core.settings import WorkSettings
from fedfisher_core.store import Lease, Store
from fedfisher_core.walk import Walk
from flows.grouping import Groups
from flows.handing import Handing
from flows.progress import Progress
from flows.workers import started

log = logging.getLogger("fedfisher")


def walk_in_tasks(walk: Walk, store: Store, lease: Lease, run: WorkSettings, *, name: str) -> None:
    """Do what is left of a walk in Prefect tasks, a long batch in one and short ones together.

    A task gets artifacts, never futures: one that waited for another would hold a worker that the other may need. No
    more groups are handed over than there are workers, so that the largest of all that are ready is always next.

    A job that fails is named at once, and all goes on that does not need it.

    Args:
        walk: finished in the end.
        store: keeps the results.
        lease: of this run on the store.
        run: how the work is carried out.
        name: of the experiment.
    """
    groups = Groups(walk)
    with (
        Progress(name=name, total=len(walk.graph), done=walk.done) as progress,
        started(run) as workers,
        Handing(workers, store, run) as handing,
    ):
        while True:
            while handing.has_room and (
                group := groups.take(workers.places, longest=workers.longest, least=workers.least)
            ):
                handing.hand_over(group)
            # Workers compute meanwhile.
            walk.shed(lease)
            progress.advance_to(walk.done)
            if walk.finished:
                break
            for failure in groups.settle(*handing.wait()):
                log.error("%s: %s", failure.job, failure.reason)
