"""What the variants of FedFisher share."""

from fedfisher_core.methods.server import Aggregate
from fedfisher_core.solvers.solution import Solution


def aggregate_of(solution: Solution) -> Aggregate:
    """Report a solution of the FedFisher objective.

    Args:
        solution: what a solver returned.

    Returns:
        The global model, with the step that was selected, the objective there and its score if there is one.
    """
    details = {"selected_step": float(solution.selected), "objective": solution.objective}
    scores = [one.score for one in solution.history if one.iteration == solution.selected and one.score is not None]
    if scores:
        details["validation_accuracy"] = scores[0]
    return Aggregate(networks=(solution.parameters,), details=details)
