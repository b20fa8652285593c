"""Checks of federations before any work starts."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache

import torch

from fedfisher_core.client.local import estimator_of
from fedfisher_core.client.objectives.objective import configure_objective
from fedfisher_core.client.statistics.statistic import Statistic
from fedfisher_core.data.counting import count_training
from fedfisher_core.data.layouts import Images, Texts
from fedfisher_core.data.partitions import require_split
from fedfisher_core.data.shifts import require_shift
from fedfisher_core.data.sources import find_source
from fedfisher_core.data.specs import datasets
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.errors import InputError, MemoryLimitError, UnsupportedLayerError
from fedfisher_core.engine.job import Numerics
from fedfisher_core.federation.canary import require_canary
from fedfisher_core.federation.federation import Federation
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.model_checks import (
    require_adapters,
    require_models,
    require_networks,
    require_running_statistics,
)
from fedfisher_core.federation.private_training import require_privacy, require_private_objective
from fedfisher_core.federation.rank_checks import require_method_of_ranks, require_ranks
from fedfisher_core.federation.round_checks import (
    require_features,
    require_measured,
    require_rounds,
    require_server_optimisers,
)
from fedfisher_core.federation.secure import require_protocol
from fedfisher_core.federation.server_memory import require_server_memory
from fedfisher_core.federation.start import pretrained_of, read_weights
from fedfisher_core.federation.statistics import group_by_pass, require_starts
from fedfisher_core.federation.training import require_together
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.fisher.capture import require_rows, trace
from fedfisher_core.fisher.nngeometry_backend import supported_layers
from fedfisher_core.fisher.single_pass import FisherPass
from fedfisher_core.fisher.weight_sharing import WeightSharing
from fedfisher_core.methods.configured import ConfiguredMethod, configure
from fedfisher_core.models.spec import ModelSpec
from fedfisher_core.privacy.training import private_layers
from fedfisher_core.settings import FederationSettings, FisherSettings, Scope, TextSettings

_log = logging.getLogger("fedfisher.data")


def check_federations(settings: FederationSettings, *, title: str = "") -> Federations:
    """Check everything that can be checked without work.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    for dataset in settings.data.dataset:
        find_source(dataset)
        _require_label(settings, dataset)
        _require_scaling(settings, dataset)
        _require_coarse(settings, dataset)
    _require_texts(settings)
    _require_pictures(settings)
    _warn_of_skipped(settings)
    require_models(settings)
    _require_objectives(settings)
    numerics = Numerics.of(settings.run)
    candidates = [Federation(settings, setting, numerics, title) for setting in settings.seeded_settings()]
    specs = dict.fromkeys(federation.spec for federation in candidates)
    require_networks(specs)
    require_adapters(settings, specs)
    require_running_statistics(settings, specs)
    require_together(settings, candidates)
    require_ranks(settings, candidates)
    scopes = {label: _scope(label, entry.only, settings) for label, entry in settings.methods.items()}
    methods = {}
    for label, entry in settings.methods.items():
        admitted = [federation for federation in candidates if scopes[label].admits(federation.setting)]
        served = dict.fromkeys(spec for federation in admitted for spec in federation.specs)
        methods[label] = configure(label, entry, served, settings.wire, settings.statistics)
        require_method_of_ranks(settings, admitted, label, methods[label])
        require_privacy(settings, label, methods[label].uploads)
        if methods[label].validates:
            _require_validation(settings, label)
        if methods[label].shared_start:
            _require_shared_start(settings, label)
        require_starts(settings, label, methods[label].method.uploads)
        require_rounds(settings, label, methods[label], [federation.setting for federation in admitted])
        # A source that can't be read is refused before any work depends on it.
        code_of(methods[label].method.function, *methods[label].method.uploads)
    _require_one_release(settings, methods)
    require_measured(settings, methods)
    used = tuple(
        federation for federation in candidates if any(scope.admits(federation.setting) for scope in scopes.values())
    )
    federations = Federations(settings=settings, all=used, methods=methods, scopes=scopes)
    _require_budgets(federations)
    counted = _require_splits(federations)
    require_server_optimisers(settings, counted)
    for federation in used:
        for label, configured in federations.methods_of(federation).items():
            clients = settings.rounds.cohort or len(federation.participants)
            require_protocol(label, configured, clients)
            _require_method(label, configured, clients)
    for pretrained, spec in dict.fromkeys((pretrained_of(federation), federation.spec) for federation in candidates):
        if pretrained is not None:
            read_weights(pretrained, spec)
        require_features(settings, spec)
    _require_private_layers(federations)
    _require_fishers(federations)
    require_server_memory(federations)
    _require_enough_clients(settings)
    return federations


def _require_enough_clients(settings: FederationSettings) -> None:
    """Check that no round needs more clients than take part in it."""
    least, cohort = settings.run.min_clients, settings.rounds.cohort
    if least is None:
        return
    if cohort is not None and least > cohort:
        raise InputError(f"run.min_clients={least} exceeds rounds.cohort={cohort}; allowed: up to {cohort}")
    unseen, smallest = settings.unseen_clients, settings.fewest_clients
    if least > smallest - unseen:
        less = f" less measures.personalisation.unseen_clients={unseen}" if unseen else ""
        raise InputError(
            f"run.min_clients={least} exceeds partition.clients={smallest}{less}; allowed: up to {smallest - unseen}"
        )


def _require_texts(settings: FederationSettings) -> None:
    """Check that there are texts where the settings say how to read them."""
    text, given = settings.data.text, settings.data.dataset
    if text != TextSettings() and not any(isinstance(datasets.get(one).inputs, Texts) for one in given):
        raise InputError(
            f"data.text={text.model_dump(mode='json')}, but no texts are among data.dataset={list(given)}; allowed: "
            "the defaults, or data of texts"
        )


def _require_pictures(settings: FederationSettings) -> None:
    """Check that there are images where the settings say what becomes of their sizes."""
    sizes, given = settings.data.image_sizes, settings.data.dataset
    if sizes != "same" and not any(isinstance(datasets.get(one).inputs, Images) for one in given):
        raise InputError(
            f"data.image_sizes={sizes!r}, but no images are among data.dataset={list(given)}; allowed: 'same', or data "
            "of images"
        )


def _require_label(settings: FederationSettings, dataset: str) -> None:
    """Check that the data has the label that one whole client gets."""
    label, classes = settings.partition.target_label, datasets.get(dataset).classes
    if label is not None and label >= classes:
        raise InputError(f"partition.target_label={label}: {dataset} has no such label; allowed: 0 to {classes - 1}")


def _require_scaling(settings: FederationSettings, dataset: str) -> None:
    """Check that clients whose numbers are scaled by their own statistics can do so."""
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
    """Check that the data has the coarse labels that pachinko allocation draws first."""
    if "pachinko" in settings.partition.scheme and not datasets.get(dataset).coarse_columns:
        known = [name for name in datasets if datasets.get(name).coarse_columns]
        raise InputError(f"partition.scheme=pachinko: {dataset} has no coarse labels; allowed: {', '.join(known)}")


def _require_objectives(settings: FederationSettings) -> None:
    """Check what clients minimise."""
    for label in settings.train.objective:
        configured = configure_objective(label, settings.train.objective)
        # A source that can't be read is refused before any work depends on it.
        code_of(*configured.sources)
        if configured.objective.require is not None:
            configured.objective.require(settings.train.of(label))
        if settings.privacy is not None:
            require_private_objective(label, configured)


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
    """Check that all clients start from the same weights."""
    if settings.model.initialisation != "same":
        raise InputError(
            f"model.initialisation={settings.model.initialisation!r}, but method {label!r} merges what training "
            "changed of weights that all clients started from; allowed: 'same'"
        )


def _require_one_release(settings: FederationSettings, methods: Mapping[str, ConfiguredMethod]) -> None:
    """Check that with privacy each example is released once, by one client with one budget."""
    pooled = [label for label, configured in methods.items() if configured.method.pooled]
    if settings.privacy is not None and pooled and len(pooled) < len(methods):
        raise InputError(
            f"method {pooled[0]!r}: with privacy, to train on all data in one place is a second release of every "
            f"client's examples, which no budget counts; allowed: in a separate benchmark"
        )
    asking = [label for label, configured in methods.items() if configured.method.asks_again]
    if settings.privacy is not None and asking:
        raise InputError(
            f"method {asking[0]!r}: with privacy, what it asks clients for after their upload has no budget; "
            "allowed: without privacy"
        )


def _require_budgets(federations: Federations) -> None:
    """Check that a client can keep all its releases within its budget."""
    if federations.settings.privacy is None:
        return
    # All clients of a federation send the same.
    for federation in federations.all:
        federations.budget(federation, federations.clients(federation)[0]).require_possible()


def _require_method(label: str, configured: ConfiguredMethod, clients: int) -> None:
    """Check that a method works with the number of clients of a round."""
    if configured.method.require is None:
        return
    try:
        configured.method.require(configured.settings, clients)
    except InputError as error:
        raise InputError(f"method {label!r}: {error}") from error


def _require_splits(federations: Federations) -> dict[str, int | None]:
    """Check that each federation's data can be split over its clients, and shifted as the settings ask.

    Returns:
        Training examples by data set; None where they are not counted before the work.
    """
    settings = federations.settings
    column, coarse = settings.partition.column, "pachinko" in settings.partition.scheme
    counts = {
        name: count_training(find_source(name), sample=federations.sample, group_column=column, coarse=coarse)
        for name in settings.data.dataset
    }
    for name, counted in counts.items():
        if counted is not None and counted.unseen:
            _warn(f"data set {name!r}: {counted.unseen}")
    for federation in federations.all:
        data, clients = federation.dataset, federation.setting.clients
        require_shift(federation.setting.shift, data.name, data.inputs, data.classes, clients)
        counted = counts[federation.setting.dataset]
        require_canary(federation, None if counted is None else int(counted.labels.sum()))
        if counted is not None:
            _warn_of_delta(settings, examples=int(counted.labels.sum()) // clients)
            require_split(
                settings.partition,
                federation.setting,
                counted.labels,
                validation_size=settings.data.validation_size,
                groups=counted.groups,
                coarse=counted.coarse,
            )
    return {name: None if counted is None else int(counted.labels.sum()) for name, counted in counts.items()}


def _warn_of_delta(settings: FederationSettings, *, examples: int) -> None:
    """Warn where delta is so large that all of an example could be published within the budget."""
    if settings.privacy is not None and settings.privacy.delta * examples >= 1:
        _warn(
            f"privacy.delta={settings.privacy.delta:g}: clients hold about {examples:,} examples, and such a budget "
            f"would allow to publish one of them; a delta well below {1 / examples:.2g} means something"
        )


def _warn_of_skipped(settings: FederationSettings) -> None:
    """Warn of entries of `skip` that leave nothing out, which a typo makes, and an override that narrows a file."""
    every = settings.combinations()
    for number, scope in enumerate(settings.skip):
        if not any(scope.admits(setting) for setting in every):
            given = scope.model_dump(mode="json", exclude_none=True)
            _warn(f"skip[{number}]={given} fits no setting of the experiment, and leaves nothing out")


@cache
def _warn(message: str) -> None:
    """Warn once, since a command checks its experiments more than once."""
    _log.warning("%s", message)


def _require_private_layers(federations: Federations) -> None:
    """Check that networks can be trained, and their Fishers released, with differential privacy."""
    if federations.settings.privacy is None:
        return
    for federation in federations.all:
        network = federation.spec.skeleton().eval()
        methods = federations.methods_of(federation).values()
        try:
            layers = private_layers(network)
            if any(one.statistic.approximation for configured in methods for one in configured.uploads):
                require_rows(layers, trace(network, layers, federation.spec.inputs.zeros(1).to("meta")))
        except UnsupportedLayerError as error:
            raise InputError(f"model {federation.spec.name!r} with privacy: {error}") from error


def _scope(label: str, scope: Scope, settings: FederationSettings) -> Scope:
    """Check that a method runs in at least one setting."""
    for key, points in settings.points().items():
        for value in getattr(scope, key) or ():
            if value not in points:
                raise InputError(
                    f"methods.{label}.only.{key}={value!r} is not in the benchmark; "
                    f"allowed: {', '.join(map(str, points))}"
                )
    if not any(scope.admits(setting) for setting in settings.seeded_settings()):
        given = scope.model_dump(mode="json", exclude_none=True)
        raise InputError(f"methods.{label}.only={given} leaves no setting of the benchmark; allowed: at least one")
    return scope


def _require_fishers(federations: Federations) -> None:
    """Check that the backend has the Fishers that methods need, and that one example fits their memory."""
    fisher = federations.settings.fisher
    if fisher.backend == "nngeometry":
        _require_nngeometry(federations)
        return
    passes = {
        (federation.spec, group, federation.fisher)
        for federation in federations.all
        for client in federations.clients(federation)
        for group in group_by_pass(
            fisher, [one.statistic for one in federations.statistics(federation, client) if one.statistic.approximation]
        )
    }
    for spec, group, chosen in passes:
        _require_memory(spec, group, chosen)


def _require_nngeometry(federations: Federations) -> None:
    """Check that nngeometry computes the Fishers that methods need."""
    for label, configured in federations.methods.items():
        if any(one.approximation is Approximation.DENSE for one in configured.method.uploads):
            raise InputError(
                f"fisher.backend='nngeometry' has no full Fisher, which method {label!r} needs; allowed: native"
            )
    for federation in federations.all:
        methods = federations.methods_of(federation).values()
        if not any(one.approximation for configured in methods for one in configured.method.uploads):
            continue
        try:
            supported_layers(federation.spec.skeleton().eval(), federation.spec.inputs.zeros(1).to("meta"))
        except UnsupportedLayerError as error:
            raise InputError(f"fisher.backend='nngeometry', model {federation.spec.name!r}: {error}") from error


def _require_memory(spec: ModelSpec, group: Sequence[type[Statistic]], fisher: FisherSettings) -> None:
    """Check that one example fits the memory of a pass."""
    network = spec.load(spec.initialise(torch.Generator().manual_seed(0))).eval()
    names = " and ".join(one.name for one in group)
    try:
        FisherPass(
            network,
            spec.inputs.zeros(1),
            approximations={one.approximation for one in group if one.approximation is not None},
            estimator=estimator_of(fisher),
            memory_limit=fisher.memory_limit,
            sharing=WeightSharing(fisher.weight_sharing),
        )
    except UnsupportedLayerError as error:
        raise InputError(f"{names} of model {spec.name!r}: {error}") from error
    except MemoryLimitError as error:
        raise InputError(
            f"fisher.memory_mib={fisher.memory_mib} is too little for {names} of one example of model {spec.name!r}; "
            f"allowed: at least {-(-error.needed // 2**20)}"
        ) from error
