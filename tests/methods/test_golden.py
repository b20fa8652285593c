"""Accuracies on the embedded digits, pinned so that a change of a method shows even where its properties hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedfisher_core.configuration import validate
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from tests import walked

TOLERANCE = 0.03
"""Machines and libraries round differently, which moves a few of the 1000 test digits; a wrong factor moves more."""

METHODS: Mapping[str, dict[str, Any]] = {
    "fedavg": {},
    "fisher_merge": {},
    "regmean": {},
    "otfusion": {},
    "pfnm": {},
    "pfnm_original": {"sigma": [0.1], "sigma0": [10.0], "gamma": [50.0]},
    "dense": {"epochs": 2, "generator_steps": 3, "images": 32},
    "ma_echo": {},
    "ma_echo_official": {},
    "ma_echo_ot": {},
    "fedfish": {},
    "fedfisher_diag": {},
    "fedfisher_kfac": {},
    "gaussian_distillation": {"wire": {"budget": "none"}},
    "mixture_distillation": {"wire": {"budget": "none"}},
    "fedavg_by_holders": {},
    "otfusion_by_holders": {},
    "ties": {},
    "dare": {},
    "iso_c": {},
    "tsv_m": {},
    "wudi": {},
    "gradient_matching": {},
    "mats": {},
    "fedlpa": {},
    "fedbens": {},
    "ensemble": {},
    "ensemble_logits": {},
    "ensemble_by_labels": {},
    "ensemble_by_holders": {},
    "local_mean": {},
    "best_local": {},
    "centralised": {},
}
OF_FEATURES = ("fedcgs", "gh_lda", "fedpft")
"""They take features of which a network is one layer; here, pixels."""
GOLDEN: Mapping[str, float] = {
    "fedcgs": 0.779,
    "gh_lda": 0.721,
    "fedpft": 0.831,
    "fedavg": 0.751,
    "fisher_merge": 0.834,
    "regmean": 0.781,
    "otfusion": 0.738,
    "pfnm": 0.886,
    "pfnm_original": 0.858,
    "dense": 0.733,
    "ma_echo": 0.791,
    "ma_echo_official": 0.776,
    "ma_echo_ot": 0.791,
    "fedfish": 0.825,
    "fedfisher_diag": 0.834,
    "fedfisher_kfac": 0.845,
    "gaussian_distillation": 0.904,
    "mixture_distillation": 0.919,
    "fedavg_by_holders": 0.848,
    "otfusion_by_holders": 0.848,
    "ties": 0.824,
    "dare": 0.755,
    "iso_c": 0.744,
    "tsv_m": 0.567,
    "wudi": 0.721,
    "gradient_matching": 0.834,
    "mats": 0.827,
    "fedlpa": 0.826,
    "fedbens": 0.851,
    "ensemble": 0.89,
    "ensemble_logits": 0.786,
    "ensemble_by_labels": 0.928,
    "ensemble_by_holders": 0.887,
    "local_mean": 0.675,
    "best_local": 0.718,
    "centralised": 0.958,
}


def accuracies_of(methods: Mapping[str, Any], model: Mapping[str, Any], store: Path) -> dict[str, float]:
    torch.set_num_threads(1)
    content = {
        "seeds": 0,
        "data": {"dataset": "mnist5k", "validation_size": 200},
        "partition": {"alpha": 0.2, "clients": 3},
        "model": model,
        "train": {"epochs": 4},
        "methods": methods,
        "run": {"device": "cpu", "store": str(store)},
    }
    rows = walked.walk(validate(BenchmarkSettings, content)).rows
    return {label: row.accuracy for label, row in rows.items()}


@pytest.fixture(scope="module")
def accuracies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    store = tmp_path_factory.mktemp("store") / "artifacts"
    of_features = accuracies_of({name: {} for name in OF_FEATURES}, {"name": "linear", "bias": True}, store)
    return accuracies_of(METHODS, {"name": "compact"}, store) | of_features


@pytest.mark.parametrize("name", [*METHODS, *OF_FEATURES])
def test_the_accuracy_is_what_it_was(name: str, accuracies: dict[str, float]) -> None:
    assert accuracies[name] == pytest.approx(GOLDEN[name], abs=TOLERANCE)
