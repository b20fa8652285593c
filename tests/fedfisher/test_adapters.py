"""PEFT's folders of adapters are read, merged and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import fedfisher
from fedfisher.adapters import CONFIG, PICKLE, TENSORS
from fedfisher_core.engine.errors import InputError
from flows.cli import main

LAYER = "base_model.model.encoder.layer.0.attention.self.query"
CONFIGURED = {
    "peft_type": "LORA",
    "base_model_name_or_path": "base",
    "r": 2,
    "lora_alpha": 6,
    "target_modules": ["query"],
}


def tensors(seed: int, rank: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{LAYER}.lora_A.weight": torch.randn(rank, 5, generator=generator),
        f"{LAYER}.lora_B.weight": torch.randn(4, rank, generator=generator),
        "base_model.model.classifier.weight": torch.randn(3, 4, generator=generator),
    }


def save(name: str, own: dict[str, Tensor], **config: Any) -> Path:
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    save_file(own, folder / TENSORS)
    (folder / CONFIG).write_text(json.dumps(CONFIGURED | config))
    return folder


def added(folder: Path) -> Tensor:
    """What PEFT adds to the layer's weights: alpha / rank B A."""
    config, own = json.loads((folder / CONFIG).read_text()), load_file(folder / TENSORS)
    a, b = own[f"{LAYER}.lora_A.weight"], own[f"{LAYER}.lora_B.weight"]
    assert len(a) == config["r"]
    return config["lora_alpha"] / config["r"] * b @ a


def test_an_adapter_stays_what_it_is_when_it_is_read_and_written(workplace: Path) -> None:
    first = save("first", tensors(0))
    fedfisher.write_adapter(fedfisher.read_adapter(first), "again")
    torch.testing.assert_close(added(Path("again")), added(first))
    for name in ("target_modules", "base_model_name_or_path"):
        assert json.loads((Path("again") / CONFIG).read_text())[name] == CONFIGURED[name]


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 6 / 2),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"query": 10}}, 10 / 2),
        ({"alpha_pattern": {"key": 10}}, 6 / 2),
    ],
)
def test_the_scale_is_that_of_peft(workplace: Path, config: dict[str, Any], scale: float) -> None:
    read = fedfisher.read_adapter(save("one", tensors(0), **config))
    own = tensors(0)
    torch.testing.assert_close(read.tensors[f"{LAYER}.lora_B.weight"], scale * own[f"{LAYER}.lora_B.weight"])


def test_folders_of_other_ranks_become_the_mean_of_their_products(workplace: Path) -> None:
    one, other = save("one", tensors(0)), save("other", tensors(1, rank=3), r=3)
    main(["merge", "one", "other", "--method", "fedex_lora", "-o", "merged"])
    torch.testing.assert_close(added(Path("merged")), (added(one) + added(other)) / 2)
    heads = [load_file(folder / TENSORS)["base_model.model.classifier.weight"] for folder in (one, other)]
    merged = load_file(Path("merged") / TENSORS)["base_model.model.classifier.weight"]
    torch.testing.assert_close(merged, (heads[0] + heads[1]) / 2)


def test_the_mean_of_factors_needs_equal_ranks(workplace: Path) -> None:
    one, alike, other = (
        fedfisher.read_adapter(save(f"{seed}", tensors(seed, rank))) for seed, rank in enumerate([2, 2, 3])
    )
    made = fedfisher.merge_adapters([one, alike], method="fedavg")
    name = f"{LAYER}.lora_A.weight"
    torch.testing.assert_close(made.tensors[name], (one.tensors[name] + alike.tensors[name]) / 2)
    with pytest.raises(
        InputError,
        match=r"'fedavg' needs adapters of one rank, .*\[2, 3\] in '.*'; allowed: fedex_lora, flexlora, knots$",
    ):
        fedfisher.merge_adapters([one, other], method="fedavg")


def test_ranks_are_compared_layer_by_layer(workplace: Path) -> None:
    def both(number: int, ranks: tuple[int, int]) -> fedfisher.Adapter:
        own: dict[str, Tensor] = {}
        for layer, rank in zip(("query", "value"), ranks, strict=True):
            drawn = {name: one for name, one in tensors(number, rank).items() if ".lora_" in name}
            own |= {name.replace("query", layer): one for name, one in drawn.items()}
        return fedfisher.read_adapter(save(f"both{number}", own))

    given = [both(0, (2, 4)), both(1, (4, 2))]
    with pytest.raises(InputError, match=r"needs adapters of one rank, and these have \[2, 4\] in '.*query.*'"):
        fedfisher.merge_adapters(given, method="fedavg")
    assert fedfisher.merge_adapters(given, method="flexlora").rank == 4
    alike = [both(number, (2, 4)) for number in range(2)]
    assert fedfisher.merge_adapters(alike, method="fedavg").rank == 4


def gram_of(inputs: Tensor) -> dict[str, Tensor]:
    return {LAYER: inputs.T @ inputs / len(inputs)}


def test_gram_matrices_make_the_outputs_nearest_to_the_adapters_own(workplace: Path) -> None:
    # The layer has four outputs, so that a product of rank 4 is any matrix.
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed, 4), r=4)) for seed in range(2)]
    inputs = [torch.randn(30, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    made = fedfisher.merge_adapters(
        read, method="regmean_products", grams=[gram_of(one) for one in inputs], off_diagonal=[1.0]
    )
    outputs = [
        rows @ one.tensors[f"{LAYER}.lora_A.weight"].T @ one.tensors[f"{LAYER}.lora_B.weight"].T
        for rows, one in zip(inputs, read, strict=True)
    ]
    expected = torch.linalg.lstsq(torch.cat(inputs), torch.cat(outputs)).solution.T
    found = made.tensors[f"{LAYER}.lora_B.weight"] @ made.tensors[f"{LAYER}.lora_A.weight"]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    name = "base_model.model.classifier.weight"
    torch.testing.assert_close(made.tensors[name], (read[0].tensors[name] + read[1].tensors[name]) / 2)


@pytest.mark.parametrize(
    ("grams", "message"),
    [
        ([gram_of(torch.ones(2, 5))], "1 sets of Gram matrices for 2 adapters; allowed: one an adapter"),
        ([gram_of(torch.ones(2, 5)), {}], rf"adapter 1 lacks a Gram matrix of {LAYER}; allowed: one for each layer"),
        (
            [gram_of(torch.ones(2, 5)), {**gram_of(torch.ones(2, 5)), "head": torch.ones(2, 2)}],
            rf"adapter 1 has a Gram matrix of 'head'; allowed: its layers, {LAYER}",
        ),
        ([gram_of(torch.ones(2, 4))] * 2, rf"Gram matrix '{LAYER}' of adapter 0 has shape \(4, 4\); allowed: \(5, 5\)"),
    ],
)
def test_gram_matrices_of_other_layers_are_refused(
    workplace: Path, grams: list[dict[str, Tensor]], message: str
) -> None:
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed))) for seed in range(2)]
    with pytest.raises(InputError, match=message):
        fedfisher.merge_adapters(read, method="regmean_products", grams=grams, off_diagonal=[0.9])


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (torch.eye(5, dtype=torch.int64), r"is of torch\.int64; allowed: a tensor of floating-point numbers"),
        (torch.eye(5).tolist(), r"is of list; allowed: a tensor of floating-point numbers"),
        (torch.eye(5) * torch.nan, r"has numbers that are not finite; allowed: finite ones in single precision"),
        (1e300 * torch.eye(5, dtype=torch.float64), r"has numbers that are not finite"),
        (torch.eye(5) + torch.ones(5, 5).triu(1), r"is not symmetric; allowed: the mean of x x\^T"),
        (torch.eye(5) - 2 * torch.eye(5)[:, :1] @ torch.eye(5)[:1], r"has a negative number on its diagonal; allowed"),
        (torch.zeros(5, 5), r"has zeros alone on its diagonal; allowed: means of squares"),
    ],
)
def test_what_is_no_gram_matrix_is_refused(workplace: Path, gram: Any, message: str) -> None:
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed))) for seed in range(2)]
    grams = [gram_of(torch.ones(2, 5)), {LAYER: gram}]
    with pytest.raises(InputError, match=rf"^Gram matrix '{LAYER}' of adapter 1 {message}"):
        fedfisher.merge_adapters(read, method="regmean_products", grams=grams, off_diagonal=[0.9])


def test_rounding_leaves_a_gram_matrix_symmetric_enough(workplace: Path) -> None:
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed))) for seed in range(2)]
    even = gram_of(torch.randn(50, 5, generator=torch.Generator().manual_seed(0)))
    rounded = {LAYER: even[LAYER] + 1e-6 * torch.randn(5, 5, generator=torch.Generator().manual_seed(1)).triu(1)}
    made, expected = (
        fedfisher.merge_adapters(read, method="regmean_products", grams=[one, even], off_diagonal=[0.9])
        for one in (rounded, even)
    )
    for name, tensor in expected.tensors.items():
        torch.testing.assert_close(made.tensors[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["flexlora", "fedavg"])
def test_gram_matrices_that_a_method_does_not_use_are_refused(workplace: Path, name: str) -> None:
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed))) for seed in range(2)]
    message = rf"^grams with method '{name}', which uses none; allowed: regmean_products$"
    with pytest.raises(InputError, match=message):
        fedfisher.merge_adapters(read, method=name, grams=[gram_of(torch.ones(2, 5))] * 2)


def test_gram_matrices_do_not_serve_methods_for_factors(workplace: Path) -> None:
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed))) for seed in range(2)]
    with pytest.raises(InputError, match=r"'regmean' needs gram, .* and regmean_products with Gram matrices"):
        fedfisher.merge_adapters(read, method="regmean", grams=[gram_of(torch.ones(2, 5))] * 2, off_diagonal=[0.9])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"use_dora": True}, r"use_dora=True; allowed: LoRA without it"),
        ({"peft_type": "IA3"}, r"peft_type='IA3'; allowed: LORA"),
        ({"bias": "all"}, r"bias='all'; allowed: none"),
        ({"lora_alpha": "2"}, r"lora_alpha='2'; allowed: numbers up to 1,000,000"),
        ({"lora_alpha": True}, r"lora_alpha=True; allowed: numbers"),
        ({"lora_alpha": 10**400}, r"lora_alpha=1000.*; allowed: numbers"),
        ({"lora_alpha": float("nan")}, "allowed: "),
        ({"alpha_pattern": {"query": None}}, r"alpha_pattern=None; allowed: numbers"),
        ({"alpha_pattern": [1]}, r"alpha_pattern=\[1\]; allowed: names of layers with numbers"),
    ],
)
def test_what_is_no_lora_is_refused(workplace: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fedfisher.read_adapter(save("one", tensors(0), **config))


def test_patterns_see_names_as_in_the_network(workplace: Path) -> None:
    config = {"lora_alpha": 8, "alpha_pattern": {f"^{LAYER.removeprefix('base_model.model.')}": 64}}
    given, plain = tensors(0), fedfisher.read_adapter(save("one", tensors(0), lora_alpha=8))
    found = fedfisher.read_adapter(save("two", given, **config))
    torch.testing.assert_close(found.tensors[f"{LAYER}.lora_B.weight"], 8 * plain.tensors[f"{LAYER}.lora_B.weight"])


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_16", "olora", "OLoRA", "lora_ga"])
def test_initialisations_that_change_the_network_are_refused(workplace: Path, start: str) -> None:
    with pytest.raises(InputError, match=f"has init_lora_weights='{start}', which also changes the network; allowed"):
        fedfisher.read_adapter(save("one", tensors(0), init_lora_weights=start))


def test_pickles_and_strange_tensors_are_refused(workplace: Path) -> None:
    folder = save("one", tensors(0))
    (folder / TENSORS).rename(folder / PICKLE)
    with pytest.raises(
        InputError, match=r"one has no adapter_model.safetensors; adapter_model.bin may hold code, and is"
    ):
        fedfisher.read_adapter(folder)
    save("one", tensors(0) | {f"{LAYER}.lora_magnitude_vector": torch.ones(4)})
    with pytest.raises(InputError, match=r"has '.*lora_magnitude_vector'; allowed: lora_A.weight and lora_B.weight"):
        fedfisher.read_adapter(folder)
    save("one", {name: one for name, one in tensors(0).items() if "lora_B" not in name})
    with pytest.raises(InputError, match=r"in shapes \(2, 5\) and None; allowed: two matrices"):
        fedfisher.read_adapter(folder)


@pytest.mark.parametrize(
    ("other", "config", "message"),
    [
        (tensors(1), {"base_model_name_or_path": "others"}, r"adapter 1 has base_model_name_or_path='others'"),
        (
            {name.replace("query", "key"): one for name, one in tensors(1).items()},
            {},
            r"adapter 1 has '.*key.lora_A.weight', unlike adapter 0; allowed: adapters of the same layers",
        ),
        (
            tensors(1) | {"base_model.model.classifier.weight": torch.ones(2, 4)},
            {},
            r"adapter 1 has '.*classifier.weight' in shape \(2, 4\), and adapter 0 in \(3, 4\)",
        ),
    ],
)
def test_adapters_of_other_networks_are_refused(
    workplace: Path, other: dict[str, Tensor], config: dict[str, Any], message: str
) -> None:
    read = [fedfisher.read_adapter(one) for one in (save("one", tensors(0)), save("other", other, **config))]
    with pytest.raises(InputError, match=message):
        fedfisher.merge_adapters(read, method="flexlora")


@pytest.mark.parametrize(
    ("method", "needed"),
    [("fedfisher_kfac", "kfac"), ("ties", "the weights that all clients started from"), ("regmean", "gram")],
)
def test_methods_that_need_more_than_weights_are_refused(workplace: Path, method: str, needed: str) -> None:
    read = [fedfisher.read_adapter(save(f"{seed}", tensors(seed))) for seed in range(2)]
    with pytest.raises(InputError, match=rf"'{method}' .*{needed}"):
        fedfisher.merge_adapters(read, method=method)


def test_the_label_prior_is_refused_for_want_of_label_counts(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2):
        save(f"{seed}", tensors(seed))
    with pytest.raises(SystemExit):
        main(["merge", "0", "1", "--method", "flexlora", "--set", "label_prior=-1", "-o", "merged"])
    said = capsys.readouterr().err
    assert "methods.flexlora.label_prior=-1 needs label counts, which no adapter has; allowed: 0" in said
    assert not Path("merged").exists()
    main(["merge", "0", "1", "--method", "flexlora", "--set", "label_prior=0", "-o", "merged"])
    assert Path("merged").exists()
