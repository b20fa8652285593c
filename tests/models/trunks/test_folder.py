"""Encoders in a user's folder, next to transformers' own numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedfisher_core.data.importing import import_texts
from fedfisher_core.data.layouts import Images, Texts
from fedfisher_core.data.texts import texts_layout
from fedfisher_core.engine.errors import InputError
from fedfisher_core.federation.model_checks import require_networks
from fedfisher_core.models.spec import Lora, ModelSpec, models
from fedfisher_core.models.trunks.trunk import load_trunk, parts_of_name, split_name, trunks
from tests.models.trunks import tiny_folder
from tests.models.trunks.installed import weights_of
from tests.walked import Walked, walk_tiny

TOKENS = torch.tensor([[0, 4, 5, 7, 2, 1, 1], [0, 4, 6, 6, 6, 7, 2]])
ALL = ("query", "key", "value", "attention_output", "intermediate", "output")
METHODS = {"fedavg": {}, "flexlora": {}, "regmean_products": {"off_diagonal": [0.9]}, "fedfisher_kfac_products": {}}


def states(network: torch.nn.Module, tokens: Tensor) -> Tensor:
    """The mean of the last states over positions without padding."""
    counted = (tokens != tiny_folder.PADDING)[..., None]
    last = network(input_ids=tokens, attention_mask=counted[..., 0].long()).last_hidden_state
    return (last * counted).sum(1) / counted.sum(1)


def spec_of(folder: Path, *, length: int = 7, lora: Lora | None = None) -> ModelSpec:
    return ModelSpec(f"folder:{folder}/lora", Texts(length, 8, padding=1), 3, bias=True, lora=lora or Lora(rank=2))


def start(spec: ModelSpec) -> dict[str, Tensor]:
    return spec.initialise(torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_folder.write(tmp_path / "own")
    return tmp_path / "own"


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
@pytest.mark.parametrize("kind", tiny_folder.KINDS)
def test_features_are_means_of_the_last_states(tmp_path: Path, kind: str, head: str) -> None:
    network = tiny_folder.write(tmp_path, kind, head=head)
    trunk = trunks.get(f"folder:{tmp_path}")
    with torch.inference_mode():
        features = load_trunk(trunk)(TOKENS)
        expected = states(getattr(network, network.base_model_prefix, network), TOKENS)
    assert features.shape == (2, trunk.features)
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-5)


def test_the_folder_of_minilm_makes_the_features_of_minilm(tmp_path: Path) -> None:
    trunk = trunks.get(f"folder:{weights_of('minilm').parent}")
    layout = texts_layout("minilm", 16)
    trunk.require(layout)
    tokens = layout.drawn(8, torch.Generator().manual_seed(0))
    tokens[3, 5:] = 0
    with torch.inference_mode():
        ours, theirs = load_trunk(trunks.get("minilm"))(tokens), load_trunk(trunk)(tokens)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


def test_adapters_in_the_folder_of_minilm_are_those_in_minilm() -> None:
    inputs, lora = Texts(16, 30_522, padding=0), Lora(rank=2, targets=ALL)
    own = ModelSpec("minilm/lora", inputs, 3, bias=True, lora=lora)
    other = ModelSpec(f"folder:{weights_of('minilm').parent}/lora", inputs, 3, bias=True, lora=lora)
    weights = start(own)
    assert {name: one.shape for name, one in start(other).items()} == {name: one.shape for name, one in weights.items()}
    generator = torch.Generator().manual_seed(1)
    drawn = {name: 0.05 * torch.randn(one.shape, generator=generator) for name, one in weights.items()}
    tokens = inputs.drawn(4, generator)
    with torch.inference_mode():
        torch.testing.assert_close(other.load(drawn)(tokens), own.load(drawn)(tokens), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", tiny_folder.KINDS)
def test_adapters_add_their_product_to_the_outputs_of_their_layers(tmp_path: Path, kind: str) -> None:
    network = tiny_folder.write(tmp_path, kind)
    spec = spec_of(tmp_path, lora=Lora(rank=2, alpha=6.0, targets=ALL))
    generator = torch.Generator().manual_seed(1)
    drawn = {name: 0.3 * torch.randn(one.shape, generator=generator) for name, one in start(spec).items()}
    adapted = spec.load(drawn)
    assert len(adapted.places) == 2 * len(ALL)
    without = states(network, TOKENS)
    for key, place in adapted.places.items():
        product = drawn[f"lora_B.{key}.weight"] @ drawn[f"lora_A.{key}.weight"]
        network.get_submodule(place).weight.data.add_(3 * product)
    expected = adapted.head(states(network, TOKENS))
    torch.testing.assert_close(adapted(TOKENS), expected, rtol=1e-4, atol=1e-4)
    assert (expected - adapted.head(without)).abs().max() > 0.1


def test_before_training_adapters_change_nothing(folder: Path) -> None:
    spec = spec_of(folder, lora=Lora(rank=2, trained="b"))
    require_networks([spec])
    assert spec.skeleton()(TOKENS.to("meta")).shape == (2, 3)
    network = spec.load(start(spec))
    torch.testing.assert_close(network(TOKENS), network.head(load_trunk(trunks.get(f"folder:{folder}"))(TOKENS)))


def test_threads_do_not_see_the_adapters_of_others(folder: Path) -> None:
    spec = spec_of(folder)
    generator = torch.Generator().manual_seed(1)
    weights = [{name: torch.randn(one.shape, generator=generator) for name, one in start(spec).items()} for _ in "ab"]
    networks = [spec.load(one) for one in weights]
    with torch.no_grad():
        alone = [network(TOKENS) for network in networks]
        both, equal = Barrier(2), [False, False]

        def compute(number: int) -> None:
            both.wait()
            with torch.no_grad():
                equal[number] = all(torch.equal(networks[number](TOKENS), alone[number]) for _ in range(100))

        threads = [Thread(target=compute, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert equal == [True, True]


def test_a_name_is_split_at_its_last_separator(folder: Path) -> None:
    assert parts_of_name(f"folder:{folder}/linear") == (f"folder:{folder}", "linear")
    trunk, name = split_name(f"folder:{folder}/linear")
    assert (trunk, name) == (trunks.get(f"folder:{folder}"), "linear")
    assert split_name(f"folder:{folder}/lora") == (None, f"folder:{folder}/lora")


def test_the_same_files_are_the_same_network_in_any_folder(folder: Path) -> None:
    moved = folder.parent / "moved"
    shutil.copytree(folder, moved)
    first, second = spec_of(folder), spec_of(moved)
    assert first.identity == second.identity
    assert str(folder.parent) not in first.identity
    assert trunks.get(f"folder:{folder}").described == trunks.get(f"folder:{moved}").described
    weights = load_file(moved / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][0, 0] += 1
    save_file(weights, moved / "model.safetensors", {"format": "pt"})
    assert first.identity != spec_of(moved).identity
    assert models.get(second.name) != models.get(first.name)


def change(**keys: object) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | keys
        (folder / "config.json").write_text(json.dumps(config))

    return changed


def rename(before: str, after: str) -> Callable[[Path], None]:
    return lambda folder: (folder / before).rename(folder / after) and None


def without(name: str) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        del weights[name]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return changed


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (change(auto_map={"AutoModel": "own.Own"}), "has auto_map=.*, which runs code of its own; allowed: encoders"),
        (change(trust_remote_code=True), "has trust_remote_code=True, which runs code of its own; allowed"),
        (change(model_type="gpt2"), "has model_type='gpt2'; allowed: bert, distilbert, roberta, xlm-roberta"),
        (change(model_type=["bert"]), r"has model_type=\['bert'\]; allowed: bert"),
        (change(is_decoder=True), "has is_decoder=True, which is no plain encoder"),
        (change(quantization_config={"bits": 4}), "has quantization_config=.*, which is no plain encoder"),
        (change(position_embedding_type="relative_key"), "has position_embedding_type='relative_key'; allowed: absol"),
        (change(hidden_size="8"), r"config.json (has sizes|can't be used: ).*; allowed: "),
        (change(pad_token_id=None), r"has pad_token_id=None; allowed: whole numbers from 0"),
        (change(hidden_act="nonsense"), r"config.json can't be used: .*nonsense.*; allowed: "),
        (change(hidden_size=0), r"config.json can't be used: .*; allowed: "),
        (change(hidden_size=16), "the weights in .* do not fit: "),
        (change(num_hidden_layers=3), "the weights in .* do not fit: lacks encoder.layer.2.attention"),
        (change(num_hidden_layers=1), "the weights in .* do not fit: has encoder.layer.1.attention"),
        (without("encoder.layer.0.output.dense.weight"), "do not fit: lacks encoder.layer.0.output.dense.weight"),
        (rename("model.safetensors", "pytorch_model.bin"), "has no model.safetensors; pytorch_model.bin may hold code"),
        (rename("model.safetensors", "x.safetensors"), "has no model.safetensors; allowed: weights as safetensors"),
        (rename("tokenizer.json", "vocab.json"), "has no tokenizer.json; allowed: config.json, model.safetensors and"),
        (
            lambda folder: (folder / "config.json").write_text("{"),
            "config.json can't be read: .*; allowed: what transf",
        ),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "is of adapters, and not read; allowed"),
        (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "weights in several files; allow"),
        (shutil.rmtree, "own is no folder; allowed: folder:PATH/NAME, such as folder:bert/linear"),
    ],
)
def test_other_folders_are_refused_in_one_line(folder: Path, harm: Callable[[Path], object], message: str) -> None:
    harm(folder)
    with pytest.raises(InputError, match=message) as refused:
        load_trunk(trunks.get(f"folder:{folder}"))
    assert str(refused.value).startswith(f"trunk 'folder:{folder}'")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (Texts(13, 8, padding=1), r"data\.text\.length=13; allowed: up to 12, its positions"),
        (Texts(7, 11, padding=1), r"has 11 tokens, and padding is token 1; allowed: up to 10 tokens and padding 1"),
        (Texts(7, 8, padding=0), r"padding is token 0; allowed: up to 10 tokens and padding 1"),
        (
            Texts(7, 8, padding=1, digest="0"),
            r"tokenizer=minilm is another than the folder's; allowed: its tokenizer.json",
        ),
        (Images(1, 2, 2), "takes texts; the data has 1 x 2 x 2; allowed: data of texts"),
    ],
)
def test_examples_that_do_not_fit_are_refused(folder: Path, inputs: Texts | Images, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelSpec(f"folder:{folder}/lora", inputs, 3).skeleton()
    with pytest.raises(InputError, match=message):
        trunks.get(f"folder:{folder}").require(inputs)


def run(workplace: Path, folder: Path, model: str, methods: dict[str, dict[str, object]], **of_model: object) -> Walked:
    """Do the work of a benchmark on a few reviews, by a network in a folder's encoder or on its features."""
    rows = [("a good film", 5), ("a bad bad bad film", 1), ("good good", 5), ("bad film", 1)] * 5
    (workplace / "reviews.csv").write_text("review,stars\n" + "\n".join(f"{text},{label}" for text, label in rows))
    own = Path("reviews.parquet")
    import_texts(workplace / "reviews.csv", own, text="review", label="stars", test=0.2)
    return walk_tiny(
        workplace,
        methods,
        data={
            "dataset": str(own),
            "validation_size": 0,
            "text": {"tokenizer": str(folder / "tokenizer.json"), "length": 7},
        },
        model={"name": f"folder:{folder}/{model}", "bias": True} | of_model,
        partition={"clients": [2], "scheme": "iid", "min_size": 1},
        train={"epochs": 30, "learning_rate": 0.05 if model == "lora" else 0.5, "batch_size": 4},
    )


@pytest.mark.parametrize(("model", "methods"), [("linear", {"fedavg": {}, "afl": {}}), ("lora", METHODS)])
def test_a_benchmark_trains_on_a_folder(workplace: Path, model: str, methods: dict[str, dict[str, object]]) -> None:
    folder = workplace / "encoder"
    tiny_folder.write(folder)
    made = run(workplace, folder, model, methods)
    # Features of a network with random weights separate these texts in part alone.
    assert made.rows["fedavg"].accuracy >= (1 if model == "lora" else 0.75)
    assert made.rows.keys() == methods.keys()
    moved = folder.rename(workplace / "moved")
    again = run(workplace, moved, model, methods)
    keys = [{job.key for job in one.plan.jobs} for one in (made, again)]
    assert keys[0] == keys[1]
