"""The data sets that settings can name without another package."""

from fedfisher_core.data.layouts import Images, Texts, Tokens, Vectors
from fedfisher_core.data.specs import EMBEDDED, DatasetSpec, datasets

_GREY = ((0.1307,), (0.3081,))
_CIFAR = ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
_CINIC = ((0.47889522, 0.47227842, 0.43047404), (0.24205776, 0.23828046, 0.25874835))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# FedFisher's authors feed SVHN to the network without normalisation.
_NONE = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_GREY_28 = Images(1, 28, 28)
# The settings `data.text` replace length and tokenizer.
_TEXTS = Texts(64, 30_522)
_COLOURED_32 = Images(3, 32, 32)
# The columns of the processed files of UCI's heart disease data (Janosi et al. 1988), in their order.
_HEART = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal"),
)


# Constants are those of FedFisher's reference code (data.py, main.py), and so is which data are augmented. EMNIST and
# Tiny-ImageNet are this project's additions. EMNIST has MNIST's constants; Tiny-ImageNet has ImageNet's, with crops and
# flips as CIFAR.
for _spec in (
    DatasetSpec(EMBEDDED, None, 10, _GREY_28, *_GREY),
    DatasetSpec("mnist", "ylecun/mnist", 10, _GREY_28, *_GREY),
    DatasetSpec("fashion_mnist", "zalando-datasets/fashion_mnist", 10, _GREY_28, *_GREY),
    # Both cases of a letter are one class.
    DatasetSpec("emnist_letters", "tanganke/emnist_letters", 26, _GREY_28, *_GREY),
    # The known copies on the hub are in MNIST's own file format, so it is read from its folder only.
    DatasetSpec("emnist_balanced", None, 47, _GREY_28, *_GREY),
    DatasetSpec("svhn", "ufldl-stanford/svhn", 10, _COLOURED_32, *_NONE, hub_config="cropped_digits"),
    DatasetSpec("cifar10", "uoft-cs/cifar10", 10, _COLOURED_32, *_CIFAR, augment=True),
    DatasetSpec(
        "cifar100",
        "uoft-cs/cifar100",
        100,
        _COLOURED_32,
        *_CIFAR,
        augment=True,
        label_columns=("fine_label", "label"),
        coarse_columns=("coarse_label",),
    ),
    DatasetSpec("cinic10", "flwrlabs/cinic10", 10, _COLOURED_32, *_CINIC, augment=True),
    # The test labels of Tiny-ImageNet were never published, so its validation images are the test examples.
    DatasetSpec(
        "tiny_imagenet", "zh-plus/tiny-imagenet", 200, _COLOURED_32, *_IMAGENET, augment=True, hub_test_split="valid"
    ),
    DatasetSpec("usps", "flwrlabs/usps", 10, Images(1, 16, 16), *_GREY),
    # Digits scanned in two ways, as two domains; MNIST's constants normalise both.
    DatasetSpec("digits", None, 10, _GREY_28, *_GREY, client_column="domain", parts=("mnist", "usps")),
    DatasetSpec("heart_disease", None, 2, Vectors(13), feature_columns=_HEART, impute="mean", client_column="client"),
    DatasetSpec("gtsrb", "tanganke/gtsrb", 43, _COLOURED_32, *_HALF, augment=True),
    # The labels of SST-2's test file were never published, so its validation texts are the test examples.
    DatasetSpec("sst2", "stanfordnlp/sst2", 2, _TEXTS, token_columns=("text", "sentence"), hub_test_split="validation"),
    DatasetSpec("ag_news", "fancyzhx/ag_news", 4, _TEXTS, token_columns=("text",)),
    # Karpathy's excerpt of the plays: a window of characters, with the next character as its label.
    DatasetSpec("shakespeare", None, 65, Tokens(40, 65), client_column="role", plays="tinyshakespeare/input.txt"),
    # Of the same excerpt, a line with who says it: with 20 roles, each play has at least one.
    DatasetSpec(
        "shakespeare_speakers",
        None,
        20,
        _TEXTS,
        token_columns=("text",),
        client_column="play",
        plays="tinyshakespeare/input.txt",
    ),
):
    datasets.add(_spec.name, _spec)
