import pytest
import torch

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors, require_images, require_tokens
from fedfisher_core.engine.errors import InputError


@pytest.mark.parametrize(
    ("layout", "shape", "text", "bits"),
    [
        (Images(3, 28, 20), (3, 28, 20), "3 x 28 x 20", 8 * 3 * 28 * 20),
        (Vectors(13), (13,), "13 numbers", 32 * 13),
        (Vectors(1), (1,), "1 number", 32),
        (Tokens(80, 90), (80,), "80 tokens of 90", 7 * 80),
        (Tokens(3, 64), (3,), "3 tokens of 64", 6 * 3),
    ],
    ids=str,
)
def test_what_a_layout_says_of_itself(layout: Layout, shape: tuple[int, ...], text: str, bits: int) -> None:
    assert layout.shape == shape
    assert str(layout) == text
    assert layout.bits == bits


@pytest.mark.parametrize("layout", [Images(2, 3, 4), Vectors(5), Tokens(7, 3)], ids=str)
def test_made_up_examples_are_as_networks_take_them(layout: Layout) -> None:
    dtype = torch.int64 if isinstance(layout, Tokens) else torch.float32
    for examples in (layout.zeros(4), layout.drawn(4, torch.Generator().manual_seed(0))):
        assert examples.shape == (4, *layout.shape)
        assert examples.dtype == dtype
    assert not layout.zeros(4).any()
    assert torch.equal(
        layout.drawn(9, torch.Generator().manual_seed(1)), layout.drawn(9, torch.Generator().manual_seed(1))
    )


def test_drawn_tokens_are_all_there_are() -> None:
    assert Tokens(50, 4).drawn(10, torch.Generator().manual_seed(0)).unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        (Images, (1, 0, 4), "Images with height=0; allowed: 1 or more"),
        (Vectors, (0,), "Vectors with features=0"),
        (Tokens, (4, -1), "Tokens with vocabulary=-1"),
    ],
)
def test_layouts_of_nothing_are_refused(kind: type[Layout], sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(*sizes)


def test_only_images_are_images() -> None:
    assert require_images(Images(1, 2, 3), "it") == Images(1, 2, 3)
    with pytest.raises(InputError, match="it takes images; the data has 13 numbers"):
        require_images(Vectors(13), "it")


def test_only_tokens_are_tokens() -> None:
    assert require_tokens(Tokens(2, 3), "it") == Tokens(2, 3)
    with pytest.raises(InputError, match="it takes tokens; the data has 1 x 2 x 3"):
        require_tokens(Images(1, 2, 3), "it")
