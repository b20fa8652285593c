"""A canary among the texts of the first client: how it is drawn, planted and read."""

from functools import lru_cache

import torch
from torch import Tensor

from fedfisher_core.data.layouts import Texts, Tokens
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.seeds import Stream, torch_generator
from fedfisher_core.engine.store import Artifact, read_tensors, understood
from fedfisher_core.federation.federation import Federation
from fedfisher_core.privacy.canaries import Canary

CANARY = "canary.safetensors"
"""File of a partition that has a canary."""

CLIENT = 0
"""Number of the client that holds it."""


def require_texts(federation: Federation) -> None:
    """Check that clients hold texts where a canary is asked for.

    Raises:
        InputError: names the setting and what clients hold.
    """
    inputs = federation.dataset.inputs
    if federation.settings.measures.canary is not None and not isinstance(inputs, Tokens):
        raise InputError(
            f"measures.canary with data.dataset={federation.setting.dataset!r} and "
            f"model.name={federation.setting.model!r}: clients hold {inputs}; allowed: texts, which networks take as "
            "tokens"
        )


def draw_canary(federation: Federation, texts: Tensor, held: Tensor) -> dict[str, Tensor]:
    """Draw a canary and the examples that give way to it.

    Args:
        texts: tokens of all training examples, shape (examples, length).
        held: indices of the first client's examples.

    Returns:
        The sentences, of which the first is planted; its label; and the indices that it takes.

    Raises:
        InputError: the client has too few texts, or its texts have too few tokens.
    """
    settings = federation.settings.measures.canary
    assert settings is not None
    if settings.times > len(held):
        raise InputError(
            f"measures.canary.times={settings.times} of {federation.label}: client {CLIENT} has {len(held)} texts, "
            "which give way to it; allowed: up to as many"
        )
    generator = torch_generator(federation.setting.seed, Stream.CANARY)
    own = texts[held]
    # Every text has the tokens that begin and end it, so a canary has them too.
    common = [token for token in own[0].unique().tolist() if bool((own == token).any(1).all())]
    layout = federation.dataset.inputs
    kept = tuple({*common, layout.padding}) if isinstance(layout, Texts) else tuple(common)
    longest = int((~torch.isin(own, torch.tensor(kept))).sum(1).argmax())
    canary = Canary.drawn(
        like=torch.cat([own[longest : longest + 1], texts]),
        classes=federation.dataset.classes,
        sentences=settings.sentences,
        generator=generator,
        kept=kept,
    )
    places = held[torch.randperm(len(held), generator=generator)[: settings.times]]
    return {"sentences": canary.sentences, "label": torch.tensor(canary.label), "places": places.sort().values}


@understood
def canary_of(partition: Artifact) -> Canary:
    """Read the canary of a partition that has one."""
    stored = read_tensors(partition, CANARY)
    return Canary(stored["sentences"], int(stored["label"]))


def plant(examples: Examples, partition: Artifact, held: Tensor) -> Examples:
    """Put the canary of a partition in the place of some examples.

    Args:
        held: indices of the examples.
    """
    canary, taken = canary_of(partition), torch.isin(held, _places(partition))
    inputs = torch.where(taken[:, None], canary.sentences[0], examples.inputs)
    return Examples(inputs, torch.where(taken, canary.label, examples.labels))


@lru_cache(maxsize=8)
@understood
def _places(partition: Artifact) -> Tensor:
    return read_tensors(partition, CANARY)["places"]
