"""Whether a run would change anything, found out without Prefect and without MLflow."""

from fedfisher_core.reporting.rows import is_current
from flows.content import content_of
from flows.work import Work
from tasks.tracking import is_recorded


def is_unchanged(work: Work) -> bool:
    """Say whether all of an experiment is there: results, report and records.

    Args:
        work: prepared, or finished.

    Returns:
        Whether a run would do nothing.
    """
    if work.outcome.failed or any(name not in work.outcome.artifacts for name in work.agenda.targets):
        return False
    return is_current(work.folder, content_of(work.experiment, work.settings, work.rows)) and is_recorded(
        work.settings.tracking, work.settings.name, work.runs()
    )
