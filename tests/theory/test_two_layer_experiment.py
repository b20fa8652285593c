import itertools
import statistics

import pytest
from pydantic import ValidationError

from fedfisher_core.theory.experiment import TwoLayerSettings, run

SMALL = TwoLayerSettings(
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
def results():
    return run(SMALL)


def test_the_error_falls_with_the_width(results):
    means = [point.mean.fedfisher for point in results.widths]
    assert all(after < 0.6 * before for before, after in itertools.pairwise(means))


def test_fedfisher_beats_fedavg_once_the_network_is_wide(results):
    wide = results.widths[-1]
    assert all(errors.fedfisher < 0.5 * errors.fedavg for errors in wide.seeds)


def test_more_local_steps_fit_the_clients_own_data_better(results):
    for few, many in itertools.pairwise(results.steps):
        assert all(after.local < before.local for before, after in zip(few.seeds, many.seeds, strict=True))


def test_both_curves_agree_where_they_meet(results):
    assert results.widths[1].value == SMALL.width_of_steps
    assert results.steps[2].value == SMALL.steps_of_widths
    assert results.widths[1].seeds == results.steps[2].seeds


def test_points_summarise_their_seeds(results):
    point = results.steps[0]
    assert [point.value for point in results.steps] == [1, 16, 60]
    values = [errors.fedavg for errors in point.seeds]
    assert len(values) == 8
    assert point.mean.fedavg == pytest.approx(statistics.mean(values))
    assert point.deviation.fedavg == pytest.approx(statistics.pstdev(values))


def test_a_seed_decides_its_results_alone(results):
    again = run(SMALL.model_copy(update={"seeds": (3,), "widths": (64,)}))
    assert again.widths[0].seeds == (results.widths[1].seeds[3],)
    assert again.steps[1].seeds == (results.steps[1].seeds[3],)
    assert results.steps[1].seeds[3] != results.steps[1].seeds[4]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("width", 3),
        ("widths", ()),
        ("widths", (8, 8)),
        ("steps", (0,)),
        ("learning_rate", 0.0),
        ("noise", -1.0),
    ],
)
def test_bad_settings_are_named(setting, value):
    with pytest.raises(ValidationError, match=setting):
        TwoLayerSettings(**{setting: value})
