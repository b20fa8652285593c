"""Ending the records of a flow's tasks in Prefect when the flow is stopped."""

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Crashed


def end_tasks(flow: Flow[..., object], flow_run: FlowRun, state: State[object]) -> None:
    """Record that tasks under way have ended with their flow.

    A task reports its end in the background, and a stopped command does not wait for that. Without this, a server that
    goes on would show the tasks as running for ever.
    """
    unfinished = TaskRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING])
    wanted = TaskRunFilter(state=TaskRunFilterState(type=unfinished))
    own = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id]))
    with get_client(sync_client=True) as client:
        for run in client.read_task_runs(flow_run_filter=own, task_run_filter=wanted):
            client.set_task_run_state(run.id, Crashed(message="Its flow was stopped."), force=True)
