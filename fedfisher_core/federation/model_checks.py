"""Checks of networks and of their trunks before any work starts."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from fedfisher_core.data.layouts import require_images
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.texts import tokenised
from fedfisher_core.engine.code import code_of
from fedfisher_core.engine.errors import InputError, in_one_line
from fedfisher_core.models.batch_norm import batch_norms
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import ModelSpec, models
from fedfisher_core.models.trunks.trunk import Pretrained, TextTrunk, Trunk, load_trunk, split_name
from fedfisher_core.settings import FederationSettings, LoraSettings

_ROUNDING = 1e-3
"""By how much outputs for one example may differ between batches, relative to the largest output."""


def require_models(settings: FederationSettings) -> None:
    """Check that networks exist, that trunks have their weights, and that trunks get images as they are.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    found = {name: _split(name) for name in settings.model.name}
    for trunk, family in found.values():
        # A source that can't be read is refused before any work depends on it.
        code_of(models.get(family), *([] if trunk is None else [trunk.build]))
    trunks = {name: trunk for name, (trunk, _) in found.items() if trunk is not None}
    if settings.model.trunk_size is not None and not any(isinstance(trunk, Trunk) for trunk in trunks.values()):
        raise InputError(
            f"model.trunk_size={settings.model.trunk_size}, but no trunk of images is among model.name={list(found)}; "
            "allowed: null, or names such as mobilenet_v2/linear"
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
            "trains a head alone; allowed: model.pretrained.file, with a head's weights, or a whole network in "
            "model.name"
        )
    for name, trunk in trunks.items():
        _require_examples(name, trunk, settings)
        load_trunk(trunk)
        _require_same_features(name, trunk, settings)


def require_adapters(settings: FederationSettings, specs: Collection[ModelSpec]) -> None:
    """Refuse settings of adapters, by an InputError, where no network has any."""
    if settings.model.lora != LoraSettings() and not any(map(_has_adapters, specs)):
        raise InputError(
            f"model.lora={settings.model.lora.model_dump(mode='json')}, but no network with adapters is among "
            f"model.name={list(settings.model.name)}; allowed: the defaults, or networks such as minilm/lora"
        )


def _has_adapters(spec: ModelSpec) -> bool:
    """Whether its weights have the names by which methods for adapters know them."""
    return any(".lora_B." in f".{name}" for name in spec.shapes())


def require_networks(specs: Collection[ModelSpec]) -> None:
    """Check that networks can be built, that their weights can be drawn, and that clients can train them.

    Raises:
        InputError: a network fails. Or its outputs are anything but one row an example and one number a class, which
            depend on its weights and on that example alone.
    """
    for spec in specs:
        generator = torch.Generator().manual_seed(0)
        network = spec.load(spec.initialise(generator))
        require_outputs(spec, network, spec.inputs.drawn(2, generator), generator)


def require_outputs(spec: ModelSpec, network: nn.Module, given: Tensor, generator: torch.Generator) -> None:
    """Check that a network has one row of outputs an example, which depend on its weights and on this example only.

    Args:
        network: with its weights; it is left in training mode.
        given: examples, shape (examples, ...).
        generator: draws what the network leaves to chance in training, on the CPU.

    Raises:
        InputError: names what the network does instead.
    """
    network.eval()
    inputs = given.clone()
    # A network may draw from the generator that a whole process shares.
    with torch.random.fork_rng(devices=[]):
        with torch.no_grad():
            together = _outputs(spec, network, inputs)
            # A recurrent network may take a batch for a sequence. The output at one end then depends on that
            # example only, so every example is tried alone.
            alone = torch.cat([_outputs(spec, network, one) for one in inputs.split(1)])
        begin_training(network, generator)
        trained = _outputs(spec, network, inputs)
    if not torch.equal(inputs, given):
        raise InputError(f"model {spec.name!r} changes the examples that it is given; allowed: to copy them first")
    tolerance = _ROUNDING * together.abs().max().item()
    if not torch.allclose(together, alone, rtol=_ROUNDING, atol=tolerance, equal_nan=True):
        raise InputError(
            f"model {spec.name!r} in evaluation has outputs for an example that depend on chance or on the other "
            "examples of its batch; allowed: on this example alone"
        )
    if not trained.requires_grad:
        raise InputError(
            f"model {spec.name!r} has outputs that depend on none of its weights, or without a gradient; allowed: "
            "outputs that training can change"
        )


def _outputs(spec: ModelSpec, network: nn.Module, inputs: Tensor) -> Tensor:
    """Compute outputs, and check that there is one row an example and one number a class."""
    what = f"{len(inputs)} {'example' if len(inputs) == 1 else 'examples'} of {spec.classes} classes"
    try:
        outputs = network(inputs)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"model {spec.name!r} can't compute outputs for {what}, {spec.inputs} each: {in_one_line(error)}"
        ) from error
    expected = (len(inputs), spec.classes)
    if not isinstance(outputs, Tensor):
        found = f"a {type(outputs).__name__}"
    elif tuple(outputs.shape) != expected:
        found = f"outputs of shape {tuple(outputs.shape)}"
    elif outputs.dtype != torch.float32 or outputs.layout != torch.strided or outputs.device != inputs.device:
        found = f"outputs of type {outputs.dtype}, {outputs.layout}, on {outputs.device}"
    else:
        return outputs
    raise InputError(
        f"model {spec.name!r} gives {found} for {what}; allowed: a dense tensor of shape {expected} and type "
        f"{torch.float32}, a row an example and a number a class"
    )


def require_running_statistics(settings: FederationSettings, specs: Collection[ModelSpec]) -> None:
    """Check that running statistics can be treated as the settings say.

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


def _split(name: str) -> tuple[Pretrained | None, str]:
    try:
        return split_name(name)
    except InputError as error:
        raise InputError(f"model.name={name}: {error}") from error


def _require_same_features(name: str, trunk: Pretrained, settings: FederationSettings) -> None:
    """Check that a pre-trained head has learned from the features that it gets now."""
    pretrained = settings.model.pretrained
    if pretrained is not None and pretrained.file is not None and pretrained.trunk_sha256 != trunk.sha256:
        given = pretrained.trunk_sha256
        has = "is not set, but" if given is None else "is another than that of the weights by which"
        raise InputError(
            f"model.pretrained.trunk_sha256={given} {has} model.name={name} is given features; allowed: "
            f"{trunk.sha256}, for a head that was trained on these"
        )


def _require_examples(name: str, trunk: Pretrained, settings: FederationSettings) -> None:
    """Check that a trunk is given what it was trained on."""
    text = settings.data.text
    for dataset in settings.data.dataset:
        spec = datasets.get(dataset)
        if isinstance(trunk, TextTrunk):
            trunk.require(tokenised(spec, tokenizer=text.tokenizer, length=text.length).inputs)
        else:
            require_images(spec.inputs, f"trunk {trunk.name!r} with data.dataset={dataset}")
    for shift in settings.partition.shift:
        if shift and shift.kind != "labels":
            raise InputError(
                f"partition.shift={shift} with model.name={name!r}: features are made once, of examples as they are; "
                "allowed: none, labels"
            )
