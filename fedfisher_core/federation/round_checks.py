"""What several rounds, server optimisers and objectives with a memory ask of a federation, before any client trains."""

from collections.abc import Mapping, Sequence
from itertools import product

from fedfisher_core.client.features import last_layer
from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.client.objectives.objective import Knowledge
from fedfisher_core.errors import InputError, UnsupportedLayerError
from fedfisher_core.methods.binding import BoundMethod
from fedfisher_core.methods.method import methods
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.server_optimisers.binding import bind_server_optimiser
from fedfisher_core.settings import Cell, FederationSettings
from fedfisher_core.sources import source_digest


def require_rounds(settings: FederationSettings, label: str, bound: BoundMethod, cells: Sequence[Cell]) -> None:
    """Check that clients and server can go on from what a method returns.

    Args:
        settings: of the federation.
        label: the method's.
        bound: the method.
        cells: in which it runs.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    rounds = settings.rounds
    if rounds.cohort is not None and bound.summation is not None and bound.wire.secure.dropouts:
        raise InputError(
            f"rounds.cohort={rounds.cohort}, but wire.secure.dropouts of method {label!r} names clients that are not "
            "in every round; allowed: one of them"
        )
    for objective in dict.fromkeys(cell.objective for cell in cells):
        exchange = bind_objective(objective, settings.train.objective).objective.exchange
        if exchange is not None and bound.summation is not None:
            raise InputError(
                f"train.objective={objective!r} with wire.server_view='secure_sum' of method {label!r}: what each "
                "client reports for this objective is no part of the sum; allowed: 'declared', or for this method an "
                f"objective without reports, by methods.{label}.only.objective"
            )
    if bound.method.continues:
        return
    able = ", ".join(sorted(name for name in methods if methods.get(name).continues))
    reason = f"method {label!r} returns no single network of the clients' shape; allowed: {able}"
    if rounds.count > 1:
        raise InputError(f"rounds.count={rounds.count}, but {reason}; or rounds.count=1")
    for optimiser in dict.fromkeys(cell.server_optimiser for cell in cells):
        if not bind_server_optimiser(optimiser, rounds.server_optimiser).is_average:
            raise InputError(
                f"rounds.server_optimiser={optimiser!r}, but {reason}; or average, also for this method alone by "
                f"methods.{label}.only.server_optimiser"
            )


def require_measured(settings: FederationSettings, methods: Mapping[str, BoundMethod]) -> None:
    """Check that what is asked of networks on clients' own examples can be measured of some method.

    Args:
        settings: of the federation.
        methods: all of them, by label.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    measures = settings.measures
    able = [bound.method for bound in methods.values() if bound.method.continues]
    # What is trained on all data in one place is no client's network.
    asked = {
        "barrier=true": measures.barrier and all(method.pooled for method in able),
        "personalisation": measures.personalisation is not None and not able,
    }
    for measure, unmeasured in asked.items():
        if unmeasured:
            raise InputError(
                f"measures.{measure}, but none of the methods ({', '.join(methods)}) returns a single network of the "
                "clients' shape to measure; allowed: without it, or with such a method, as fedavg"
            )


def require_server_optimisers(settings: FederationSettings, examples: Mapping[str, int | None]) -> None:
    """Check that server optimisers can go with the clients' training.

    Args:
        settings: of the federation.
        examples: of all clients together, by data set; None where they are not counted before the work.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    rounds = settings.rounds
    for label in rounds.server_optimiser:
        bound = bind_server_optimiser(label, rounds.server_optimiser)
        # A source that can't be read is refused before any work rests on it.
        source_digest(bound.optimiser.function)
        if not bound.is_average and settings.model.initialisation != "same":
            raise InputError(
                f"model.initialisation={settings.model.initialisation!r}, but rounds.server_optimiser={label!r} steps "
                "from weights that all clients started from; allowed: 'same'"
            )
        trained = {cell.objective for cell in settings.cells() if cell.server_optimiser == label}
        for objective, count in product(sorted(trained), examples.values()):
            bound.require(settings.train.of(objective), count)


def require_features(settings: FederationSettings, spec: ModelSpec) -> None:
    """Check that a network has the features that an objective reads.

    Args:
        settings: of the federation.
        spec: the network.

    Raises:
        InputError: names the objective and the network.
    """
    for label in settings.train.objective:
        objective = bind_objective(label, settings.train.objective).objective
        if Knowledge.FEATURES in objective.reads:
            try:
                last_layer(spec.skeleton())
            except UnsupportedLayerError as error:
                raise InputError(f"train.objective={label!r} with model {spec.name!r}: {error}") from error
