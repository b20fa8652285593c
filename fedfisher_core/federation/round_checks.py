"""Checks of rounds and of objectives with a memory, before any work starts."""

from collections.abc import Mapping, Sequence
from itertools import product

from fedfisher_core.client.local import last_layer
from fedfisher_core.client.objectives.objective import Knowledge, configure_objective
from fedfisher_core.client.statistics.features import require_class_rows
from fedfisher_core.data.layouts import require_images
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.errors import InputError, UnsupportedLayerError
from fedfisher_core.methods.configured import ConfiguredMethod
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server_optimisers.configured import configure_server_optimiser
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.settings import FederationSettings, RoundSettings, SeededSetting


def require_rounds(
    settings: FederationSettings, label: str, configured: ConfiguredMethod, seeded: Sequence[SeededSetting]
) -> None:
    """Check that clients and server can go on from what a method returns.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    rounds = settings.rounds
    if rounds.cohort is not None and configured.summation is not None and configured.wire.secure.dropouts:
        raise InputError(
            f"rounds.cohort={rounds.cohort}, but wire.secure.dropouts of method {label!r} names clients that are not "
            "in every round; allowed: one of them"
        )
    for objective in dict.fromkeys(setting.objective for setting in seeded):
        exchange = configure_objective(objective, settings.train.objective).objective.exchange
        if exchange is not None and configured.summation is not None:
            raise InputError(
                f"train.objective={objective!r} with wire.server_view='secure_sum' of method {label!r}: what each "
                "client reports for this objective is no part of the sum; allowed: 'declared', or for this method an "
                f"objective without reports, by methods.{label}.only.objective"
            )
    stepping = [
        optimiser
        for optimiser in dict.fromkeys(setting.server_optimiser for setting in seeded)
        if not configure_server_optimiser(optimiser, rounds.server_optimiser).is_average
    ]
    if configured.label_prior != 0:
        _require_no_training_after(rounds, label, configured.label_prior, stepping)
    if rounds.count > 1 and configured.method.one_round:
        raise InputError(
            f"rounds.count={rounds.count}, but method {label!r} takes it that training starts at products of zero, as "
            "in one round; allowed: rounds.count=1"
        )
    if configured.method.continues:
        return
    able = ", ".join(sorted(name for name in methods if methods.get(name).continues))
    reason = f"method {label!r} returns no single network of the clients' shape; allowed: {able}"
    if rounds.count > 1:
        raise InputError(f"rounds.count={rounds.count}, but {reason}; or rounds.count=1")
    if stepping:
        raise InputError(f"rounds.server_optimiser={stepping[0]!r}, but {reason}; or {_average_alone(label)}")


def _require_no_training_after(rounds: RoundSettings, label: str, label_prior: float, stepping: Sequence[str]) -> None:
    """Check that nothing trains on from outputs that were moved for prediction.

    Args:
        stepping: server optimisers other than the plain average.
    """
    key = f"methods.{label}.label_prior={label_prior:g}"
    if rounds.count > 1:
        raise InputError(
            f"rounds.count={rounds.count} with {key}: clients would train on from the outputs that it moved; allowed: "
            "rounds.count=1, or label_prior=0"
        )
    if stepping:
        raise InputError(
            f"rounds.server_optimiser={stepping[0]!r} with {key}: it would step to the outputs that the prior moved; "
            f"allowed: {_average_alone(label)}, or label_prior=0"
        )


def _average_alone(label: str) -> str:
    return f"average, also for this method alone by methods.{label}.only.server_optimiser"


def require_measured(settings: FederationSettings, methods: Mapping[str, ConfiguredMethod]) -> None:
    """Check that some method returns networks that can be measured on clients' examples as the settings ask.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    measures = settings.measures
    able = [configured.method for configured in methods.values() if configured.method.continues]
    # The pooled client's network is not compared with clients' networks, nor is one that no client trained.
    compared = [method for method in able if method.trains and not method.pooled]
    asked = {
        "barrier=true": measures.barrier and not compared,
        "personalisation": measures.personalisation is not None and not able,
        "canary": measures.canary is not None and not compared,
    }
    for measure, unmeasured in asked.items():
        if unmeasured:
            raise InputError(
                f"measures.{measure}, but none of the methods ({', '.join(methods)}) returns a single network of the "
                "clients' shape to measure; allowed: without it, or with such a method, as fedavg"
            )


def require_server_optimisers(settings: FederationSettings, examples: Mapping[str, int | None]) -> None:
    """Check that server optimisers fit the clients' training.

    Args:
        examples: of all clients together, by data set; None where they are not counted before the work.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    rounds = settings.rounds
    for label in rounds.server_optimiser:
        configured = configure_server_optimiser(label, rounds.server_optimiser)
        # A source that can't be read is refused before any work depends on it.
        code_of(configured.optimiser.function)
        if not configured.is_average and settings.model.initialisation != "same":
            raise InputError(
                f"model.initialisation={settings.model.initialisation!r}, but rounds.server_optimiser={label!r} steps "
                "from weights that all clients started from; allowed: 'same'"
            )
        trained = {setting.objective for setting in settings.seeded_settings() if setting.server_optimiser == label}
        for objective, count in product(sorted(trained), examples.values()):
            configured.require(settings.train.of(objective), count)


def require_features(settings: FederationSettings, spec: ModelSpec) -> None:
    """Check that a network has the features and the last layer that an objective reads, and images if it needs any.

    Raises:
        InputError: names the objective and the network.
    """
    for label in settings.train.objective:
        objective = configure_objective(label, settings.train.objective).objective
        key = f"train.objective={label!r} with model {spec.name!r}"
        if objective.views is not None:
            require_images(spec.inputs, key)
            if settings.data.augment == "never":
                raise InputError(
                    f"data.augment='never' with train.objective={label!r}, which trains on views of images; allowed: "
                    "'as_usual'"
                )
        try:
            if Knowledge.FEATURES in objective.reads:
                last_layer(spec.skeleton())
            if Knowledge.HEAD in objective.reads:
                require_class_rows(spec)
        except UnsupportedLayerError as error:
            raise InputError(f"{key}: {error}") from error
