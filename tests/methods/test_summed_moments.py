import pytest
import torch
from torch.nn import functional

from fedfisher_core.client.statistics.input_sums import InputSums
from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.distillation.pseudo_inputs import labelled_mixture
from fedfisher_core.methods.summed_moments import class_moments
from tests import tiny
from tests.methods.clients import aggregate, bind_written

UNCOMPRESSED = {"wire": {"budget": "none"}}
SHAPE = (1, tiny.SIZE, tiny.SIZE)


def uploads_of(examples: Examples, *splits: list[int]) -> list[Upload]:
    """Clients that hold some of the examples each, and have not trained."""
    network = tiny.TINY.load(tiny.initial())
    made = []
    for rows in splits:
        held = tiny.local(network, Examples(examples.inputs[rows], examples.labels[rows]))
        own = {kind: kind.compute(held) for kind in (Weights, LabelCounts, InputSums)}
        made.append(Upload(len(rows), own))
    return made


def moments_of(examples: Examples) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    (one,) = uploads_of(examples, list(range(len(examples))))
    tensors = {name: tensor.double() for name, tensor in one[InputSums].tensors.items()}
    return one[LabelCounts].tensors["counts"].double(), tensors


def test_each_class_has_the_mean_and_covariance_of_its_examples() -> None:
    examples = tiny.examples(200)
    found = class_moments(*moments_of(examples)).tensors
    for label in range(tiny.CLASSES):
        own = examples.inputs[examples.labels == label].flatten(1)
        rows = found["directions"][found["owners"] == label] / found["shares"][label].sqrt()
        covariance = torch.cov(own.T, correction=0)
        # Six frequencies along each side keep all that six pixels have, in other coordinates.
        assert rows.T.matmul(rows).trace().item() == pytest.approx(covariance.trace().item(), rel=1e-4)
        values = torch.linalg.eigvalsh(covariance).clamp(min=0)
        assert torch.allclose(torch.linalg.eigvalsh(rows.T @ rows), values, atol=1e-3)


def test_drawn_inputs_are_like_those_of_the_class_that_is_their_label() -> None:
    examples = tiny.examples(400)
    draw = labelled_mixture(class_moments(*moments_of(examples)), SHAPE)
    inputs, labels = draw(4000, torch.Generator().manual_seed(0))
    for label in range(tiny.CLASSES):
        own, drawn = examples.inputs[examples.labels == label], inputs[labels == label]
        assert len(drawn) / 4000 == pytest.approx(len(own) / 400, abs=0.03)
        assert torch.allclose(drawn.mean(0), own.mean(0), atol=0.15)
        assert torch.allclose(drawn.std(0), own.std(0), atol=0.15)


def test_the_split_of_the_examples_changes_nothing() -> None:
    examples = tiny.examples(60)
    by_class = [(examples.labels == label).nonzero().flatten().tolist() for label in range(tiny.CLASSES)]
    settings = {"steps": 20, "samples": 16, **UNCOMPRESSED}
    one, other = (
        aggregate("summed_moments", uploads_of(examples, *splits), **settings).networks[0]
        for splits in (by_class, [list(range(0, 20)), list(range(20, 60))])
    )
    assert all(torch.allclose(one[name], other[name], atol=1e-4) for name in one)


def test_a_network_that_no_client_trained_learns_the_classes() -> None:
    examples, unseen = tiny.examples(200), tiny.examples(200, seed=1)
    by_class = [(examples.labels == label).nonzero().flatten().tolist() for label in range(tiny.CLASSES)]
    made = aggregate("summed_moments", uploads_of(examples, *by_class), steps=600, learning_rate=0.01, **UNCOMPRESSED)
    outputs = tiny.TINY.load(made.networks[0]).eval()(unseen.inputs)
    assert (outputs.argmax(1) == unseen.labels).float().mean() > 0.9
    assert made.details["steps"] == 600
    assert made.details["loss"] < functional.cross_entropy(torch.zeros(1, tiny.CLASSES), torch.zeros(1).long())


def test_a_class_of_one_example_is_not_drawn() -> None:
    examples = tiny.examples(60)
    kept = torch.cat([(examples.labels != 2).nonzero(), (examples.labels == 2).nonzero()[:1]]).flatten()
    few = Examples(examples.inputs[kept], examples.labels[kept])
    found = class_moments(*moments_of(few))
    assert found.tensors["shares"][2] == 0
    _, labels = labelled_mixture(found, SHAPE)(500, torch.Generator().manual_seed(0))
    assert set(labels.tolist()) == {0, 1}


@pytest.mark.parametrize("setting", ["samples", "steps"])
def test_nothing_to_learn_from_is_refused(setting: str) -> None:
    with pytest.raises(InputError, match=rf"methods\.summed_moments\.{setting}=0"):
        aggregate("summed_moments", [], **{setting: 0})


def test_no_class_with_two_examples_is_refused() -> None:
    examples = tiny.examples(60)
    one = torch.tensor([(examples.labels == label).nonzero()[0].item() for label in range(tiny.CLASSES)])
    few = Examples(examples.inputs[one], examples.labels[one])
    with pytest.raises(InputError, match=r"\[1, 1, 1\] examples of the classes; allowed: 2 or more of one class"):
        class_moments(*moments_of(few))


def test_a_budget_that_leaves_too_few_bits_is_refused() -> None:
    with pytest.raises(InputError, match="leaves too little for statistic 'input_sums'"):
        bind_written("summed_moments", {}, [tiny.TINY])
