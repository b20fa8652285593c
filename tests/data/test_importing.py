"""A table and pictures of one's own, read back as the data set that a path names."""

from pathlib import Path

import datasets as hub
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from fedfisher_core.data.counting import count_training
from fedfisher_core.data.importing import import_pictures, import_table, import_texts
from fedfisher_core.data.layouts import Images, Vectors
from fedfisher_core.data.sources import find_source, read_dataset
from fedfisher_core.data.specs import datasets
from fedfisher_core.data.tensors import Dataset, select
from fedfisher_core.engine.errors import InputError

TABLE = Path("flowers.csv")
OUT = Path("own/flowers.parquet")


def read() -> Dataset:
    return read_dataset(find_source(str(OUT)))


def write_table(*lines: str) -> None:
    TABLE.write_text("\n".join(["width,species,label", *lines]) + "\n")


def test_a_table_is_read_as_it_was_written(workplace: Path) -> None:
    write_table(*(f"{number},{name},{10 * number}" for number, name in enumerate("bcabcabcabca")))
    import_table(TABLE, OUT, label="species", test=0.25)
    dataset = read()
    assert dataset.class_names == ("a", "b", "c")
    assert (dataset.spec.classes, dataset.spec.inputs) == (3, Vectors(2))
    assert (len(dataset.train), len(dataset.test)) == (9, 3)
    # Each class has its share of test rows, and no row is lost.
    assert dataset.test.labels.bincount().tolist() == [1, 1, 1]
    found = torch.cat([dataset.train.inputs, dataset.test.inputs])
    labels = torch.cat([dataset.train.labels, dataset.test.labels])
    assert sorted(found[:, 0].tolist()) == list(range(12))
    assert torch.equal(found[:, 1], 10 * found[:, 0])
    assert torch.equal(labels, (found[:, 0].long() + 1) % 3)
    scaled = select(dataset.train, dataset.spec).inputs
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2))
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(2))
    counted = count_training(find_source(str(OUT)))
    assert counted is not None
    assert counted.labels.tolist() == [3, 3, 3]


def picture(path: str, shade: int, size: tuple[int, int] = (5, 4), mode: str = "L") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, shade).convert(mode).save(path)


def test_a_folder_of_pictures_is_read_class_by_class(workplace: Path) -> None:
    for number in range(4):
        picture(f"pictures/night/{number}.png", 10)
        picture(f"pictures/day/{number}.png", 200, (7 + number, 9))
    Path("pictures/day/.hidden").write_text("of a file manager")
    picture("pictures/.checkpoints/0.png", 100)
    import_pictures(Path("pictures"), OUT, size=6, test=0.5)
    dataset = read()
    assert (dataset.class_names, dataset.spec.inputs) == (("day", "night"), Images(1, 6, 6))
    for split in (dataset.train, dataset.test):
        assert split.labels.bincount().tolist() == [2, 2]
        assert torch.equal(split.inputs.float().mean((1, 2, 3)), torch.tensor([200.0, 10.0])[split.labels])
    picture("pictures/day/colour.png", 200, mode="RGB")
    import_pictures(Path("pictures"), OUT, size=6, test=0.5)
    assert datasets.get(str(OUT)).inputs == Images(3, 6, 6)


def test_the_file_is_part_of_what_names_results(workplace: Path) -> None:
    write_table("1,a,0", "2,b,0", "3,a,0", "4,b,0")
    import_table(TABLE, OUT, label="species", test=0.5)
    first = find_source(str(OUT)).identity
    write_table("1,a,0", "2,b,0", "3,a,0", "5,b,0")
    import_table(TABLE, OUT, label="species", test=0.5)
    assert find_source(str(OUT)).identity != first


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["1,a,0", "2,b"], r"flowers\.csv, line 3 has 2 cells; allowed: 3"),
        (["1,a,0", "2, ,0"], r"flowers\.csv, line 3 has no label in column 'species'"),
        (["1,a,0", "wide,b,0"], r"flowers\.csv, line 3, column 'width': 'wide'; allowed: finite numbers"),
        (
            ["1,a,0", "", ",b,0"],
            r"flowers\.csv, line 4, column 'width': ''; allowed: finite numbers up to .*, none",
        ),
        (["12_3,a,0"], r"flowers\.csv, line 2, column 'width': '12_3'; allowed: finite numbers"),
        (["1,a,nan"], r"flowers\.csv, line 2, column 'label': 'nan'"),
        (["1e39,a,0"], r"flowers\.csv, line 2, column 'width': '1e39'; allowed: finite numbers up to 3\.4e\+38"),
        (["1,a,0", "2,a,0"], r"flowers\.csv has class 'a' alone; allowed: two classes or more"),
        (["1,a,0", "2,a,0", "3,b,0"], r"flowers\.csv has class 'b' once"),
        ([], r"flowers\.csv has no rows"),
        (['1,"a'], r"flowers\.csv can't be read: Error: unexpected end of data; allowed: a CSV in UTF-8"),
    ],
)
def test_a_table_that_can_not_be_used_is_refused_by_its_line(workplace: Path, lines: list[str], words: str) -> None:
    write_table(*lines)
    with pytest.raises(InputError, match=words):
        import_table(TABLE, OUT, label="species", test=0.5)
    assert not OUT.parent.exists()


@pytest.mark.parametrize("constant", ["0.1", "1700000000123456789", "1e-200"])
def test_what_is_the_same_in_all_training_rows_becomes_nothing(workplace: Path, constant: str) -> None:
    # Rounding leaves the mean of so many 0.1 another number, and a deviation.
    write_table(*(f"{constant},{'ab'[number % 2]},{number}" for number in range(120)))
    import_table(TABLE, OUT, label="species", test=0.25)
    dataset = read()
    for split in (dataset.train, dataset.test):
        assert select(split, dataset.spec).inputs[:, 0].abs().max() < 1e-9
        assert select(split, dataset.spec).inputs[:, 1].abs().max() > 1


def test_a_test_row_with_another_value_than_the_training_rows_is_no_outlier(workplace: Path) -> None:
    write_table(*(f"1.7e9,{'ab'[number % 2]},{number}" for number in range(12)))
    import_table(TABLE, OUT, label="species", test=0.25)
    held = int(read().test.inputs[0, 1])
    write_table(*(f"{5 if number == held else 1.7e9},{'ab'[number % 2]},{number}" for number in range(12)))
    import_table(TABLE, OUT, label="species", test=0.25)
    dataset = read()
    assert dataset.test.inputs[0, 0] == 5
    assert select(dataset.test, dataset.spec).inputs[:, 0].abs().max() < 1e-9


def test_a_column_whose_deviation_underflows_becomes_nothing(workplace: Path) -> None:
    write_table(*(f"{number % 3}e-200,{'ab'[number % 2]},{number}" for number in range(12)))
    import_table(TABLE, OUT, label="species", test=0.25)
    assert select(read().train, read().spec).inputs[:, 0].abs().max() < 1e-9


def test_names_of_classes_in_a_files_metadata_stay_in_their_order(workplace: Path) -> None:
    named = hub.Features({"text": hub.Value("string"), "label": hub.ClassLabel(names=["late", "early", "never", "b"])})
    given = {"text": [f"text {number}" for number in range(12)], "label": [0, 1, 3] * 4}
    hub.Dataset.from_dict(given, features=named).to_parquet("hub.parquet")
    import_texts(Path("hub.parquet"), OUT, text="text", label="label", test=0.25)
    dataset = read_dataset(find_source(str(OUT)))
    assert dataset.class_names == ("late", "early", "b")
    assert dataset.train.labels.bincount().tolist() == [3, 3, 3]
    table = pyarrow.parquet.read_table(OUT)
    for text, label in zip(table["text"].to_pylist(), table["label"].to_pylist(), strict=True):
        assert label == int(text.split()[1]) % 3


def test_a_label_that_the_metadata_do_not_name_is_refused_by_its_row(workplace: Path) -> None:
    named = hub.Features({"text": hub.Value("string"), "label": hub.ClassLabel(names=["a", "b"])})
    whole = hub.Dataset.from_dict({"text": ["x"] * 4, "label": [0, 1, 0, 1]}, features=named)
    whole.to_parquet("hub.parquet")
    table = pyarrow.parquet.read_table("hub.parquet")
    numbers = pyarrow.array([0, 1, 5, 1], pyarrow.int64())
    pyarrow.parquet.write_table(
        table.set_column(1, "label", numbers).replace_schema_metadata(table.schema.metadata), "hub.parquet"
    )
    with pytest.raises(InputError, match=r"hub.parquet, row 2: label 5; allowed: the 2 classes that are named"):
        import_texts(Path("hub.parquet"), OUT, text="text", label="label", test=0.5)


def test_a_column_of_texts_that_stands_twice_is_refused(workplace: Path) -> None:
    TABLE.write_text("text,label,text\none,a,x\ntwo,b,y\n")
    with pytest.raises(InputError, match=r"flowers.csv has the column 'text' twice; allowed: names that differ"):
        import_texts(TABLE, OUT, text="text", label="label", test=0.5)


def test_a_long_text_is_read_and_a_long_label_refused(workplace: Path) -> None:
    long = "word " * 600_000
    TABLE.write_text(f"text,label\n{long},a\ntwo,a\nthree,b\nfour,b\n")
    import_texts(TABLE, OUT, text="text", label="label", test=0.5)
    assert long in pyarrow.parquet.read_table(OUT)["text"].to_pylist()
    OUT.unlink()
    label = "a" * 201
    TABLE.write_text(f"text,label\none,{label}\ntwo,{label}\nthree,b\nfour,b\n")
    with pytest.raises(InputError, match=r"flowers\.csv has a label of 201 characters, .*; allowed: up to 200"):
        import_texts(TABLE, OUT, text="text", label="label", test=0.5)
    assert not OUT.exists()


def test_a_class_whose_folder_is_a_link_or_empty_is_refused(workplace: Path) -> None:
    for number in range(2):
        for where in ("pictures/a", "pictures/b", "elsewhere/c"):
            picture(f"{where}/{number}.png", 1)
    Path("pictures/c").symlink_to(Path("elsewhere/c").absolute())
    with pytest.raises(InputError, match="pictures/c is a link to a folder, which is not followed; allowed: folders"):
        import_pictures(Path("pictures"), OUT, size=6, test=0.5)
    Path("pictures/c").unlink()
    Path("pictures/c").mkdir()
    with pytest.raises(InputError, match="pictures/c has no pictures; allowed: a folder of pictures for each class"):
        import_pictures(Path("pictures"), OUT, size=6, test=0.5)
    assert not OUT.exists()


def test_labels_of_texts_may_have_spaces_around_them(workplace: Path) -> None:
    TABLE.write_text("text,label\none,a\ntwo,a \nthree,b\nfour, b\n")
    import_texts(TABLE, OUT, text="text", label="label", test=0.5)
    assert read_dataset(find_source(str(OUT))).class_names == ("a", "b")


def test_one_column_is_no_text_and_label(workplace: Path) -> None:
    write_table("1,a,0", "2,b,1")
    with pytest.raises(InputError, match=r"^--text=species and --label=species name one column; allowed: two"):
        import_texts(TABLE, OUT, text="species", label="species", test=0.5)


def test_a_table_without_labels_is_refused(workplace: Path) -> None:
    write_table("1,a,0")
    with pytest.raises(
        InputError, match=r"flowers\.csv has the columns width, species, label; .* 'kind' for the labels"
    ):
        import_table(TABLE, OUT, label="kind", test=0.5)
    with pytest.raises(InputError, match=r"the table is missing, no file absent\.csv"):
        import_table(Path("absent.csv"), OUT, label="label", test=0.5)


def test_pictures_that_can_not_be_read_are_refused_by_their_file(workplace: Path) -> None:
    picture("pictures/a/1.png", 1)
    Path("pictures/a/2.png").write_bytes(Path("pictures/a/1.png").read_bytes()[:50])
    with pytest.raises(InputError, match=r"pictures/a/2\.png is no picture that can be read: .*; allowed: pictures"):
        import_pictures(Path("pictures"), OUT, size=6, test=0.5)
    picture("pictures/3.png", 1)
    with pytest.raises(InputError, match=r"pictures/3\.png lies in no class's folder; allowed: pictures/CLASS/PICTURE"):
        import_pictures(Path("pictures"), OUT, size=6, test=0.5)
    Path("empty").mkdir()
    with pytest.raises(InputError, match="empty has no pictures"):
        import_pictures(Path("empty"), OUT, size=6, test=0.5)
    assert not OUT.parent.exists()


def test_other_files_are_no_data_set(workplace: Path) -> None:
    np.save("numbers.npy", np.zeros(3))
    Path("numbers.npy").rename("numbers.parquet")
    with pytest.raises(
        InputError, match=r"data\.dataset='numbers\.parquet' says nothing of its classes .*; allowed: files"
    ):
        find_source("numbers.parquet")
    with pytest.raises(InputError, match=r"data\.dataset='absent\.parquet' is missing"):
        find_source("absent.parquet")
