import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.kronecker import GroupedKroneckerSum, Kronecker, KroneckerSum


def random_block(seed: int) -> Kronecker:
    generator = torch.Generator().manual_seed(seed)
    inputs, outputs = (torch.randn(size, 7, generator=generator, dtype=torch.float64) for size in (5, 3))
    return Kronecker(inputs @ inputs.T, outputs @ outputs.T)


def dense(block: Kronecker) -> Tensor:
    """The block as a matrix that acts on the rows of W, one after the other."""
    return torch.kron(block.outputs, block.inputs)


MATRIX = torch.arange(15, dtype=torch.float64).view(3, 5).sin()


def test_block_acts_as_its_dense_matrix() -> None:
    block = random_block(0)
    matrix = dense(block)
    assert torch.allclose(block.product(MATRIX).flatten(), matrix @ MATRIX.flatten())
    assert block.trace == pytest.approx(matrix.trace().item())


@pytest.mark.parametrize("clients", [1, 4])
def test_sum_acts_as_the_weighted_sum_of_dense_matrices(clients: int) -> None:
    blocks = [random_block(seed) for seed in range(clients)]
    weights = [0.1 * (seed + 1) for seed in range(clients)]
    total = KroneckerSum.of(blocks, weights)
    matrix = sum(weight * dense(block) for block, weight in zip(blocks, weights, strict=True))
    assert torch.allclose(total.product(MATRIX).flatten(), matrix @ MATRIX.flatten())
    assert torch.allclose(total.diagonal().flatten(), matrix.diagonal())


def test_sum_needs_a_weight_for_every_block() -> None:
    with pytest.raises(InputError, match="2 weights for 1 blocks"):
        KroneckerSum.of([random_block(0)], [0.5, 0.5])
    with pytest.raises(InputError, match="0 weights for 0 blocks"):
        KroneckerSum.of([], [])


def test_a_sum_multiplies_each_client_s_vector_by_the_client_s_own_block() -> None:
    blocks, weights = [random_block(seed) for seed in range(3)], [0.2, 0.5, 0.3]
    rows, columns = len(blocks[0].outputs), len(blocks[0].inputs)
    generator = torch.Generator().manual_seed(9)
    matrices = torch.randn(3, rows, columns, generator=generator, dtype=blocks[0].inputs.dtype)
    products = KroneckerSum.of(blocks, weights).products(matrices)
    for weight, block, matrix, product in zip(weights, blocks, matrices, products, strict=True):
        assert torch.allclose(product, weight * block.product(matrix), rtol=1e-4, atol=1e-5)


def test_sums_of_groups_act_as_each_group_s_own_sum() -> None:
    weights = [0.2, 0.8]
    groups = [[random_block(10 * group + client) for client in range(2)] for group in range(3)]
    total = GroupedKroneckerSum(
        inputs=torch.stack([torch.stack([one.inputs for one in blocks]) for blocks in groups]),
        outputs=torch.stack(
            [torch.stack([p * one.outputs for p, one in zip(weights, blocks, strict=True)]) for blocks in groups]
        ),
    )
    vectors = torch.stack([MATRIX, 2 * MATRIX, MATRIX.cos()])
    each = torch.stack([vectors, -vectors], dim=1)
    for group, blocks in enumerate(groups):
        alone = KroneckerSum.of(blocks, weights)
        assert torch.allclose(total.product(vectors)[group], alone.product(vectors[group]))
        assert torch.allclose(total.products(each)[group], alone.products(each[group]))
        assert torch.allclose(total.diagonal()[group], alone.diagonal())


def test_damping_adds_itself_and_cross_terms() -> None:
    block, damping = random_block(2), 0.3
    ratio = ((block.inputs.trace() / 5) / (block.outputs.trace() / 3)).sqrt()
    inputs, outputs = torch.eye(5, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    cross = torch.kron(outputs, block.inputs) / ratio + ratio * torch.kron(block.outputs, inputs)
    expected = dense(block) + damping * torch.eye(15, dtype=torch.float64) + damping**0.5 * cross
    assert torch.allclose(dense(block.damped(damping)), expected)


def test_no_damping_leaves_a_block_as_it_is_and_any_raises_one_of_zeros() -> None:
    block = random_block(3)
    assert block.damped(0) is block
    nothing = Kronecker(torch.zeros(5, 5), torch.zeros(3, 3)).damped(0.25)
    assert torch.allclose(dense(nothing), 0.25 * torch.eye(15))
