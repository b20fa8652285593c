"""The critical-difference diagram: methods along an axis of mean ranks; bars join those that can't be told apart."""

import math
from dataclasses import dataclass

from markupsafe import Markup

from fedfisher_core.reporting.page import template_environment
from fedfisher_core.reporting.ranks import RankedMethods

_AXIS = 420.0
_LINE = 17.0
_BAR = 6.0
_LETTER = 6.8
"""Width of a letter of a label; all lengths are in the units of the drawing, about a pixel."""


@dataclass(frozen=True)
class RankedLabel:
    """A method beside the axis.

    Args:
        text: its label and its mean rank.
        x: its place on the axis.
        y: height of its label.
        left: whether the label stands to the left of the axis.
    """

    text: str
    x: float
    y: float
    left: bool


def rank_diagram(ranking: RankedMethods) -> Markup:
    """Draw mean ranks as Demsar (2006, figure 1) does, the best at the left.

    Args:
        ranking: the methods, at least two.

    Returns:
        An SVG element in the text's colour; equal ranks give equal text.
    """
    count = len(ranking.methods)
    lowest, highest = 1, max(2, math.ceil(ranking.mean_ranks[-1]))
    texts = [f"{label} ({rank:.2f})" for label, rank in zip(ranking.methods, ranking.mean_ranks, strict=True)]
    margin = 24 + _LETTER * max(map(len, texts))
    scale = _AXIS / (highest - lowest)

    def place(rank: float) -> float:
        return margin + (rank - lowest) * scale

    groups = ranking.groups
    axis = 44.0
    top = axis + 14 + _BAR * len(groups)
    half = (count + 1) // 2
    labels = [
        RankedLabel(
            text=text,
            x=place(rank),
            y=top + _LINE * (index + 1 if index < half else count - index),
            left=index < half,
        )
        for index, (text, rank) in enumerate(zip(texts, ranking.mean_ranks, strict=True))
    ]
    bars = [
        (place(ranking.mean_ranks[first]), place(ranking.mean_ranks[last]), axis + 10 + _BAR * index)
        for index, (first, last) in enumerate(groups)
    ]
    return Markup(
        template_environment()
        .get_template("ranks.svg.j2")
        .render(
            size=(2 * margin + _AXIS, top + _LINE * half + 10),
            ends=(margin, margin + _AXIS),
            axis=axis,
            ticks=[(place(rank), str(rank)) for rank in range(lowest, highest + 1)],
            # A longer one than the axis tells no two methods apart.
            difference=(ranking.critical_difference, min(scale * ranking.critical_difference, _AXIS)),
            labels=labels,
            bars=bars,
        )
    )
