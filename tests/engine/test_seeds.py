import itertools

import pytest
import torch

from fedfisher_core.engine.seeds import Stream, numpy_generator, torch_generator, torch_generator_for

BRANCHES = list(itertools.product((0, 1, 2**31), Stream, (0, 1, 7)))


def test_every_branch_draws_numbers_of_its_own() -> None:
    drawn = {tuple(numpy_generator(*branch).integers(0, 2**62, 4).tolist()) for branch in BRANCHES}
    assert len(drawn) == len(BRANCHES)
    drawn = {tuple(torch.randint(0, 2**62, (4,), generator=torch_generator(*branch)).tolist()) for branch in BRANCHES}
    assert len(drawn) == len(BRANCHES)


def test_a_branch_can_be_drawn_again() -> None:
    for branch in BRANCHES:
        assert numpy_generator(*branch).random() == numpy_generator(*branch).random()
        first, again = (torch.rand(3, generator=torch_generator(*branch)) for _ in range(2))
        assert torch.equal(first, again)


def test_every_use_has_a_generator_of_its_own_whatever_the_order_of_its_words() -> None:
    uses = [{"epsilon": 2.0, "steps": 3}, {"epsilon": 4.0, "steps": 3}, {"steps": 3, "epsilon": 2.0}]
    drawn = [torch.rand(3, generator=torch_generator_for(use, 0, Stream.CLIENT, 1)) for use in uses]
    assert torch.equal(drawn[0], drawn[2])
    other = torch.rand(3, generator=torch_generator(0, Stream.CLIENT, 1))
    assert not any(torch.equal(drawn[0], one) for one in (drawn[1], other))


def test_drawing_from_one_branch_leaves_the_others_alone() -> None:
    expected = torch.rand(3, generator=torch_generator(0, Stream.CLIENT, 1))
    other = torch_generator(0, Stream.CLIENT, 0)
    torch.rand(1000, generator=other)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3, generator=torch_generator(0, Stream.CLIENT, 1)), expected)


def test_the_tree_stays_as_it_is() -> None:
    assert {stream.name: int(stream) for stream in Stream} == {
        "PARTITION": 0,
        "VALIDATION": 1,
        "INITIALISATION": 2,
        "CLIENT": 3,
        "SERVER": 4,
        "ATTACK": 5,
        "FISHER": 6,
        "SECURE": 7,
        "AUDIT": 8,
        "SAMPLE": 9,
        "SHIFT": 10,
        "COHORT": 11,
        "PERSONALISATION": 12,
        "MODES": 13,
        "CANARY": 14,
    }


@pytest.mark.parametrize(
    ("seed", "stream", "index", "from_numpy", "from_torch"),
    [
        (0, Stream.PARTITION, 0, 17224, 441789),
        (0, Stream.INITIALISATION, 0, 109939, 162105),
        (3, Stream.CLIENT, 2, 538290, 339128),
    ],
)
def test_the_first_values_stay_as_they_are(
    seed: int, stream: Stream, index: int, from_numpy: int, from_torch: int
) -> None:
    assert numpy_generator(seed, stream, index).integers(0, 10**6) == from_numpy
    assert torch.randint(0, 10**6, (), generator=torch_generator(seed, stream, index)).item() == from_torch
