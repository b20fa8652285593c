"""What can't be done over several rounds, or with a server optimiser, is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.checks import check_federations
from tests import tiny

FEDAVG: dict[str, Any] = {"fedavg": {}}
SGD = {"epochs": 2, "learning_rate": 0.05, "momentum": 0.0, "batch_size": 16}
PRIOR: dict[str, Any] = {
    "methods": {"prior": {"method": "fedavg", "label_prior": -1}},
    "model": {"name": "tiny", "bias": True},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": {"count": 0}}, r"rounds\.count=0"),
        ({"rounds": {"cohort": 4}}, r"rounds\.cohort=4 exceeds partition\.clients=3"),
        ({"rounds": {"count": 2}, "methods": {"ensemble": {}}}, r"rounds\.count=2.*'ensemble'.*allowed: .*fedavg"),
        (
            {"rounds": {"count": 2}, "methods": {"knots": {}}, "model": {"name": "adapted"}},
            r"rounds\.count=2, but method 'knots' .*, as in one round; allowed: rounds\.count=1",
        ),
        (
            {"rounds": {"count": 2}, **PRIOR},
            r"rounds\.count=2 with methods\.prior\.label_prior=-1: .*; allowed: rounds\.count=1, or label_prior=0",
        ),
        (
            {"rounds": {"server_optimiser": ["average", "fedadam"]}, **PRIOR},
            r"rounds\.server_optimiser='fedadam' with methods\.prior\.label_prior=-1: .*; allowed: average, also for "
            r"this method alone by methods\.prior\.only\.server_optimiser, or label_prior=0",
        ),
        (
            {"rounds": {"server_optimiser": "fedadam"}, "methods": {"local_mean": {}}},
            r"rounds\.server_optimiser='fedadam'.*'local_mean'",
        ),
        (
            {"rounds": {"server_optimiser": "fedadam"}, "model": {"initialisation": "different"}},
            r"model\.initialisation='different', but rounds\.server_optimiser='fedadam' steps from weights",
        ),
        (
            {"methods": {"fedfish": {"global_step": 0.5}}, "model": {"initialisation": "different"}},
            r"model\.initialisation='different', but method 'fedfish' merges what training changed",
        ),
        (
            {"rounds": {"server_optimiser": "fedsgd"}, "train": {**SGD, "epochs": None, "steps": 1, "batch_size": 7}},
            r"train\.batch_size=7 with rounds\.server_optimiser='fedsgd'.*allowed: \d{2,} or more",
        ),
        ({"rounds": {"server_optimiser": "fedsgd"}}, r"train\.steps=None.*fedsgd"),
        (
            {
                "rounds": {"server_optimiser": ["average", "fedsgd"]},
                "train": {
                    **SGD,
                    "epochs": None,
                    "steps": 1,
                    "objective": {"longer": {"name": "plain", "train": {"epochs": 2}}},
                },
            },
            r"train\.steps=None.*fedsgd",
        ),
        ({"train": {"objective": "scaffold"}}, r"train\.momentum=0\.9.*scaffold"),
        ({"train": {"objective": "moon"}, "model": {"name": "linear"}}, r"'moon'.*'linear'.*no feature map"),
        (
            {"rounds": {"count": 2}, "privacy": {"epsilon": 3.0}},
            r"rounds\.count=2 with privacy",
        ),
        (
            {"privacy": {"epsilon": 3.0}, "train": {"objective": "scaffold", "momentum": 0.0}},
            r"'scaffold'.*with privacy",
        ),
    ],
)
def test_what_can_not_be_is_refused_by_name(workplace: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_federations(tiny.tiny_settings(workplace, **{"methods": FEDAVG, **changes}))


def test_outputs_are_moved_where_nothing_trains_after(workplace: Path) -> None:
    plain = {"prior": {"method": "fedavg", "label_prior": 0}}
    several = {"count": 2, "server_optimiser": "fedadam"}
    check_federations(tiny.tiny_settings(workplace, **(PRIOR | {"methods": plain, "rounds": several})))
    alone = {"prior": PRIOR["methods"]["prior"] | {"only": {"server_optimiser": "average"}}, **FEDAVG}
    both = {"server_optimiser": ["average", "fedadam"]}
    check_federations(tiny.tiny_settings(workplace, **(PRIOR | {"methods": alone, "rounds": both})))


def test_knots_serves_one_round(workplace: Path) -> None:
    check_federations(tiny.tiny_settings(workplace, methods={"knots": {}}, model={"name": "adapted"}))
