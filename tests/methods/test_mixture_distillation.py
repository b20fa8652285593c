import pytest
import torch

from fedfisher_core.client.statistics.class_moments import ClassMoments
from fedfisher_core.client.statistics.configured import configure_statistics
from fedfisher_core.client.statistics.input_moments import InputMoments
from fedfisher_core.client.statistics.principal import LowFrequencies
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from tests import tiny
from tests.methods.clients import aggregate, divergence, made_up_uploads, trained_uploads

# A tiny network's budget has no room for the moments of its inputs.
UNCOMPRESSED = {"wire": {"budget": "none"}}


def test_identical_clients_return_the_client() -> None:
    uploads = made_up_uploads([tiny.initial()] * 3)
    (network,) = aggregate("mixture_distillation", uploads, steps=20, **UNCOMPRESSED).networks
    assert all(torch.equal(tensor, network[name]) for name, tensor in tiny.initial().items())


def test_it_agrees_with_clients_on_their_inputs_better_than_what_it_starts_from() -> None:
    uploads = trained_uploads()
    start = aggregate("fedfisher_kfac", uploads).networks[0]
    result = aggregate("mixture_distillation", uploads, steps=200, learning_rate=0.01, **UNCOMPRESSED)
    assert result.details["steps"] == 200
    assert divergence(result.networks[0], uploads) < 0.7 * divergence(start, uploads)


def test_of_one_class_and_all_directions_it_is_gaussian_distillation() -> None:
    """The same distribution of inputs, but for the numbers that are drawn."""
    uploads = trained_uploads()
    alike = [Upload(one.num_examples, {**one.statistics, ClassMoments: _of_one_class(one)}) for one in uploads]
    settings = {"steps": 150, "samples": 128, "learning_rate": 0.01, **UNCOMPRESSED}
    one, other = (aggregate(name, alike, **settings) for name in ("gaussian_distillation", "mixture_distillation"))
    apart = divergence(other.networks[0], uploads)
    assert apart == pytest.approx(divergence(one.networks[0], uploads), rel=0.1)


def _of_one_class(upload: Upload) -> ClassMoments:
    mean, directions, deviations = upload[InputMoments].tensors.values()
    classes = torch.zeros(tiny.CLASSES)
    classes[1] = 1
    low = LowFrequencies((1, tiny.SIZE, tiny.SIZE), tiny.SIZE)
    return ClassMoments(
        {
            "shares": classes,
            "means": classes[:, None] * low.keep(mean[None]),
            "directions": low.keep(directions),
            "owners": torch.ones(len(directions)),
            "deviations": torch.zeros_like(deviations),
            "residuals": deviations,
        }
    )


@pytest.mark.parametrize("setting", ["samples", "steps"])
def test_nothing_to_learn_from_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match=rf"methods\.mixture_distillation\.{setting}=0"):
        aggregate("mixture_distillation", [], **{setting: 0})


def test_no_directions_and_no_frequencies_are_refused() -> None:
    for name in ("directions", "frequencies"):
        with pytest.raises(InputError, match=rf"statistics\.class_moments\.{name}=0"):
            configure_statistics([ClassMoments], {"class_moments": {name: 0}})
