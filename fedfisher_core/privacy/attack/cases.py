"""What a server sees of one client through a method: the attacker's case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.attack.evidence import Likelihood, likelihoods
from fedfisher_core.privacy.attack.factors import Factors

# The attack is on a model. Other statistics have their names from their likelihoods.
_MODELS = {ServerView.EACH: "local model", ServerView.SUM: "sum of models"}
# Cases of FedFisher's Appendix E; there are others beyond it.
_NUMBERS = {
    ("local model",): "i",
    ("sum of models",): "ii",
    ("sum of models", "the client's K-FAC"): "iii",
    ("sum of models", "sum of diagonal Fishers"): "iv",
    ("sum of models", "the client's K-FAC, compressed"): "v",
}


@dataclass(frozen=True)
class Case:
    """What the attacker is given.

    Args:
        views: how much the server sees of each statistic, by its name: each client's, or the sum over clients.
        parts: the names of the statistics here, in the same order.
        factors: which of the client's Kronecker factors are compared, if there are any.
    """

    views: Mapping[str, ServerView]
    parts: tuple[str, ...]
    factors: Factors = Factors.ALL

    @property
    def local(self) -> bool:
        """Whether the attacker has the client's own model, rather than the mean of all."""
        return self.views[Weights.name] is ServerView.EACH

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics that the attacker has besides a model."""
        return tuple(name for name in self.views if name != Weights.name)

    @property
    def name(self) -> str:
        """What the attacker is given, with the number of the case where it has one."""
        named = zip(self.views, self.parts, strict=True)
        parts = tuple(self.factors.after(part) if name == KFAC.name else part for name, part in named)
        number = _NUMBERS.get(parts)
        text = " and ".join(parts)
        return text if number is None else f"({number}) {text}"


def case_of(label: str, views: Mapping[str, ServerView], *, compressed: bool) -> Case:
    """Derive an attacker's case from what a method lets the server see.

    Raises:
        InputError: no attack is defined on one of the uploads.
    """
    known = {Weights.name: Likelihood(_MODELS)} | {name: likelihoods.get(name) for name in likelihoods}
    silent = {name for name, one in known.items() if not one.cases}
    views = {name: view for name, view in views.items() if name not in silent}
    for name, view in views.items():
        if name not in known or view not in known[name].cases:
            allowed = ", ".join(f"{other} ({how.value})" for other, one in known.items() for how in one.cases)
            raise InputError(
                f"method {label!r} can't be attacked: no attack is defined on {name!r} of which the server sees "
                f"{view.value}; allowed: {allowed}"
            )
    if Weights.name not in views:
        raise InputError(f"method {label!r} can't be attacked: it uploads no weights; allowed: methods that do")

    def part(name: str, view: ServerView) -> str:
        plain = known[name].cases[view]
        return known[name].compressed.get(view, plain) if compressed else plain

    return Case(views=views, parts=tuple(part(name, view) for name, view in views.items()))


def cases_of(
    label: str, views: Mapping[str, ServerView], *, compressed: bool, factors: Sequence[Factors]
) -> dict[Factors, Case]:
    """Derive an attacker's cases: one for each choice of Kronecker factors where there are any, and one otherwise.

    The other arguments and errors are those of `case_of`.

    Args:
        factors: the choices, at least one.

    Returns:
        The cases by choice; under that of all factors where there are none to choose among.
    """
    whole = case_of(label, views, compressed=compressed)
    if KFAC.name not in whole.views:
        return {Factors.ALL: whole}
    return {one: replace(whole, factors=one) for one in factors}
