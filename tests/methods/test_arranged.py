"""Which methods serve networks on vectors and tokens, and which of them refuse a network, and why."""

import re
from dataclasses import replace

import pytest

from fedfisher_core.engine.errors import InputError
from fedfisher_core.models.spec import ModelSpec
from tests import arranged
from tests.methods.clients import bind_written
from tests.methods.every import NAMES, OF_ADAPTERS, OF_FEATURES

BAG = ModelSpec("bag", arranged.SEQUENCES, classes=3)
ONE_HOT = ModelSpec("one_hot", arranged.SEQUENCES, classes=3)
PLACES = ModelSpec("places", arranged.NUMBERS, classes=3)
ROWS = ModelSpec("mlp", arranged.NUMBERS, classes=3, widths=(7, 6, 5))

GRU = ModelSpec("gru", arranged.SEQUENCES, classes=3, widths=(4, 6))
TRANSFORMER = ModelSpec("transformer", arranged.SEQUENCES, classes=3, widths=(4, 6))

EMBEDDING = "layer '{embedding}' has type Embedding"
FEATURES = "the layers with weights are {embedding}, "
OF_IMAGES = ("co_boosting", "dense")
# Diagonal and whole Fishers exist for embeddings and normalisations, and for no recurrent layer.
FISHERS = ("fedfisher_diag", "fedfisher_full", "fisher_merge", "gradient_matching")
# So has K-FAC.
FACTORS = ("fedfisher_kfac", "mats", "fedbens")
REFUSED = {
    "gaussian_distillation": "statistic 'input_moments' takes images and numbers; the data has 5 tokens of 12",
    "kfac_distillation": EMBEDDING,
    "mixture_distillation": "statistic 'class_moments' takes images and numbers; the data has 5 tokens of 12",
    "summed_moments": "statistic 'input_sums' takes images and numbers; the data has 5 tokens of 12",
    "fedlpa": f"{EMBEDDING}, and its input factor is diagonal",
    "fedbens_mixture": f"{EMBEDDING}, and its input factor is diagonal",
    "ma_echo": EMBEDDING,
    "ma_echo_official": EMBEDDING,
    "ma_echo_ot": EMBEDDING,
    "otfusion": EMBEDDING,
    "otfusion_by_holders": EMBEDDING,
    "pfnm": EMBEDDING,
    "pfnm_original": EMBEDDING,
    **dict.fromkeys(OF_IMAGES, "the generator takes images; the data has 5 tokens of 12"),
    **dict.fromkeys(OF_FEATURES, FEATURES),
    **dict.fromkeys(OF_ADAPTERS, "has no adapters; allowed: networks with 'lora_A' and 'lora_B'"),
}
OF_MOMENTS = ("gaussian_distillation", "mixture_distillation", "summed_moments")


@pytest.mark.drawn(20)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("spec", "embedding"), [(BAG, "embedding"), (TRANSFORMER, "tokens")], ids=["bag", "transformer"]
)
def test_every_method_serves_an_embedding_or_says_why_not(name: str, spec: ModelSpec, embedding: str) -> None:
    # So few weights leave no bits for three networks, or for an embedding's factors.
    written = {"wire": {"budget": "none"}} if name in FACTORS or name == "fedbens_mixture" else {}
    if name not in REFUSED:
        bind_written(name, written, [spec])
        return
    reason = re.escape(REFUSED[name].format(embedding=embedding))
    with pytest.raises(InputError, match=f"method '{name}' can't serve model '{spec.name}': .*{reason}"):
        bind_written(name, written, [spec])


@pytest.mark.drawn(20)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_serves_a_recurrent_layer_or_says_why_not(name: str) -> None:
    if name not in REFUSED and name not in FISHERS + FACTORS:
        bind_written(name, {}, [GRU])
        return
    reason = (
        "layer '(gru' has type GRU|embedding' has type Em.*)|the generator takes images|weights are embedding, gru, "
        "|takes images and numbers|has no adapters"
    )
    with pytest.raises(InputError, match=f"method '{name}' can't serve model 'gru': .*({reason})"):
        bind_written(name, {}, [GRU])


def test_what_averages_weights_serves_all() -> None:
    assert {"fedavg", "fedfish", "regmean", "ensemble", "centralised"} <= set(NAMES) - {*REFUSED, *FISHERS, *FACTORS}


@pytest.mark.drawn(20)
@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if name not in ("pfnm", "pfnm_original", *OF_IMAGES, *OF_FEATURES, *OF_ADAPTERS)],
)
@pytest.mark.parametrize("spec", [ROWS, ONE_HOT], ids=lambda spec: spec.name)
def test_methods_of_linear_layers_serve_them_on_any_inputs(name: str, spec: ModelSpec) -> None:
    if name in OF_MOMENTS and spec is ONE_HOT:
        with pytest.raises(InputError, match=r"_(moments|sums)' takes images and numbers; the data has 5 tokens of 12"):
            bind_written(name, {}, [spec])
        return
    if (name, spec) == ("kfac_distillation", ONE_HOT):
        with pytest.raises(
            InputError, match="the first layer, 'head', has type Linear, which does not see inputs as a whole"
        ):
            bind_written(name, {}, [spec])
        return
    # So few weights leave no bits for three networks.
    written = {"wire": {"budget": "none"}} if name == "fedbens_mixture" else {}
    bind_written(name, written, [spec])


def test_projections_serve_layers_that_see_sequences_but_those_of_the_official_code() -> None:
    bind_written("ma_echo", {}, [PLACES])
    message = (
        r"method 'ma_echo_official' can't serve model 'places': layer 'each', a Linear, sees inputs of .* \(1, 2, 3\)"
    )
    with pytest.raises(InputError, match=message):
        bind_written("ma_echo_official", {}, [PLACES])


@pytest.mark.parametrize("name", OF_FEATURES)
def test_methods_of_features_serve_one_layer_on_any_inputs(name: str) -> None:
    bind_written(name, {}, [replace(ONE_HOT, bias=True)])
    with pytest.raises(InputError, match=f"method '{name}' can't serve model 'mlp': .*allowed: one Linear alone"):
        bind_written(name, {}, [ROWS])
