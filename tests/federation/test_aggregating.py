"""What a method returns is checked; what it may not return is refused, with the reason."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.client.statistics.statistic import ServerView
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import method, methods
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.models.spec import Parameters
from tests.walked import walk_tiny

RETURNED: dict[str, tuple[Callable[[Parameters], Any], type[Exception], str]] = {
    "a mapping": (lambda own: own, TypeError, "method 'odd' returned dict; allowed: Aggregate"),
    "too few": (
        lambda own: Aggregate.of(dict([*own.items()][1:])),
        ValueError,
        r"'odd' returned parameters \['.*allowed",
    ),
    "a wrong shape": (
        lambda own: Aggregate.of({name: one[:1] for name, one in own.items()}),
        ValueError,
        r"method 'odd' returned a parameter '.*' of shape \(1, .*; allowed: \(",
    ),
    "no numbers": (
        lambda own: Aggregate.of({name: one * torch.nan for name, one in own.items()}),
        ArithmeticError,
        "method 'odd' returned a parameter '.*' that is not finite",
    ),
}


@pytest.mark.parametrize("case", RETURNED)
def test_what_a_method_may_not_return_is_refused(workplace: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    made, kind, message = RETURNED[case]

    def odd(server: Server, uploads: Sequence[Upload]) -> Any:
        return made(uploads[0][Weights].tensors)

    # All others are there by now, and stay when this one goes again.
    assert "fedavg" in list(methods)
    for kept in ("_things", "_origins"):
        monkeypatch.setattr(methods, kept, dict(getattr(methods, kept)))
    method("odd", uploads=(Weights,), reference="https://example.org")(odd)
    assert methods.get("odd").views == {"weights": ServerView.EACH}
    with pytest.raises(kind, match=message):
        walk_tiny(workplace, {"odd": {}})
