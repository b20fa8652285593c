"""The data sets that can be named in the settings."""

from dataclasses import dataclass

from fedfisher_core.registry import Registry


@dataclass(frozen=True)
class DatasetSpec:
    """What must be known of an image data set before it is loaded.

    Args:
        name: its name in the settings, and of its folder below FEDFISHER_DATA_DIR.
        hub: its identifier on the Hugging Face hub; None for the embedded set.
        classes: number of labels.
        channels: colour channels.
        size: height and width in pixels; images of another size are resized.
        mean: per channel, subtracted from pixels in [0, 1].
        std: per channel, by which the difference is divided.
        augment: whether clients train on random crops (padding 4) and flips.
        image_columns: names of the image column, the first that is present counts.
        label_columns: names of the label column, likewise.
        hub_config: name of the hub's configuration.
        hub_test_split: name of the hub's test split.
    """

    name: str
    hub: str | None
    classes: int
    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool = False
    image_columns: tuple[str, ...] = ("image", "img")
    label_columns: tuple[str, ...] = ("label",)
    hub_config: str | None = None
    hub_test_split: str = "test"


_GREY = ((0.1307,), (0.3081,))
_CIFAR = ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
_CINIC = ((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# FedFisher's authors feed SVHN to the network without normalisation.
_NONE = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def _register_builtin() -> None:
    # Constants and augmentation are those of FedFisher's reference code (data.py, main.py).
    for spec in (
        DatasetSpec("mnist5k", None, 10, 1, 28, *_GREY),
        DatasetSpec("mnist", "ylecun/mnist", 10, 1, 28, *_GREY),
        DatasetSpec("fashion_mnist", "zalando-datasets/fashion_mnist", 10, 1, 28, *_GREY),
        DatasetSpec("svhn", "ufldl-stanford/svhn", 10, 3, 32, *_NONE, hub_config="cropped_digits"),
        DatasetSpec("cifar10", "uoft-cs/cifar10", 10, 3, 32, *_CIFAR, augment=True),
        DatasetSpec(
            "cifar100",
            "uoft-cs/cifar100",
            100,
            3,
            32,
            *_CIFAR,
            augment=True,
            label_columns=("fine_label", "label"),
        ),
        DatasetSpec("cinic10", "flwrlabs/cinic10", 10, 3, 32, *_CINIC, augment=True),
        DatasetSpec("gtsrb", "tanganke/gtsrb", 43, 3, 32, *_HALF, augment=True),
    ):
        datasets.add(spec.name, spec)


datasets: Registry[DatasetSpec] = Registry(noun="dataset", group="fedfisher.datasets", builtin=_register_builtin)
