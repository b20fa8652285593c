"""A canary among the texts of the first client: how it is drawn, planted and read."""

from functools import lru_cache

import torch
from torch import Tensor

from fedfisher_core.data.layouts import Layout, Texts, require_tokens
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import Artifact, read_tensors, understood
from fedfisher_core.federation.federation import Federation
from fedfisher_core.privacy.canaries import Canary
from fedfisher_core.settings import CanarySettings

CANARY = "canary.safetensors"
"""File of a partition that has a canary."""

CLIENT = 0
"""Number of the client that holds it."""

_MOST_TOKENS = 2**22


def require_canary(federation: Federation, examples: int | None) -> None:
    """Check that a canary, where one is asked for, can stand among what clients hold.

    Args:
        examples: training examples of all clients; None where they are not counted before the work.

    Raises:
        InputError: names the setting, its value and what is allowed.
    """
    settings, inputs = federation.settings.measures.canary, federation.dataset.inputs
    if settings is None:
        return
    where = f"data.dataset={federation.setting.dataset!r} and model.name={federation.setting.model!r}"
    length = require_tokens(inputs, f"measures.canary with {where}").length
    if settings.sentences * length > _MOST_TOKENS:
        raise InputError(
            f"measures.canary.sentences={settings.sentences} of {length} tokens; allowed: up to "
            f"{_MOST_TOKENS // length:,}"
        )
    if examples is not None and settings.times > examples:
        raise InputError(
            f"measures.canary.times={settings.times} of {federation.label}: all clients have {examples:,} texts; "
            "allowed: up to as many as the first client gets"
        )


def draw_canary(
    settings: CanarySettings, texts: Tensor, held: Tensor, *, layout: Layout, classes: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Draw a canary and the examples that give way to it.

    Args:
        texts: tokens of all training examples, shape (examples, length).
        held: indices of the first client's examples.
        layout: of the texts.

    Returns:
        The sentences, of which the first is planted; its label; and the indices that it takes.

    Raises:
        InputError: the client has too few texts, or its texts have too few tokens.
    """
    if settings.times > len(held):
        raise InputError(
            f"measures.canary.times={settings.times}: client {CLIENT} has {len(held)} texts, which give way to it; "
            "allowed: up to as many"
        )
    own = texts[held]
    # Every text has the tokens that begin and end it, so a canary has them too.
    common = [token for token in own[0].unique().tolist() if bool((own == token).any(1).all())]
    kept = tuple({*common, layout.padding}) if isinstance(layout, Texts) else tuple(common)
    longest = int((~torch.isin(own, torch.tensor(kept))).sum(1).argmax())
    try:
        canary = Canary.drawn(
            like=torch.cat([own[longest : longest + 1], texts]),
            classes=classes,
            sentences=settings.sentences,
            generator=generator,
            kept=kept,
        )
    except InputError as error:
        raise InputError(f"measures.canary.sentences={settings.sentences}: {error}") from error
    places = held[torch.randperm(len(held), generator=generator)[: settings.times]]
    return {"sentences": canary.sentences, "label": torch.tensor(canary.label), "places": places.sort().values}


def canary_of(partition: Artifact) -> Canary:
    """Read the canary of a partition that has one."""
    stored = _stored(partition)
    return Canary(stored["sentences"], int(stored["label"]))


def plant(examples: Examples, partition: Artifact, held: Tensor) -> Examples:
    """Put the canary of a partition in the place of some examples.

    Args:
        held: indices of the examples.
    """
    stored = _stored(partition)
    taken = torch.isin(held, stored["places"])
    inputs = torch.where(taken[:, None], stored["sentences"][0], examples.inputs)
    return Examples(inputs, torch.where(taken, stored["label"], examples.labels))


@lru_cache(maxsize=8)
@understood
def _stored(partition: Artifact) -> dict[str, Tensor]:
    return read_tensors(partition, CANARY)
