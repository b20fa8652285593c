"""Every method of the project on made-up clients, with settings that take a moment."""

from typing import Any

import torch

from fedfisher_core.client.statistics.label_counts import LabelCounts
from fedfisher_core.client.uploads import Upload
from fedfisher_core.methods.method import methods
from fedfisher_core.methods.server import Aggregate
from fedfisher_core.models.spec import ModelSpec
from tests import tiny
from tests.methods.clients import aggregate, made_up_uploads

QUICK: dict[str, dict[str, Any]] = {
    "ccvr": {"draws": 20, "epochs": 2},
    "co_boosting": {"epochs": 2, "generator_steps": 2, "images": 8, "learning_rate": 0.5},
    "dense": {"epochs": 2, "generator_steps": 2, "images": 8},
    "fens": {"rounds": 5, "server_rate": 0.05},
    # A tiny network's budget has no room for three networks, or for the moments of its inputs.
    "fedbens_mixture": {"steps": 40, "wire": {"budget": "none"}},
    "gaussian_distillation": {"steps": 3, "samples": 4, "wire": {"budget": "none"}},
    "kfac_distillation": {"steps": 3, "samples": 4},
    "mixture_distillation": {"steps": 3, "samples": 4, "wire": {"budget": "none"}},
    "summed_moments": {"steps": 3, "samples": 8, "wire": {"budget": "none"}},
    # Factors that are drawn at random are much larger than those of networks.
    "fedlpa": {"rate": 0.01},
}
NAMES = sorted(name for name in methods if methods.get(name).function.__module__.startswith("fedfisher_core."))
# What they are sent exists for networks of one layer.
OF_FEATURES = ("afl", "fedcgs", "gh_lda", "fedpft")
# They merge the products of adapters.
OF_ADAPTERS = (
    "dare_products",
    "fedex_lora",
    "fedfisher_kfac_products",
    "flexlora",
    "knots",
    "regmean_products",
    "ties_products",
)
# Its inputs are drawn from what a first linear layer sees.
OF_ROWS = ("kfac_distillation",)


def spec_of(name: str) -> ModelSpec:
    if name in OF_ROWS:
        return tiny.ROWS
    if name in OF_ADAPTERS:
        return tiny.ADAPTED
    return tiny.LINEAR_WITH_BIAS if name in OF_FEATURES else tiny.TINY


def run(name: str, uploads: list[Upload], **settings: Any) -> Aggregate:
    return aggregate(name, uploads, spec=spec_of(name), **(QUICK.get(name, {}) | settings))


def clients(name: str, *, zero_rows: bool = False, empty_class: bool = False) -> list[Upload]:
    spec = spec_of(name)
    parameters = [tiny.initial(spec, seed=seed) for seed in range(3)]
    for index, one in enumerate(parameters):
        if zero_rows and spec is tiny.TINY:
            # A filter and a hidden unit that are dead in all clients, and one that is dead in one.
            one["conv.weight"][0] = 0
            one["hidden.weight"][0] = 0
            one["hidden.weight"][1 + index] = 0
    uploads = made_up_uploads(parameters, spec)
    if empty_class:
        counts = torch.tensor([[9.0, 0, 0], [3, 4, 0], [0, 1, 0]])
        for one, row in zip(uploads, counts, strict=True):
            one.statistics[LabelCounts] = LabelCounts({"counts": row})  # type: ignore[index]
    return uploads
