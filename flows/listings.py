"""Listings of what settings can name, as tables and as JSON."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fedfisher_core.data import specs
from fedfisher_core.data.layouts import Images, Layout, Texts, Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.registry import Registry

if TYPE_CHECKING:
    from fedfisher_core.methods.method import Method
    from fedfisher_core.models.trunks.trunk import Pretrained

_IMAGES = (Images(1, 28, 28), Images(3, 32, 32))
_SEQUENCES = (Tokens(40, 65), Texts(64, 30_522))
_REFUSED = "refused: "


def methods() -> list[dict[str, Any]]:
    """List the methods with their paper, what they upload and their settings."""
    # Methods and networks need torch, which takes seconds to load; the other listings do not.
    from fedfisher_core.methods import method as registry

    entries = []
    for name in registry.methods:
        method = registry.methods.get(name)
        entries.append(
            {
                "name": name,
                "summary": method.summary,
                "reference": method.reference,
                "ranked": method.ranked,
                "shared_start": method.needs_shared_start(method.settings()),
                "server_holds": _held(method),
                "uploads": {name: f"server sees {view.value}" for name, view in method.views.items()},
                "settings": _settings(method.settings)
                | (_settings(registry.COMMON) if method.takes_label_prior else {}),
            }
        )
    return entries


def _held(method: "Method") -> str:
    """Say what a server holds of clients at once, decoded; the number of bytes depends on the network."""
    upload = " + ".join(method.views)
    return f"bytes of {upload} of one client" if method.streamed else f"bytes of {upload}, times the clients"


def objectives() -> list[dict[str, Any]]:
    """List the local objectives with their paper, what they read of a client and their settings."""
    from fedfisher_core.client.objectives.objective import objectives

    return _cited(objectives, lambda one: {"reads": ", ".join(one.reads) or "outputs and labels alone"})


def optimisers() -> list[dict[str, Any]]:
    """List the server optimisers with their paper and their settings."""
    from fedfisher_core.methods.server_optimisers.optimiser import server_optimisers

    return _cited(server_optimisers, lambda one: {})


def _cited(registry: Registry[Any], more: Callable[[Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "summary": one.summary,
            "reference": one.reference,
            **more(one),
            "settings": _settings(one.settings),
        }
        for name, one in ((name, registry.get(name)) for name in registry)
    ]


def datasets() -> list[dict[str, Any]]:
    """List the data sets with their size, their name on the hub, and what they know of clients."""
    return [
        {
            "name": name,
            "summary": f"{spec.classes} classes, {spec.inputs}",
            "hub": _location(spec),
            "augmentation": "crop and flip" if spec.augment else "none",
            "clients": "of any split" if spec.client_column is None else f"named by column {spec.client_column!r}",
            **({} if spec.impute is None else {"missing numbers": f"filled with each client's own {spec.impute}"}),
            **({"coarse labels": f"column {spec.coarse_columns[0]!r}"} if spec.coarse_columns else {}),
        }
        for name in specs.datasets
        for spec in [specs.datasets.get(name)]
    ]


def _location(spec: specs.DatasetSpec) -> str:
    if spec.parts:
        return f"made of {' and '.join(spec.parts)}"
    return spec.hub or ("embedded" if spec.name == specs.EMBEDDED else "none")


_FOLDERS: dict[str, Any] = {
    "name": "folder:PATH/NAME",
    "summary": "The network NAME on features of the encoder in a folder of Hugging Face's; lora has adapters in it.",
    "texts": "up to the encoder's positions",
    "encoders": "bert, distilbert, roberta, xlm-roberta",
}
"""What is said of folders, which no registry lists."""


def models() -> list[dict[str, Any]]:
    """List the networks with their number of parameters for 10 classes, and the trunks that can carry them."""
    from fedfisher_core.models import spec as families
    from fedfisher_core.models.trunks.trunk import trunks

    entries = []
    for name in families.models:
        sizes = {str(inputs): _size(name, inputs) for inputs in _IMAGES}
        if all(size.startswith(_REFUSED) for size in sizes.values()):
            found = {str(inputs): _size(name, inputs) for inputs in _SEQUENCES}
            sizes |= {inputs: size for inputs, size in found.items() if not size.startswith(_REFUSED)}
        summary = (families.models.get(name).__doc__ or "").partition("\n")[0]
        entries.append({"name": name, "summary": summary, "sizes": sizes})
    entries += [_trunk(trunks.get(name)) for name in trunks]
    entries.append(_FOLDERS)
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _trunk(trunk: "Pretrained") -> dict[str, Any]:
    from fedfisher_core.models.trunks.trunk import TextTrunk, Trunk, require_weights

    try:
        found = str(require_weights(trunk))
    except InputError as error:
        found = f"missing: {error}"
    return {
        "name": f"{trunk.name}/NAME",
        "summary": f"The network NAME on {trunk.features:,} features of a frozen, pre-trained trunk.",
        **({"image size": f"{trunk.size} x {trunk.size}, or model.trunk_size"} if isinstance(trunk, Trunk) else {}),
        **({"texts": f"up to {trunk.positions} tokens"} if isinstance(trunk, TextTrunk) else {}),
        "weights": found,
        "licence": trunk.licence,
    }


def _size(name: str, inputs: Layout) -> str:
    from fedfisher_core.models.spec import ModelSpec

    try:
        skeleton = ModelSpec(name=name, inputs=inputs, classes=10).skeleton()
    except InputError as error:
        return f"{_REFUSED}{error}"
    return f"{sum(parameter.numel() for parameter in skeleton.parameters()):,} parameters"


def as_text(entries: list[dict[str, Any]]) -> str:
    """Write a listing for people, one block of lines for each entry."""
    return "\n\n".join(_block(entry) for entry in entries)


def _block(entry: dict[str, Any]) -> str:
    lines = [f"{entry['name']}: {entry['summary']}"]
    for key, value in entry.items():
        if key in ("name", "summary"):
            continue
        if isinstance(value, dict):
            lines += [
                f"  {key}:" if value else f"  {key}: none",
                *(f"    {name}: {text}" for name, text in value.items()),
            ]
        else:
            lines.append(f"  {key}: {value}")
    return "\n".join(lines)


def _settings(model: type[BaseModel]) -> dict[str, Any]:
    return {name: _setting(schema) for name, schema in model.model_json_schema().get("properties", {}).items()}


def _setting(schema: dict[str, Any]) -> str:
    if "discriminator" in schema:
        # A choice among things with their own settings, such as solvers.
        names = "/".join(schema["discriminator"]["mapping"])
        chosen = dict(schema["default"])
        name = chosen.pop("name")
        return f"{names}, default {name} ({', '.join(f'{key}={value}' for key, value in chosen.items())})"
    kinds = [schema, *schema.get("anyOf", [])]
    kind = "/".join(str(one) for option in kinds for one in option.get("enum", [option.get("type")]) if one)
    text = f"{kind}, default {schema.get('default')}"
    return f"{text}: {schema['description']}" if "description" in schema else text
