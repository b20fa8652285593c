"""Methods that merge the products of adapters."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.shared.products import factorised, products_of
from tests import tiny
from tests.methods.clients import SIZES, aggregate
from tests.methods.every import run

PARTS = [size / sum(SIZES) for size in SIZES]
NAME = "lora_A.weight"


def clients(*, count: int = 3, scale: float = 1.0) -> list[Upload]:
    drawn = [tiny.initial(tiny.ADAPTED, seed=seed) for seed in range(count)]
    generator = torch.Generator().manual_seed(9)
    for one in drawn:
        one["lora_B.weight"] = scale * torch.randn(one["lora_B.weight"].shape, generator=generator)
    return [Upload(num_examples=SIZES[place], statistics={Weights: Weights(one)}) for place, one in enumerate(drawn)]


def mean_of(uploads: Sequence[Upload]) -> Tensor:
    tensors = [upload[Weights].tensors for upload in uploads]
    return sum(part * one["lora_B.weight"] @ one["lora_A.weight"] for part, one in zip(PARTS, tensors, strict=True))


def product(parameters: dict[str, Tensor]) -> Tensor:
    return products_of(parameters)[NAME].float()


@pytest.mark.parametrize("name", ["flexlora", "fedex_lora"])
def test_one_client_keeps_its_product_and_its_head(name: str) -> None:
    uploads = clients(count=1)
    (made,) = run(name, uploads).networks
    torch.testing.assert_close(product(made), product(uploads[0][Weights].tensors), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(made["head.weight"], uploads[0][Weights].tensors["head.weight"])


def test_fedex_lora_is_the_mean_of_the_products() -> None:
    uploads = clients()
    result = run("fedex_lora", uploads)
    torch.testing.assert_close(product(result.networks[0]), mean_of(uploads), rtol=1e-4, atol=1e-5)
    # What the paper keeps apart: the product of the means, and the residual.
    means = {
        key: sum(part * one[Weights].tensors[key] for part, one in zip(PARTS, uploads, strict=True))
        for key in ("lora_A.weight", "lora_B.weight")
    }
    of_means = means["lora_B.weight"] @ means["lora_A.weight"]
    assert not torch.allclose(of_means, mean_of(uploads), atol=1e-3)
    assert result.spec is not None
    assert result.spec.widths == (3 * tiny.RANK,)
    network = result.spec.load(result.networks[0])
    assert network(tiny.examples(4, spec=tiny.ADAPTED).inputs).shape == (4, tiny.CLASSES)


def test_fedex_lora_has_no_more_than_full_rank() -> None:
    result = run("fedex_lora", clients(count=3) * 3)
    assert result.spec is not None
    assert result.spec.widths == (tiny.ADAPTED_WIDTH,)


def test_flexlora_is_the_nearest_product_of_the_rank() -> None:
    uploads = clients()
    (made,) = run("flexlora", uploads).networks
    left, values, right = torch.linalg.svd(mean_of(uploads))
    nearest = left[:, : tiny.RANK] * values[: tiny.RANK] @ right[: tiny.RANK]
    torch.testing.assert_close(product(made), nearest, rtol=1e-4, atol=1e-5)
    assert made["lora_A.weight"].shape == (tiny.RANK, tiny.ADAPTED_WIDTH)


def test_at_full_rank_nothing_is_lost_and_more_adds_zeros() -> None:
    drawn = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for rank in (4, 7):
        b, a = factorised(drawn, rank)
        assert (b.shape, a.shape) == ((4, rank), (rank, 6))
        torch.testing.assert_close(b @ a, drawn.float(), rtol=1e-5, atol=1e-6)
        assert (b[:, 4:] == 0).all()
        assert (a[4:] == 0).all()


@pytest.mark.parametrize("name", ["flexlora", "fedex_lora"])
def test_a_network_without_adapters_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"has no adapters; allowed: networks with 'lora_A' and"):
        aggregate(name, clients(), spec=tiny.TINY)
