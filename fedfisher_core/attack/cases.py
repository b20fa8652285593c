"""What a server sees of one client through a method: the case that its attacker is in."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedfisher_core.client.diagonal_fisher import DiagonalFisher
from fedfisher_core.client.kfac import KFAC
from fedfisher_core.client.label_counts import LabelCounts
from fedfisher_core.client.statistic import ServerView
from fedfisher_core.client.weights import Weights
from fedfisher_core.errors import InputError

_NAMES = {
    (Weights.name, ServerView.EACH): "local model",
    (Weights.name, ServerView.SUM): "sum of models",
    (KFAC.name, ServerView.EACH): "the client's K-FAC",
    (DiagonalFisher.name, ServerView.SUM): "sum of diagonal Fishers",
}
# Cases of FedFisher's Appendix E, and two beyond it.
_NUMBERS = {
    ("local model",): "i",
    ("sum of models",): "ii",
    ("sum of models", "the client's K-FAC"): "iii",
    ("sum of models", "sum of diagonal Fishers"): "iv",
}
_COMPRESSED = "v"
# Says nothing of images to an attacker who knows that the client holds the target label.
_UNUSED = (LabelCounts.name,)


@dataclass(frozen=True)
class Case:
    """What the attacker is given.

    Args:
        views: how much the server sees of each statistic, by its name: each client's, or the sum over clients.
        compressed: whether Kronecker factors arrive shortened.
    """

    views: Mapping[str, ServerView]
    compressed: bool

    @property
    def local(self) -> bool:
        """Whether the attacker has the client's own model, rather than the mean of all."""
        return self.views[Weights.name] is ServerView.EACH

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of what the attacker has beside a model."""
        return tuple(name for name in self.views if name != Weights.name)

    @property
    def name(self) -> str:
        """What the attacker is given, with the number of the case where it has one."""
        parts = tuple(_NAMES[name, view] for name, view in self.views.items())
        number = _NUMBERS.get(parts)
        if self.compressed:
            number = _COMPRESSED if number == "iii" else None
        text = " and ".join(parts) + (", compressed" if self.compressed else "")
        return text if number is None else f"({number}) {text}"


def case_of(label: str, views: Mapping[str, ServerView], *, compressed: bool) -> Case:
    """Derive an attacker's case from what a method lets the server see.

    Args:
        label: the method's, for the message.
        views: of the method's uploads.
        compressed: whether its statistics are shortened on their way.

    Returns:
        The case.

    Raises:
        InputError: no attack is defined on one of the uploads.
    """
    views = {name: view for name, view in views.items() if name not in _UNUSED}
    for name, view in views.items():
        if (name, view) not in _NAMES:
            allowed = ", ".join(f"{known} ({how.value})" for known, how in _NAMES)
            raise InputError(
                f"method {label!r} can't be attacked: no attack is defined on {name!r} of which the server sees "
                f"{view.value}; allowed: {allowed}"
            )
    if Weights.name not in views:
        raise InputError(f"method {label!r} can't be attacked: it uploads no weights; allowed: methods that do")
    return Case(views=views, compressed=compressed and KFAC.name in views)
