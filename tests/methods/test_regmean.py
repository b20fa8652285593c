"""RegMean of Gram matrices that compression has left asymmetric."""

import pytest
import torch

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
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
