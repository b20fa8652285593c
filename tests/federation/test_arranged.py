"""Whole tiny benchmarks on a table, on sequences of tokens and on images that are not square."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from tests import arranged, tiny
from tests.walked import walk_tiny


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    ("dataset", "model", "methods"),
    [
        ("texts", "bag", ("fedavg", "fedfish", "regmean", "ensemble", "centralised")),
        ("texts", "small_gru", ("fedavg", "fedfish", "regmean", "ties", "ensemble", "centralised")),
        (
            "texts",
            "small_transformer",
            ("fedavg", "fedfish", "regmean", "fisher_merge", "fedfisher_diag", "gradient_matching", "ensemble"),
        ),
        ("texts", "small_transformer", ("fedfisher_kfac", "mats")),
        ("texts", "bag", ("fisher_merge", "fedfisher_full")),
        ("texts", "one_hot", ("fedavg", "fisher_merge", "fedfisher_kfac", "otfusion")),
        ("table", "mlp", ("fedavg", "fisher_merge", "fedfisher_diag", "fedfisher_kfac", "otfusion", "pfnm", "ma_echo")),
        ("table", "places", ("fedavg", "regmean", "otfusion", "fedfisher_kfac", "ma_echo")),
        ("banners", "tiny", ("fedavg", "fedfisher_kfac", "ma_echo", "otfusion", "dense")),
    ],
)
def test_networks_on_any_inputs_are_trained_and_aggregated(
    arranged_workplace: Path, dataset: str, model: str, methods: tuple[str, ...]
) -> None:
    chosen: dict[str, dict[str, Any]] = {name: {} for name in methods}
    if "dense" in chosen:
        chosen["dense"] = {"epochs": 2, "generator_steps": 2, "images": 8, "latent": 5}
    rows = walk_tiny(
        arranged_workplace,
        chosen,
        data={"dataset": dataset},
        model={"name": model},
        partition={"alpha": [50.0]},
        train={"epochs": 20},
    ).rows
    assert set(rows) == set(methods)
    # A third would be chance, which images of a generator that is hardly trained are not above.
    assert {name: row.accuracy for name, row in rows.items() if name != "dense" and row.accuracy < 0.5} == {}


@pytest.mark.parametrize(
    ("dataset", "model", "bits"),
    [("texts", "bag", 5 * 4 + 2), ("table", "mlp", 6 * 32 + 2), ("banners", "tiny", 54 * 8 + 2)],
)
def test_to_train_centrally_costs_what_the_examples_take(
    arranged_workplace: Path, dataset: str, model: str, bits: int
) -> None:
    rows = walk_tiny(arranged_workplace, {"centralised": {}}, data={"dataset": dataset}, model={"name": model}).rows
    assert rows["centralised"].upload_bits == tiny.TRAIN * bits


@pytest.mark.parametrize(("dataset", "dtype"), [("texts", torch.int64), ("table", torch.float64)])
def test_decoded_examples_keep_their_type(arranged_workplace: Path, dataset: str, dtype: torch.dtype) -> None:
    model = {"name": "bag" if dataset == "texts" else "mlp"}
    found = load_data(walk_tiny(arranged_workplace, {"fedavg": {}}, data={"dataset": dataset}, model=model).data)
    assert found.train.inputs.dtype == dtype
    assert found.train.inputs.shape == (tiny.TRAIN, *found.spec.inputs.shape)


@pytest.mark.parametrize(
    ("dataset", "model", "method", "message"),
    [
        (
            "texts",
            "bag",
            "fedlpa",
            "method 'fedlpa' can't serve model 'bag': layer 'embedding' has type Embedding, and",
        ),
        ("texts", "bag", "dense", "method 'dense' can't serve model 'bag': the generator takes images"),
        ("table", "lenet", "fedavg", "model 'lenet' takes images; the data has 6 numbers"),
        ("texts", "mlp", "fedavg", "model 'mlp' takes images and numbers; the data has 5 tokens of 12"),
        ("table", "places", "ma_echo_official", "can't serve model 'places': layer 'each', a Linear, sees inputs"),
        (
            "texts",
            "gru",
            "fisher_merge",
            "method 'fisher_merge' can't serve model 'gru': layer 'gru' has type GRU; Fisher bl",
        ),
        ("texts", "gru", "fedfisher_kfac", "method 'fedfisher_kfac' can't serve model 'gru': layer 'gru' has type GRU"),
        (
            "texts",
            "transformer",
            "ma_echo",
            "'transformer': layer 'tokens' has type Embedding; projections",
        ),
        ("texts", "transformer", "gaussian_distillation", "method 'gaussian_distillation' can't serve model 'tran"),
        ("texts", "gru", "mixture_distillation", "method 'mixture_distillation' can't serve model 'gru'"),
        ("table", "transformer", "fedavg", "model 'transformer' takes tokens; the data has 6 numbers"),
    ],
)
def test_what_can_not_be_done_is_refused_before_any_work(
    arranged_workplace: Path, dataset: str, model: str, method: str, message: str
) -> None:
    settings = tiny.tiny_settings(
        arranged_workplace, data={"dataset": dataset}, model={"name": model}, methods={method: {}}
    )
    with pytest.raises(InputError) as caught:
        check_federations(settings)
    assert message in str(caught.value)
    assert not (arranged_workplace / "artifacts").exists()


NNGEOMETRY = {"fisher": {"backend": "nngeometry"}}
PRIVATE = {"privacy": {"epsilon": 8.0}}


@pytest.mark.parametrize(
    ("dataset", "model", "changes", "message"),
    [
        ("texts", "bag", NNGEOMETRY, "fisher.backend='nngeometry', model 'bag': layer 'embedding' has type Embedding"),
        (
            "table",
            "places",
            NNGEOMETRY,
            "fisher.backend='nngeometry', model 'places': layer 'each', a Linear, sees inputs",
        ),
        ("texts", "gru", PRIVATE, "model 'gru' with privacy: layer 'gru' has type GRU"),
        ("texts", "transformer", PRIVATE, "model 'transformer' with privacy: layer 'tokens' has type Embedding"),
        (
            "table",
            "places",
            PRIVATE,
            "model 'places' with privacy: layer 'each', a Linear, sees inputs of shape (1, 2, 3)",
        ),
    ],
)
def test_what_library_and_privacy_lack_is_refused_before_any_work(
    arranged_workplace: Path, dataset: str, model: str, changes: dict[str, Any], message: str
) -> None:
    method = "fedavg" if model in ("gru", "transformer") else "fisher_merge"
    chosen = {"data": {"dataset": dataset}, "model": {"name": model}, "methods": {method: {}}, **changes}
    with pytest.raises(InputError) as caught:
        check_federations(tiny.tiny_settings(arranged_workplace, **chosen))
    assert message in str(caught.value)


def test_a_network_on_tokens_is_planned(arranged_workplace: Path) -> None:
    settings = tiny.tiny_settings(arranged_workplace, data={"dataset": "texts"}, model={"name": "bag"})
    assert check_federations(settings).all[0].spec.inputs == arranged.SEQUENCES


def test_batch_normalisation_is_refused_before_any_work(arranged_workplace: Path) -> None:
    settings = tiny.tiny_settings(arranged_workplace, data={"dataset": "banners"}, model={"name": "normalised"})
    with pytest.raises(InputError, match=r"model 'normalised': layer 'norm' has type BatchNorm2d, .*: GroupNorm"):
        check_federations(settings)


def test_sizes_of_images_are_no_setting_of_a_table(arranged_workplace: Path) -> None:
    settings = tiny.tiny_settings(
        arranged_workplace, data={"dataset": "table", "image_sizes": "any"}, model={"name": "mlp"}
    )
    with pytest.raises(
        InputError,
        match=r"data\.image_sizes='any', but no images are among data\.dataset=\['table'\]; allowed: 'same', or data",
    ):
        check_federations(settings)
