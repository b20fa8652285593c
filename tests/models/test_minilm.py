"""MiniLM-L6 next to numbers of Hugging Face's network, and its adapters."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedfisher_core.client.statistics.gram import Gram
from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.data.layouts import Images, Texts
from fedfisher_core.data.tensors import Examples
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.model_checks import require_networks
from fedfisher_core.federation.start import read_weights
from fedfisher_core.fisher.blocks import Approximation
from fedfisher_core.models.spec import Lora, ModelSpec
from fedfisher_core.models.trunks.trunk import TextTrunk, load_trunk, trunks
from fedfisher_core.settings import PretrainedSettings
from tests import tiny
from tests.models.trunks.installed import weights_of

# "a gorgeous , witty , seductive movie", with padding, and a text that was cut to 16 tokens.
SHORT = [101, 1037, 9882, 1010, 25591, 1010, 23182, 3185, 102]
TOKENS = torch.tensor(
    [
        SHORT + [0] * 7,
        [101, 1996, 5436, 2003, 2498, 2021, 15635, 15725, 18856, 17322, 2015, 2013, 2707, 2000, 3926, 102],
    ]
)
# Of transformers 5.24.0's BertModel with these weights, whose last states are averaged over tokens without padding.
FIRST_FEATURES = torch.tensor(
    [
        [-0.6314684749, -0.2866691947, -0.1820826232, 0.1376689225, -0.4469717741, -0.1575657129],
        [-0.0414343923, -0.0422452725, 0.3247191012, -0.2124083483, 0.4129346609, 0.2039822340],
    ]
)
NORMS = torch.tensor([5.577946663, 4.444226265])

pytestmark = pytest.mark.usefixtures("_weights")


@pytest.fixture(scope="module")
def _weights() -> None:
    weights_of("minilm")


def spec_of(length: int = 16, *, vocabulary: int = 30_522, padding: int = 0, lora: Lora | None = None) -> ModelSpec:
    return ModelSpec("minilm/lora", Texts(length, vocabulary, padding=padding), 3, bias=True, lora=lora or Lora())


def start(spec: ModelSpec) -> dict[str, Tensor]:
    return spec.initialise(torch.Generator().manual_seed(0))


def test_features_are_those_of_hugging_face() -> None:
    with torch.inference_mode():
        features = load_trunk(trunks.get("minilm"))(TOKENS)
    torch.testing.assert_close(features[:, :6], FIRST_FEATURES, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features.norm(dim=1), NORMS, rtol=1e-4, atol=1e-4)


def test_padding_changes_no_feature() -> None:
    network = load_trunk(trunks.get("minilm"))
    torch.testing.assert_close(network(torch.tensor([SHORT])), network(TOKENS[:1]), rtol=1e-4, atol=1e-5)


def test_the_whole_network_starts_from_the_encoder_and_sends_all_of_it() -> None:
    spec = replace(spec_of(), name="minilm")
    # All of the file but a pooling layer.
    assert sum(shape.numel() for shape in spec.shapes().values()) == 22_713_216 - 384 * 385 + 3 * 385
    heads = ("head.weight", "head.bias")
    given = read_weights(PretrainedSettings(weights="minilm", drawn=heads), spec)
    network = spec.load({**start(spec), **given}).eval()
    with torch.inference_mode():
        torch.testing.assert_close(network(TOKENS), network.head(load_trunk(trunks.get("minilm"))(TOKENS)))


@pytest.mark.parametrize("name", ["minilm", "minilm/lora"])
def test_statistics_of_a_padded_text_are_those_of_the_text(name: str) -> None:
    spec = replace(spec_of(lora=Lora(rank=2)), name=name)
    weights = start(spec)
    # Where B is zero, as at first, A has no gradient.
    drawn = {key: torch.randn(one.shape, generator=torch.Generator().manual_seed(1)) for key, one in weights.items()}
    weights |= {key: 0.1 * one for key, one in drawn.items() if "lora_B" in key}
    network = spec.load(weights).eval()
    alone, padded = (
        replace(
            tiny.local(network, Examples(texts, torch.zeros(1, dtype=torch.int64)), memory_mib=1024),
            approximations=frozenset({Approximation.KFAC}),
        )
        for texts in (torch.tensor([SHORT]), TOKENS[:1])
    )
    for kind in (KFAC, Gram):
        whole = kind.compute(alone).tensors
        for name, tensor in kind.compute(padded).tensors.items():
            assert whole[name].norm() > 0, name
            assert (tensor - whole[name]).norm() < 1e-4 * whole[name].norm(), name


def test_clients_train_and_send_adapters_and_head_alone() -> None:
    spec = spec_of(lora=Lora(rank=2, targets=("query", "intermediate")))
    spec.require_weights_only()
    require_networks([spec])
    sizes = {name: tensor.numel() for name, tensor in start(spec).items()}
    assert sum(sizes.values()) == 6 * (2 * (384 + 384) + 2 * (384 + 1536)) + 3 * 384 + 3
    assert spec.learnt() == sizes.keys()


def test_adapters_add_their_product_to_the_outputs_of_their_layers() -> None:
    spec = spec_of(lora=Lora(rank=2, alpha=6.0, targets=("value", "output")))
    weights = start(spec)
    encoder = load_trunk(trunks.get("minilm"))
    untouched = spec.load(weights)
    torch.testing.assert_close(untouched(TOKENS), untouched.head(encoder(TOKENS)))
    drawn = {
        name: 0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(1)) for name, one in weights.items()
    }
    adapted = spec.load(drawn)
    for key, place in adapted.places.items():
        product = drawn[f"lora_B.{key}.weight"] @ drawn[f"lora_A.{key}.weight"]
        encoder.get_submodule(place).weight.data.add_(3 * product)
    torch.testing.assert_close(adapted(TOKENS), adapted.head(encoder(TOKENS)), rtol=1e-3, atol=1e-3)


def test_with_b_alone_all_clients_have_one_a() -> None:
    spec = spec_of(lora=Lora(rank=2, targets=("key",), trained="b"))
    spec.require_weights_only()
    require_networks([spec])
    assert list(start(spec)) == [*(f"lora_B.{block}_key.weight" for block in range(6)), "head.weight", "head.bias"]
    # What two clients add is linear in B, so that the mean of B is that of the products.
    network = spec.load(start(spec))
    drawn = torch.randn(384, 2, generator=torch.Generator().manual_seed(0))
    adapt = network.adapter("0_key")
    seen = torch.randn(1, 3, 384, generator=torch.Generator().manual_seed(1))
    network.lora_B["0_key"].weight.data.copy_(drawn)
    once = adapt(seen)
    network.lora_B["0_key"].weight.data.mul_(3)
    torch.testing.assert_close(adapt(seen), 3 * once)
    assert once.abs().sum() > 0


def test_statistics_see_no_padding() -> None:
    spec = spec_of(lora=Lora(rank=2))
    network = spec.load(start(spec))
    seen: list[Tensor] = []
    network.lora_A["3_query"].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    network(TOKENS)
    assert (seen[0] == 0).all(2)[0].tolist() == [False] * 9 + [True] * 7


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (spec_of(513), r"trunk 'minilm': data\.text\.length=513; allowed: up to 512, its positions"),
        (spec_of(vocabulary=8), r"data\.text\.tokenizer=minilm has 8 tokens, .*; allowed: 30522 tokens and padding 0"),
        (spec_of(padding=1), r"padding is token 1; allowed: 30522 tokens and padding 0"),
        (spec_of(lora=Lora(targets=("keys",))), r"targets \['keys'\]; allowed: query, key, value, attention_output"),
        (replace(spec_of(513), name="minilm"), r"trunk 'minilm': data\.text\.length=513; allowed: up to 512"),
        (replace(spec_of(), name="minilm", widths=(8,)), r"model 'minilm': widths=\(8,\); .* are fixed: allowed: none"),
        (ModelSpec("minilm/lora", Images(1, 2, 2), 2), r"takes texts; the data has 1 x 2 x 2; allowed: data of texts"),
    ],
)
def test_what_does_not_fit_is_refused(spec: ModelSpec, message: str) -> None:
    with pytest.raises(InputError, match=message):
        spec.skeleton()


def test_the_trunk_names_what_it_takes() -> None:
    trunk = trunks.get("minilm")
    assert isinstance(trunk, TextTrunk)
    with pytest.raises(InputError, match="trunk 'minilm' takes texts; the data has 1 x 2 x 2"):
        trunk.require(Images(1, 2, 2))
