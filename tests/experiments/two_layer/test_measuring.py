import itertools

import pytest
from pydantic import ValidationError

from fedfisher_core.engine.errors import DivergedClientError
from fedfisher_core.experiments.two_layer.plan import measure_seed
from fedfisher_core.experiments.two_layer.settings import TwoLayerGrid

SMALL = TwoLayerGrid(
    clients=3,
    samples=6,
    dimensions=5,
    widths=(8, 64, 512),
    steps_of_widths=60,
    steps=(1, 16, 60),
    width_of_steps=64,
    seeds=(0, 1, 2, 3, 4, 5, 6, 7),
)


@pytest.fixture(scope="module")
def seeds():
    return [measure_seed(SMALL, seed) for seed in SMALL.seeds]


def test_the_error_falls_with_the_width(seeds):
    points = zip(*(seed.widths for seed in seeds), strict=True)
    means = [sum(errors.fedfisher for errors in point) / len(point) for point in points]
    assert len(means) == len(SMALL.widths)
    assert all(after < 0.6 * before for before, after in itertools.pairwise(means))


def test_fedfisher_beats_fedavg_once_the_network_is_wide(seeds):
    assert all(seed.widths[-1].fedfisher < 0.5 * seed.widths[-1].fedavg for seed in seeds)


def test_more_local_steps_fit_the_clients_own_data_better(seeds):
    for seed in seeds:
        assert all(many.local < few.local for few, many in itertools.pairwise(seed.steps))


def test_both_curves_agree_where_they_meet(seeds):
    assert SMALL.widths[1] == SMALL.width_of_steps
    assert SMALL.steps[2] == SMALL.steps_of_widths
    assert all(seed.widths[1] == seed.steps[2] for seed in seeds)


def test_a_seed_decides_its_results_alone(seeds):
    again = measure_seed(SMALL.model_copy(update={"seeds": (3,), "widths": (64,)}), 3)
    assert again.widths == (seeds[3].widths[1],)
    assert again.steps == seeds[3].steps
    assert seeds[3].steps != seeds[4].steps


def test_a_diverged_client_is_named():
    with pytest.raises(DivergedClientError, match=r"client \d of seed=5.*width 8 after 60 steps.*rate=1e\+200"):
        measure_seed(SMALL.model_copy(update={"learning_rate": 1e200}), 5)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("width", 3),
        ("widths", ()),
        ("widths", (8, 8)),
        ("steps", (0,)),
        ("learning_rate", 0.0),
        ("learning_rate", float("inf")),
        ("noise", -1.0),
    ],
)
def test_bad_settings_are_named(setting, value):
    with pytest.raises(ValidationError, match=setting):
        TwoLayerGrid(**{setting: value})
