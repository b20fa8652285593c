"""Pictures as pixels: sizes, colours, depths, and what can't be read."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import datasets as hub
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fedfisher_core.data.pictures import Mode, decode, no_bombs
from fedfisher_core.engine.errors import InputError
from tests import tiny
from tests.data.files import grey, read, write

SIZE = (4, 3)
GREY = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
COLOURS = np.stack([GREY, 255 - GREY, GREY // 2], axis=-1)


def encoded(picture: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format=format, **options)
    return stream.getvalue()


def pixels(data: bytes, mode: Mode = "L", size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    with no_bombs():
        return np.asarray(decode(data, mode, size)[0])


def png(width: int, height: int, *, depth: int, colour: int, rows: bytes, transparent: bytes = b"") -> bytes:
    """Write a PNG file of which Pillow writes no such kind."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [chunk(b"IHDR", header), *([chunk(b"tRNS", transparent)] if transparent else [])]
    return b"\x89PNG\r\n\x1a\n" + b"".join([*chunks, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")])


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize(("format", "order"), [("PNG", ""), ("TIFF", ""), ("TIFF", "B"), ("JPEG2000", "")])
def test_sixteen_bits_of_grey_are_those_of_eight_bits(mode: Mode, format: str, order: str) -> None:
    deep = Image.frombytes(f"I;16{order}", SIZE, (GREY.astype(">u2" if order else "<u2") * 257).tobytes())
    found = pixels(encoded(deep, format), mode)
    assert np.array_equal(found, GREY if mode == "L" else np.stack([GREY] * 3, axis=-1))


def test_the_lower_eight_of_sixteen_bits_are_dropped() -> None:
    values = np.array([[0x00FF, 0x0100], [0x7FFF, 0xFFFF]], dtype=np.uint16)
    assert pixels(encoded(Image.fromarray(values)), size=(2, 2)).tolist() == [[0, 1], [0x7F, 0xFF]]


def test_twelve_bits_of_a_tiff_file_lose_four() -> None:
    # Two pixels of 12 bits, one behind the other: 0xfff and 0x800.
    tags = {256: 2, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 3}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    tiff = struct.pack("<2sHI", b"II", 42, 12) + b"\xff\xf8\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4)
    assert pixels(tiff, size=(2, 1)).tolist() == [[0xFF, 0x80]]


def test_grey_of_a_pgm_file_is_scaled_by_its_largest_value() -> None:
    assert pixels(b"P5 2 1 65535\n\x80\x00\xff\xff", size=(2, 1)).tolist() == [[0x80, 0xFF]]
    assert pixels(b"P5 2 1 4095\n\x08\x00\x0f\xff", size=(2, 1)).tolist() == [[0x80, 0xFF]]


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_numbers_without_a_range_are_refused(mode: Mode, kind: type) -> None:
    name = "F" if kind is np.float32 else "I"
    with pytest.raises(ValueError, match=f"mode '{name}', and nothing says which of their values is white; allowed"):
        pixels(encoded(Image.fromarray(GREY.astype(kind)), "TIFF"), mode)


def ink(mode: str) -> Image.Image:
    """Black on transparency in the upper half, with an alpha of half in one pixel."""
    alpha = np.zeros((3, 4), dtype=np.uint8)
    alpha[0], alpha[1, 0] = 255, 128
    picture = Image.fromarray(np.stack([np.zeros_like(alpha)] * 3 + [alpha], axis=-1), "RGBA")
    return picture if mode == "RGBA" else picture.convert(mode)


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("kind", ["RGBA", "LA"])
@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_what_is_transparent_shows_white(mode: Mode, kind: str, format: str) -> None:
    found = pixels(encoded(ink(kind), format), mode).reshape(3, 4, -1)
    assert (found[0] == 0).all()
    assert (found[1, 0] == 127).all()
    assert (found[1, 1:] == 255).all()
    assert (found[2] == 255).all()


@pytest.mark.parametrize("format", ["PNG", "GIF"])
def test_a_transparent_colour_of_a_palette_shows_white(format: str) -> None:
    picture = Image.fromarray((GREY > 100).astype(np.uint8), "P")
    picture.putpalette([0, 0, 0, 200, 0, 0])
    found = pixels(encoded(picture, format, transparency=0), "RGB")
    assert np.array_equal(found, np.where(GREY[..., None] > 100, [200, 0, 0], [255, 255, 255]))


def test_a_transparent_value_of_grey_or_colours_shows_white() -> None:
    assert np.array_equal(pixels(encoded(Image.fromarray(GREY), transparency=20)), np.where(GREY == 20, 255, GREY))
    found = pixels(encoded(Image.fromarray(COLOURS), transparency=tuple(COLOURS[1, 1].tolist())), "RGB")
    assert found[1, 1].tolist() == [255, 255, 255]
    assert (found == COLOURS).all(-1).sum() == 11


@pytest.mark.parametrize(
    ("depth", "colour", "rows", "transparent"),
    [
        (1, 0, b"\0\x80", b"\0\1"),
        (2, 0, b"\0\xc0", b"\0\3"),
        (4, 0, b"\0\xf0", b"\0\x0f"),
        (16, 0, b"\0\x12\x34\x00\x00", b"\x12\x34"),
        (16, 2, b"\0" + b"\x12\x34" * 3 + b"\0" * 6, b"\x12\x34" * 3),
    ],
)
def test_a_transparent_value_of_another_depth_is_refused(
    depth: int, colour: int, rows: bytes, transparent: bytes
) -> None:
    plain = png(2, 1, depth=depth, colour=colour, rows=rows)
    assert pixels(plain, size=(2, 1)).tolist() == [[255 if depth < 8 else 0x12, 0]]
    with pytest.raises(ValueError, match="one value means transparent; allowed: an alpha channel"):
        pixels(png(2, 1, depth=depth, colour=colour, rows=rows, transparent=transparent), size=(2, 1))


@pytest.mark.parametrize("colour", [255, 90])
def test_a_picture_of_which_nothing_would_show_is_refused(colour: int) -> None:
    # White ink, and colours that a damaged alpha channel hides.
    alpha = GREY if colour == 255 else np.zeros_like(GREY)
    value = np.full_like(GREY, 255) if colour == 255 else GREY
    with pytest.raises(ValueError, match="nothing of it shows on white"):
        pixels(encoded(Image.fromarray(np.stack([value] * 3 + [alpha], axis=-1), "RGBA")))


def test_an_opaque_alpha_channel_changes_nothing() -> None:
    opaque = np.concatenate([COLOURS, np.full((3, 4, 1), 255, np.uint8)], axis=-1)
    assert np.array_equal(pixels(encoded(Image.fromarray(opaque)), "RGB"), COLOURS)
    white = Image.new("RGBA", SIZE, "white")
    assert (pixels(encoded(white)) == 255).all()


@pytest.mark.parametrize(("kind", "format"), [("CMYK", "TIFF"), ("CMYK", "JPEG"), ("YCbCr", "TIFF"), ("LAB", "TIFF")])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_other_colour_spaces_are_converted(kind: str, format: str, mode: Mode) -> None:
    colours = {"red": (255, 0, 0), "white": (255, 255, 255), "black": (0, 0, 0)}
    if kind == "LAB":
        colours.pop("red")
    for name, colour in colours.items():
        if kind == "LAB":
            picture = Image.new("LAB", SIZE, (255 if name == "white" else 0, 128, 128))
        else:
            picture = Image.new("RGB", SIZE, colour).convert(kind)
        found = pixels(encoded(picture, format), mode).reshape(12, -1)
        expected = np.array(colour if mode == "RGB" else [0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]])
        assert np.abs(found - expected).max() <= 2, (name, found[0])


@pytest.mark.drawn(10)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_the_hubs_decoder_turns_them(format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    big = Image.fromarray(np.kron(GREY, np.ones((8, 8), np.uint8))).convert("RGB")
    data = encoded(big, format, exif=exif)
    upright = hub.Image().decode_example({"bytes": data, "path": None})
    with no_bombs():
        found, size = decode(data, "RGB", upright.size)
    assert size == upright.size == ((32, 24) if orientation < 5 else (24, 32))
    assert np.array_equal(np.asarray(found), np.asarray(upright))
    stays = size == big.size and np.abs(np.asarray(found).astype(int) - np.asarray(big)).mean() < 10
    assert stays == (orientation == 1)


def test_a_named_picture_is_read(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    path.write_bytes(encoded(Image.fromarray(GREY)))
    assert np.array_equal(np.asarray(decode(path, "L", SIZE)[0]), GREY)


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_a_picture_of_too_many_pixels_is_refused_before_they_are_decoded(side: int) -> None:
    with pytest.raises(Exception, match=rf"Image size \({side**2} pixels\) exceeds limit of \d+ pixels"):
        pixels(png(side, side, depth=8, colour=0, rows=b""))


@pytest.mark.parametrize("size", [(0, 0), (0, 3), (3, 0)])
def test_an_empty_picture_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="Pillow knows no format that begins so, or its header is damaged"):
        pixels(png(*size, depth=8, colour=0, rows=b""))


def test_images_of_another_size_are_resized(root: Path) -> None:
    left_half = np.zeros((18, 12), dtype=np.uint8)
    left_half[:, :6] = 200
    write(root, image=[grey(90, size=(5, 9)), tiny.png(left_half)])
    images = read(sizes="any").train.inputs
    assert images.shape == (2, 1, 6, 6)
    assert (images[0] == 90).all()
    assert (images[1, 0, :, :2] == 200).all()
    assert (images[1, 0, :, 4:] == 0).all()


def test_images_of_one_other_size_are_resized_without_a_setting(root: Path) -> None:
    write(root, image=[grey(90, size=(5, 9)), grey(20, size=(5, 9))])
    assert read().train.inputs[:, 0, 0, 0].tolist() == [90, 20]


def test_images_of_several_sizes_are_refused_with_those_that_were_found(root: Path) -> None:
    few = r"data set 'tiny' has images of 2 sizes: 6x6 \(3\), 5x9 \(1\); allowed: images of one size, or "
    for odd in ("train", "test"):
        for split in ("train", "test"):
            size = (5, 9) if split == odd else (6, 6)
            content = {"image": [grey(1), grey(2, size=size)], "label": [0, 1]}
            tiny.write_split(root / "tiny" / f"{split}.parquet", content)
        with pytest.raises(InputError, match=few + r"data\.image_sizes=any, which brings each to 6x6"):
            read()
    write(root, image=[grey(1, size=(side, side)) for side in range(1, 8)], label=[0] * 7)
    with pytest.raises(InputError, match=r"images of 7 sizes: 1x1 \(2\), .* and 2 more; allowed"):
        read()


def test_images_need_not_be_square(root: Path) -> None:
    rows = np.arange(54, dtype=np.uint8).reshape(6, 9)
    top_half = np.zeros((24, 18), dtype=np.uint8)
    top_half[:12] = 200
    write(root, "banners", image=[tiny.png(rows), tiny.png(top_half)])
    images = read("banners", sizes="any").train.inputs
    assert images.shape == (2, 1, 6, 9)
    assert torch.equal(images[0, 0], torch.from_numpy(rows))
    assert (images[1, 0, :2] == 200).all()
    assert (images[1, 0, 4:] == 0).all()


def test_colours_are_made_grey_by_their_luminance(root: Path) -> None:
    colour = np.zeros((6, 6, 3), dtype=np.uint8)
    colour[..., 0], colour[..., 1], colour[..., 2] = 100, 150, 200
    write(root, image=[tiny.png(colour), grey(33)])
    images = read().train.inputs
    expected = 0.299 * 100 + 0.587 * 150 + 0.114 * 200
    assert (images[0].float() - expected).abs().max() <= 1
    assert (images[1] == 33).all()


def test_grey_and_transparent_images_get_three_channels_in_order(root: Path) -> None:
    colour = np.zeros((6, 6, 4), dtype=np.uint8)
    colour[..., 0], colour[..., 1], colour[..., 2], colour[..., 3] = 10, 20, 30, 255
    write(root, "coloured", image=[grey(50), tiny.png(colour)], label=[0, 1])
    images = read("coloured").train.inputs
    assert images.shape == (2, 3, 6, 6)
    assert (images[0] == 50).all()
    assert images[1, :, 0, 0].tolist() == [10, 20, 30]


def bomb(side: int) -> bytes:
    """A PNG file that says that it has many pixels, and has none."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ]
    written = [struct.pack(">I", len(data)) + name + data for name, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(one + struct.pack(">I", zlib.crc32(one[4:])) for one in written)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bomb(20_000), r"Image size \(400000000 pixels\) exceeds limit"),
        (bomb(10_000), r"Image size \(100000000 pixels\) exceeds limit"),
        (bomb(2**31 - 1), "."),
        (bomb(0), "its header is damaged"),
        (bomb(6), "."),
        (b"", "Pillow knows no format that begins so"),
        (b"no image", "Pillow knows no format that begins so"),
        (grey(10)[:30], "."),
        (grey(10)[:-30], "."),
        (grey(10).replace(b"IDAT", b"XDAT"), "."),
        (b"GIF89a\xff\xff\xff\xff\x00\x00\x00", "."),
        (b"BM" + b"\xff" * 60, "."),
        (b"II*\x00\x08\x00\x00\x00\xff\xff", "."),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "."),
    ],
)
def test_a_damaged_or_too_large_image_is_one_line_with_its_row(root: Path, data: bytes, reason: str) -> None:
    write(root, image=[grey(10), data])
    with pytest.raises(
        InputError, match=f"^split 'train' of data set 'tiny', row 1: the image can't be read: .*{reason}"
    ) as caught:
        read(sizes="any")
    assert "\n" not in str(caught.value)
    assert "0x7f" not in str(caught.value)
