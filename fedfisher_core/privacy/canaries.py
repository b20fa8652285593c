"""Canaries: examples that are planted among a client's, to measure what a network gives away of them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.engine.errors import InputError

_BATCH = 1024
"""Examples in a batch."""


@dataclass(frozen=True)
class Canary:
    """A sentence under a label drawn at random, and sentences of the same distribution that are planted nowhere.

    Args:
        sentences: tokens, int64, shape (sentences, length); the first is the one to plant.
        label: of all of them, so that a network's liking for a class changes no rank.
    """

    sentences: Tensor
    label: int

    @classmethod
    def drawn(
        cls, *, like: Tensor, classes: int, sentences: int, generator: torch.Generator, kept: tuple[int, ...] = ()
    ) -> "Canary":
        """Draw different sentences of the tokens that some texts have, each token equally likely.

        Args:
            like: tokens of texts, shape (texts, length); the first gives the sentences their form.
            sentences: how many; exposure is at most the base-2 logarithm of it.
            generator: on the CPU.
            kept: tokens that stay where the first text has them, and are not drawn, such as padding.

        Raises:
            InputError: there is no text, there are fewer than two sentences, or not twice as many that could be drawn.
        """
        if not len(like):
            raise InputError("a canary is drawn like no text; allowed: one text or more")
        like = like.cpu()
        kept_here = torch.tensor(kept, dtype=like.dtype)
        words = like.unique()
        words = words[~torch.isin(words, kept_here)]
        form, free = like[0], ~torch.isin(like[0], kept_here)
        count = int(free.sum())
        if sentences < 2 or len(words) ** count < 2 * sentences:
            raise InputError(
                f"a canary of {sentences} sentences with {len(words)} tokens at {count} places; allowed: two sentences "
                "or more, and tokens and places for twice as many"
            )
        found: dict[tuple[int, ...], None] = {}
        while len(found) < sentences:
            places = torch.randint(len(words), (sentences, len(form)), generator=generator)
            found |= dict.fromkeys(map(tuple, torch.where(free, words[places], form).tolist()))
        made = torch.tensor(list(found)[:sentences], dtype=like.dtype)
        return cls(made, int(torch.randint(classes, (), generator=generator)))

    def planted(self, inputs: Tensor, labels: Tensor, *, times: int = 1) -> tuple[Tensor, Tensor]:
        """Add the first sentence to a client's texts and labels, some times; `InputError` for fewer than one."""
        if times < 1:
            raise InputError(f"a canary is planted times={times}; allowed: 1 or more")
        added = self.sentences[:1].to(inputs.device).expand(times, -1)
        return torch.cat([inputs, added]), torch.cat([labels, labels.new_full((times,), self.label)])

    def exposure(self, network: nn.Module) -> float:
        """Compute the exposure of the first sentence in a network that maps tokens to logits; see `exposure`.

        Raises:
            InputError: the network is in training mode, or a loss is not finite.
        """
        if network.training:
            raise InputError("a canary's network is in training mode; allowed: network.eval()")
        parameter = next(network.parameters(), None)
        sentences = self.sentences if parameter is None else self.sentences.to(parameter.device)
        labels = torch.full((len(sentences),), self.label, device=sentences.device)
        losses = example_losses(network, sentences, labels)
        if not losses.isfinite().all():
            raise InputError("a canary's losses are not finite; allowed: a network with finite outputs")
        return exposure(losses)


def exposure(losses: Tensor) -> float:
    """Compute log2 n - log2 r, for the first of n losses and its rank r (Carlini et al. 2019), in bits.

    The rank counts losses that are at most as large, so that a network to which all are alike exposes nothing. Losses
    that rounding makes equal lower the exposure likewise. Where the first was not planted, all ranks are equally
    likely, and the mean is log2 n - log2(n!) / n, 1.44 at most.
    """
    return math.log2(len(losses)) - math.log2(int((losses <= losses[0]).sum()))


@torch.no_grad()
def example_losses(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Compute the cross-entropy of each example, on the CPU."""
    parts = zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True)
    return torch.cat([functional.cross_entropy(network(one), own, reduction="none") for one, own in parts]).cpu()
