from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.shared.averaging import mean_parameters
from tests import tiny
from tests.methods.clients import SIZES, aggregate, asking, trained_uploads
from tests.walked import walk_tiny

SHRINKAGE = 0.7


def clients() -> list[Upload]:
    """Clients that are asked about known examples."""
    return [
        Upload(one.num_examples, one.statistics, asking(tiny.examples(size, seed=index)))
        for index, (one, size) in enumerate(zip(trained_uploads(), SIZES, strict=True))
    ]


def solved(moments: list[Tensor], matrices: list[Tensor]) -> Tensor:
    """The stationary point of sum_i p_i tr((W - W_i) G_i (W - W_i)^T), all entries of W in one dense system."""
    rows, columns = matrices[0].shape
    left, right = torch.zeros(rows * columns, rows * columns).double(), torch.zeros(rows * columns).double()
    for size, moment, matrix in zip(SIZES, moments, matrices, strict=True):
        scaled = SHRINKAGE * moment + (1 - SHRINKAGE) * torch.diag(moment.diagonal())
        block = size / sum(SIZES) * torch.kron(torch.eye(rows).double(), scaled)
        left, right = left + block, right + block @ matrix.double().flatten()
    return (torch.linalg.pinv(left, hermitian=True) @ right).view(rows, columns)


def test_each_layer_fits_what_the_merged_layers_before_it_make() -> None:
    uploads = clients()
    (network,) = aggregate("regmean_plus_plus", uploads, off_diagonal=SHRINKAGE).networks
    models = [upload[Weights].tensors for upload in uploads]
    filters = torch.stack([one["conv.weight"] for one in models]).mean(0)
    assert torch.allclose(network["conv.weight"], filters)
    features = [
        functional.conv2d(tiny.examples(size, seed=index).inputs, filters, stride=2, padding=1).relu().flatten(1)
        for index, size in enumerate(SIZES)
    ]
    for layer in ("hidden", "head"):
        moments = [rows.double().T @ rows.double() / len(rows) for rows in features]
        expected = solved(moments, [one[f"{layer}.weight"] for one in models])
        assert torch.allclose(network[f"{layer}.weight"].double(), expected, atol=1e-5)
        features = [(rows @ network[f"{layer}.weight"].T).relu() for rows in features]


def test_of_one_layer_it_is_regmean() -> None:
    uploads = [
        Upload(
            size,
            {
                Weights: Weights(tiny.initial(tiny.LINEAR, seed=index)),
                Gram: Gram.compute(tiny.local(tiny.LINEAR.load(tiny.initial(tiny.LINEAR)), examples)),
            },
            asking(examples),
        )
        for index, size in enumerate(SIZES)
        for examples in [tiny.examples(size, seed=index)]
    ]
    one, other = (
        aggregate(name, uploads, spec=tiny.LINEAR, off_diagonal=chosen).networks[0]
        for name, chosen in (("regmean", [SHRINKAGE]), ("regmean_plus_plus", SHRINKAGE))
    )
    (layer,) = one
    assert not torch.allclose(one[layer], mean_parameters(uploads)[layer], atol=1e-3)
    assert torch.allclose(one[layer], other[layer], atol=1e-6)


def test_it_runs_as_a_reference_that_sends_what_regmean_sends(workplace: Path) -> None:
    rows = walk_tiny(workplace, {"regmean": {}, "regmean_plus_plus": {}}).rows
    assert rows["regmean_plus_plus"].reference
    assert not rows["regmean"].reference
    assert rows["regmean_plus_plus"].upload_bits == rows["regmean"].upload_bits
    assert rows["regmean_plus_plus"].accuracy > 0.4


def test_a_method_that_does_not_say_so_can_not_ask_again() -> None:
    (one,) = trained_uploads()[:1]
    silent = Upload(one.num_examples, one.statistics)
    with pytest.raises(RuntimeError, match="asks a client again, and does not declare asks_again=True"):
        silent.ask(Gram, tiny.TINY.load(one[Weights].tensors))
