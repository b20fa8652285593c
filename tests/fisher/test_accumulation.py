import torch

from fedfisher_core.fisher.blocks import GRAM_COLUMNS, RunningSum, add_gram, mirror


def test_a_running_sum_keeps_what_single_precision_would_lose() -> None:
    running = RunningSum((1,), like=torch.zeros(0))
    for term in (2.0**24, 1.0, 1.0, 1.0):
        running.partial += term
        running.flush()
    running.partial += 0.5
    assert running.value().item() == running.value().item() == 2.0**24 + 3.5
    assert running.take().item() == 2.0**24 + 3.5


def test_gram_matrices_wider_than_a_block_are_mirrored() -> None:
    rows = torch.randn(7, 2 * GRAM_COLUMNS + 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    running = RunningSum((rows.shape[1], rows.shape[1]), like=rows)
    add_gram(running.partial, rows)
    found = mirror(running.value())
    assert torch.equal(found, found.T)
    assert torch.allclose(found, rows.T @ rows, rtol=0, atol=1e-12)
