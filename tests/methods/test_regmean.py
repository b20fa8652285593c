"""RegMean of Gram matrices that were rounded, or that compression has left asymmetric."""

import pytest
import torch

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.regmean import least_squares
from tests import tiny
from tests.methods.clients import aggregate, made_up_uploads


@pytest.mark.parametrize("scale", [0.9, 1.0])
def test_clients_of_one_mind_keep_their_model_though_their_gram_matrices_are_not_symmetric(scale: float) -> None:
    same = tiny.initial(tiny.TINY, seed=5)
    generator = torch.Generator().manual_seed(0)
    uploads = []
    for upload in made_up_uploads([same] * 3, tiny.TINY):
        grams = {
            layer: gram + 0.02 * gram.diagonal().mean() * torch.rand(gram.shape, generator=generator)
            for layer, gram in upload[Gram].tensors.items()
        }
        uploads.append(Upload(upload.num_examples, {Weights: upload[Weights], Gram: Gram(grams)}))
    (network,) = aggregate("regmean", uploads, spec=tiny.TINY, off_diagonal=[scale]).networks
    for name, tensor in same.items():
        assert torch.allclose(network[name], tensor, atol=1e-4), name


def test_directions_that_rounding_makes_stay_at_zero() -> None:
    # The inputs of three clients with five examples each leave 25 of 40 directions without any.
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(5, 40, generator=generator) for _ in range(3)]
    weights = [torch.randn(4, 40, generator=generator).double() for _ in range(3)]
    grams = {
        kind: [(one.to(kind).T @ one.to(kind) / 5).double() for one in given] for kind in (torch.float32, torch.float64)
    }
    solved, exact = (
        least_squares(sum(own) / 3, sum(gram @ weight.T for gram, weight in zip(own, weights, strict=True)) / 3)
        for own in grams.values()
    )
    assert torch.allclose(solved, exact, atol=1e-3)
