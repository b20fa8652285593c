"""What is checked of networks and of the trunks that they stand on before any work starts."""

from collections.abc import Collection

from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_images
from fedfisher_core.models.running_statistics import batch_norms
from fedfisher_core.models.spec import ModelSpec, models
from fedfisher_core.settings import FederationSettings
from fedfisher_core.sources import source_digest
from fedfisher_core.trunks.trunk import Trunk, split_name
from fedfisher_core.trunks.weights import load_trunk


def require_models(settings: FederationSettings) -> None:
    """Check that networks exist, and that trunks have their weights and are given images as they are.

    Args:
        settings: of the federations.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    found = {name: _split(name) for name in settings.model.name}
    for trunk, family in found.values():
        # A source that can't be read is refused before any work rests on it.
        source_digest(models.get(family), *([] if trunk is None else [trunk.build]))
    trunks = {name: trunk for name, (trunk, _) in found.items() if trunk is not None}
    if settings.model.trunk_size is not None and not trunks:
        raise InputError(
            f"model.trunk_size={settings.model.trunk_size}, but no trunk is among model.name={list(found)}; allowed: "
            "null, or names such as mobilenet_v2/linear"
        )
    pretrained = settings.model.pretrained
    if pretrained is not None and pretrained.trunk_sha256 is not None and not trunks:
        raise InputError(
            f"model.pretrained.trunk_sha256={pretrained.trunk_sha256}, but no trunk is among model.name={list(found)}; "
            "allowed: null, or names such as mobilenet_v2/linear"
        )
    if pretrained is not None and pretrained.weights is not None and len(trunks) == len(found):
        raise InputError(
            f"model.pretrained.weights={pretrained.weights} is of a whole network, but model.name={next(iter(trunks))} "
            "trains a head alone; allowed: model.pretrained.file, with a head's weights, or a whole network in its "
            "place or beside it"
        )
    for name, trunk in trunks.items():
        _require_images(name, trunk, settings)
        load_trunk(trunk)
        _require_same_features(name, trunk, settings)


def require_running_statistics(settings: FederationSettings, specs: Collection[ModelSpec]) -> None:
    """Check that running statistics can be treated as the settings say.

    Args:
        settings: of the federations.
        specs: their networks.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    chosen = settings.model.running_statistics
    key = f"model.running_statistics={chosen!r}"
    having = {spec.name: next(iter(norms)) for spec in specs if (norms := batch_norms(spec.skeleton()))}
    if chosen == "refused" and having:
        name, layer = next(iter(having.items()))
        raise InputError(
            f"{key}, but model {name!r} has them in {layer!r}; allowed: merged, estimated, or other models"
        )
    if chosen != "estimated":
        return
    if not having:
        raise InputError(f"{key}, but no model among {[spec.name for spec in specs]} has any; allowed: merged")
    if settings.data.validation_size == 0 or not settings.may_validate:
        raise InputError(
            f"{key} needs validation images that the server may look at; allowed: merged, or data.validation_size=1 "
            "or more, and with privacy data.public_validation=true"
        )


def _split(name: str) -> tuple[Trunk | None, str]:
    try:
        return split_name(name)
    except InputError as error:
        raise InputError(f"model.name={name}: {error}") from error


def _require_same_features(name: str, trunk: Trunk, settings: FederationSettings) -> None:
    """Check that a head which was trained before has learned from the features that it is given."""
    pretrained = settings.model.pretrained
    if pretrained is not None and pretrained.file is not None and pretrained.trunk_sha256 != trunk.sha256:
        given = pretrained.trunk_sha256
        has = "is not set, but" if given is None else "is another than that of the weights by which"
        raise InputError(
            f"model.pretrained.trunk_sha256={given} {has} model.name={name} is given features; allowed: "
            f"{trunk.sha256}, for a head that was trained on these"
        )


def _require_images(name: str, trunk: Trunk, settings: FederationSettings) -> None:
    for dataset in settings.data.dataset:
        require_images(datasets.get(dataset).inputs, f"trunk {trunk.name!r} with data.dataset={dataset}")
    for shift in settings.partition.shift:
        if shift and shift.kind != "labels":
            raise InputError(
                f"partition.shift={shift} with model.name={name!r}: features are made once, of images as they are; "
                "allowed: none, labels"
            )
