"""What is checked of networks and of the trunks that they stand on before any work starts."""

from fedfisher_core.data.specs import datasets
from fedfisher_core.errors import InputError
from fedfisher_core.layouts import require_images
from fedfisher_core.models.spec import models
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
    found = {name: split_name(name) for name in settings.model.name}
    for trunk, family in found.values():
        # A source that can't be read is refused before any work rests on it.
        source_digest(models.get(family), *([] if trunk is None else [trunk.build]))
    trunks = {name: trunk for name, (trunk, _) in found.items() if trunk is not None}
    if settings.model.trunk_size is not None and not trunks:
        raise InputError(
            f"model.trunk_size={settings.model.trunk_size}, but no trunk is among model.name={list(found)}; allowed: "
            "null, or names such as mobilenet_v2/linear"
        )
    for name, trunk in trunks.items():
        _require_images(name, trunk, settings)
        load_trunk(trunk)


def _require_images(name: str, trunk: Trunk, settings: FederationSettings) -> None:
    for dataset in settings.data.dataset:
        require_images(datasets.get(dataset).inputs, f"trunk {trunk.name!r} with data.dataset={dataset}")
    for shift in settings.partition.shift:
        if shift and shift.kind != "labels":
            raise InputError(
                f"partition.shift={shift} with model.name={name!r}: features are made once, of images as they are; "
                "allowed: none, labels"
            )
