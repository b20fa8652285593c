"""What is checked of federations before any work starts."""

from collections.abc import Mapping, Sequence

import torch

from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.objectives.binding import bind_objective
from fedfisher_core.client.statistic import Statistic
from fedfisher_core.data.counting import count_training
from fedfisher_core.data.partitions import require_split
from fedfisher_core.data.shifts import require_shift
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError, MemoryLimitError, UnsupportedLayerError
from fedfisher_core.federation.federation import Federations
from fedfisher_core.federation.model_checks import require_models, require_running_statistics
from fedfisher_core.federation.place import Place
from fedfisher_core.federation.pretrained import pretrained_of, read_weights
from fedfisher_core.federation.privacy import require_privacy, require_private_objective
from fedfisher_core.federation.round_checks import (
    require_features,
    require_measured,
    require_rounds,
    require_server_optimisers,
)
from fedfisher_core.federation.secure_checks import require_protocol
from fedfisher_core.federation.server_memory import require_server_memory
from fedfisher_core.federation.statistics import group_by_pass
from fedfisher_core.federation.training_again import require_starts
from fedfisher_core.federation.training_together import require_together
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.fisher.estimators import Loss
from fedfisher_core.fisher.nngeometry_backend import supported_layers
from fedfisher_core.fisher.single_pass import FisherPass
from fedfisher_core.jobs import Numerics
from fedfisher_core.methods.binding import BoundMethod, bind
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.training import private_layers
from fedfisher_core.settings import FederationSettings, FisherSettings, Scope
from fedfisher_core.sources import source_digest


def check_federations(settings: FederationSettings, *, title: str = "") -> Federations:
    """Check everything that can be checked without work.

    Args:
        settings: of the federations.
        title: tells them apart from others of the same experiment.

    Returns:
        The federations.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    for dataset in settings.data.dataset:
        find_source(dataset)
        _require_label(settings, dataset)
        _require_scaling(settings, dataset)
        _require_coarse(settings, dataset)
    require_models(settings)
    _require_objectives(settings)
    numerics = Numerics.of(settings.run)
    places = [Place(settings, cell, numerics, title) for cell in settings.cells()]
    require_running_statistics(settings, dict.fromkeys(place.spec for place in places))
    require_together(settings, places)
    scopes = {label: _scope(label, entry.only, settings) for label, entry in settings.methods.items()}
    methods = {}
    for label, entry in settings.methods.items():
        specs = dict.fromkeys(place.spec for place in places if scopes[label].admits(place.cell))
        methods[label] = bind(label, entry, specs, settings.wire, settings.statistics)
        require_privacy(settings, label, methods[label].uploads)
        if methods[label].validates:
            _require_validation(settings, label)
        if methods[label].shared_start:
            _require_shared_start(settings, label)
        require_starts(settings, label, methods[label].method.uploads)
        admitted = [place.cell for place in places if scopes[label].admits(place.cell)]
        require_rounds(settings, label, methods[label], admitted)
        # A source that can't be read is refused before any work rests on it.
        source_digest(methods[label].method.function, *methods[label].method.uploads)
    _require_one_release(settings, methods)
    require_measured(settings, methods)
    used = tuple(place for place in places if any(scope.admits(place.cell) for scope in scopes.values()))
    federations = Federations(settings=settings, places=used, methods=methods, scopes=scopes)
    _require_budgets(federations)
    counted = _require_splits(federations)
    require_server_optimisers(settings, counted)
    for place in used:
        for label, bound in federations.methods_of(place).items():
            clients = settings.rounds.cohort or len(place.participants)
            require_protocol(label, bound, clients)
            _require_method(label, bound, clients)
    for pretrained, spec in dict.fromkeys((pretrained_of(place), place.spec) for place in places):
        spec.initialise(torch.Generator())
        if pretrained is not None:
            read_weights(pretrained, spec)
        require_features(settings, spec)
    _require_private_layers(federations)
    _require_fishers(federations)
    require_server_memory(federations)
    _require_enough_clients(settings)
    return federations


def _require_enough_clients(settings: FederationSettings) -> None:
    """Check that no round is asked to have more clients than take part in it."""
    least, cohort = settings.run.min_clients, settings.rounds.cohort
    if least is None:
        return
    if cohort is not None and least > cohort:
        raise InputError(f"run.min_clients={least} exceeds rounds.cohort={cohort}; allowed: up to {cohort}")
    unseen, smallest = settings.unseen_clients, min(settings.partition.clients)
    if least > smallest - unseen:
        less = f" less measures.personalisation.unseen_clients={unseen}" if unseen else ""
        raise InputError(
            f"run.min_clients={least} exceeds partition.clients={smallest}{less}; allowed: up to {smallest - unseen}"
        )


def _require_label(settings: FederationSettings, dataset: str) -> None:
    """Check that the data has the label that a whole client is made of."""
    label, classes = settings.partition.target_label, datasets.get(dataset).classes
    if label is not None and label >= classes:
        raise InputError(f"partition.target_label={label}: {dataset} has no such label; allowed: 0 to {classes - 1}")


def _require_scaling(settings: FederationSettings, dataset: str) -> None:
    """Check that clients that scale their own numbers can, and that nobody else has to."""
    spec = datasets.get(dataset)
    if spec.impute is None:
        return
    others = [scheme for scheme in settings.partition.scheme if scheme != "column"]
    if others:
        column = "" if spec.client_column is None else f" with partition.column={spec.client_column}"
        raise InputError(
            f"partition.scheme={others[0]}: each client fills and scales the numbers of {dataset} by its own "
            f"statistics, so that each test example must be one client's; allowed: column{column}"
        )
    if settings.privacy is not None:
        raise InputError(
            f"data.dataset={dataset} with privacy: each client scales its numbers by statistics of its own examples, "
            "so that one example changes what others look like, which no budget counts; allowed: without privacy, or "
            "data that constants scale"
        )


def _require_coarse(settings: FederationSettings, dataset: str) -> None:
    """Check that the data has the labels that pachinko allocation draws first."""
    if "pachinko" in settings.partition.scheme and not datasets.get(dataset).coarse_columns:
        known = [name for name in datasets if datasets.get(name).coarse_columns]
        raise InputError(f"partition.scheme=pachinko: {dataset} has no coarse labels; allowed: {', '.join(known)}")


def _require_objectives(settings: FederationSettings) -> None:
    """Check what clients minimise."""
    for label in settings.train.objective:
        bound = bind_objective(label, settings.train.objective)
        # A source that can't be read is refused before any work rests on it.
        source_digest(*bound.sources)
        if bound.objective.require is not None:
            bound.objective.require(settings.train.of(label))
        if settings.privacy is not None:
            require_private_objective(label, bound)


def _require_validation(settings: FederationSettings, label: str) -> None:
    """Check that the server has validation images, and may look at them."""
    if settings.data.validation_size == 0:
        raise InputError(
            f"data.validation_size=0, but method {label!r} selects on the server's validation images; "
            "allowed: 1 or more"
        )
    if not settings.may_validate:
        raise InputError(
            f"data.public_validation=false with privacy, but method {label!r} selects on the server's validation "
            "images, which are clients' training images; allowed: true, if they are public, or to select nothing"
        )


def _require_shared_start(settings: FederationSettings, label: str) -> None:
    """Check that there is a model that all clients started from."""
    if settings.model.initialisation != "same":
        raise InputError(
            f"model.initialisation={settings.model.initialisation!r}, but method {label!r} merges what training "
            "changed of weights that all clients started from; allowed: 'same'"
        )


def _require_one_release(settings: FederationSettings, methods: Mapping[str, BoundMethod]) -> None:
    """Check that with privacy all examples are released by one client each, which has one budget."""
    pooled = [label for label, bound in methods.items() if bound.method.pooled]
    if settings.privacy is not None and pooled and len(pooled) < len(methods):
        raise InputError(
            f"method {pooled[0]!r}: with privacy, to train on all data in one place is a second release of every "
            f"client's examples, which no budget counts; allowed: in a benchmark of its own"
        )
    asking = [label for label, bound in methods.items() if bound.method.asks_again]
    if settings.privacy is not None and asking:
        raise InputError(
            f"method {asking[0]!r}: with privacy, what it asks clients for after their upload has no budget; "
            "allowed: without privacy"
        )


def _require_budgets(federations: Federations) -> None:
    """Check that what a client releases to all methods together can keep within its budget."""
    if federations.settings.privacy is None:
        return
    # All clients of a federation send the same.
    for place in federations.places:
        federations.budget(place, federations.clients(place)[0]).require_possible()


def _require_method(label: str, bound: BoundMethod, clients: int) -> None:
    """Check that a method can do with the clients of a round."""
    if bound.method.require is None:
        return
    try:
        bound.method.require(bound.settings, clients)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error


def _require_splits(federations: Federations) -> dict[str, int | None]:
    """Check that the data can be split over the clients of each federation, and be seen by each as asked.

    Returns:
        Training examples by data set; None where they are not counted before the work.
    """
    settings = federations.settings
    column, coarse = settings.partition.column, "pachinko" in settings.partition.scheme
    counts = {
        name: count_training(find_source(name), sample=federations.sample, group_column=column, coarse=coarse)
        for name in settings.data.dataset
    }
    for place in federations.places:
        data, clients = place.dataset, place.cell.clients
        require_shift(place.cell.shift, data.name, data.inputs, data.classes, clients)
        counted = counts[place.cell.dataset]
        if counted is not None:
            require_split(
                settings.partition,
                place.cell,
                counted.labels,
                validation_size=settings.data.validation_size,
                groups=counted.groups,
                coarse=counted.coarse,
            )
    return {name: None if counted is None else int(counted.labels.sum()) for name, counted in counts.items()}


def _require_private_layers(federations: Federations) -> None:
    """Check that networks can be trained with differential privacy, and that their Fishers can be released."""
    if federations.settings.privacy is None:
        return
    for place in federations.places:
        network = place.spec.skeleton().eval()
        methods = federations.methods_of(place).values()
        try:
            layers = private_layers(network)
            if any(one.statistic.approximation for bound in methods for one in bound.uploads):
                require_rows(layers, trace(network, layers, place.spec.inputs.zeros(1).to("meta")))
        except UnsupportedLayerError as error:
            raise InputError(f"model {place.spec.name!r} with privacy: {error}") from error


def _scope(label: str, scope: Scope, settings: FederationSettings) -> Scope:
    """Check that a method runs somewhere."""
    for key, points in settings.points().items():
        for value in getattr(scope, key) or ():
            if value not in points:
                raise InputError(
                    f"methods.{label}.only.{key}={value!r} is no point of the benchmark; "
                    f"allowed: {', '.join(map(str, points))}"
                )
    if not any(scope.admits(cell) for cell in settings.cells()):
        given = scope.model_dump(mode="json", exclude_none=True)
        raise InputError(f"methods.{label}.only={given} leaves no point of the benchmark; allowed: at least one")
    return scope


def _require_fishers(federations: Federations) -> None:
    """Check that the Fishers that methods need exist in the backend, and that one example fits their memory."""
    fisher = federations.settings.fisher
    if fisher.backend == "nngeometry":
        _require_nngeometry(federations)
        return
    passes = {
        (place.spec, group, place.fisher)
        for place in federations.places
        for client in federations.clients(place)
        for group in group_by_pass(
            fisher, [one.statistic for one in federations.statistics(place, client) if one.statistic.approximation]
        )
    }
    for spec, group, chosen in passes:
        _require_memory(spec, group, chosen)


def _require_nngeometry(federations: Federations) -> None:
    """Check that the library computes the Fishers that methods need."""
    for label, bound in federations.methods.items():
        if any(one.approximation is Approximation.DENSE for one in bound.method.uploads):
            raise InputError(
                f"fisher.backend='nngeometry' has no full Fisher, which method {label!r} needs; allowed: native"
            )
    for place in federations.places:
        methods = federations.methods_of(place).values()
        if not any(one.approximation for bound in methods for one in bound.method.uploads):
            continue
        try:
            supported_layers(place.spec.skeleton().eval(), place.spec.inputs.zeros(1).to("meta"))
        except UnsupportedLayerError as error:
            raise InputError(f"fisher.backend='nngeometry', model {place.spec.name!r}: {error}") from error


def _require_memory(spec: ModelSpec, group: Sequence[type[Statistic]], fisher: FisherSettings) -> None:
    """Check that one example fits the memory of a pass."""
    network = spec.load(spec.initialise(torch.Generator().manual_seed(0))).eval()
    names = " and ".join(one.name for one in group)
    try:
        FisherPass(
            network,
            spec.inputs.zeros(1),
            approximations={one.approximation for one in group if one.approximation is not None},
            loss=Loss.CLASSIFICATION,
            estimator=estimator_of(fisher),
            memory_limit=fisher.memory_limit,
        )
    except UnsupportedLayerError as error:
        raise InputError(f"{names} of model {spec.name!r}: {error}") from error
    except MemoryLimitError as error:
        raise InputError(
            f"fisher.memory_mib={fisher.memory_mib} is too little for {names} of one example of model {spec.name!r}; "
            f"allowed: at least {-(-error.needed // 2**20)}"
        ) from error
