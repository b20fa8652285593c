"""A benchmark's network with adapters, as a folder that PEFT and `fedfisher merge` read."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import fedfisher
from fedfisher.adapters import CONFIG, TENSORS
from fedfisher.exporting import choose_row, export
from fedfisher.exporting_adapters import HEAD, AdaptedNetwork
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import Store, open_store
from fedfisher_core.experiments.benchmark.plan import make_rows
from fedfisher_core.reporting.rows import write_rows
from flows.cli import main
from tests.models.trunks import tiny_folder
from tests.models.trunks.test_folder import TOKENS, run

METHODS: dict[str, dict[str, Any]] = {"fedavg": {}, "fedex_lora": {}, "ensemble": {}}
LORA = {"rank": 2, "alpha": 6.0, "targets": ["query", "output"]}


@pytest.fixture(scope="module", params=["both", "b"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The report of a benchmark whose clients trained adapters in a folder's encoder."""
    workplace = tmp_path_factory.mktemp("adapters")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace)
        tiny_folder.write(workplace / "encoder")
        lora = LORA | {"trained": request.param}
        methods = METHODS if request.param == "both" else {"fedavg": {}}
        done = run(workplace, Path("encoder"), "lora", methods, lora=lora)
        write_rows(make_rows(done.plan, done.outcome), workplace / "results/tiny")
        yield workplace / "results/tiny"


def stored(report: Path) -> Store:
    return open_store(report.parents[1] / "artifacts")


def exported(report: Path, out: Path, method: str) -> AdaptedNetwork:
    row = choose_row(report, method=method, settings={})
    export(row, stored(report), out)
    return AdaptedNetwork.of(row, stored(report))


def methods_of(report: Path) -> list[str]:
    names = [row["method"] for row in json.loads((report / "results.json").read_text())]
    return [name for name in names if name != "ensemble"]


def products(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """B A by layer."""
    names = [name for name in tensors if ".lora_A." in name]
    return {name.split(".lora_A")[0]: tensors[name.replace("lora_A", "lora_B")] @ tensors[name] for name in names}


def test_peft_computes_what_the_network_does(report: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    from transformers import BertModel

    for method in methods_of(report):
        found = exported(report, tmp_path / method, method)
        base = BertModel.from_pretrained(report.parents[1] / "encoder")
        encoder = peft.PeftModel.from_pretrained(base, tmp_path / method).eval()
        counted = (TOKENS != tiny_folder.PADDING)[..., None]
        head = load_file(tmp_path / method / "weights.safetensors")
        with torch.inference_mode():
            states = encoder(input_ids=TOKENS, attention_mask=counted[..., 0].long()).last_hidden_state
            means = (states * counted).sum(1) / counted.sum(1)
            logits = means @ head["head.weight"].T + head["head.bias"]
            torch.testing.assert_close(found.network(TOKENS), logits, rtol=1e-5, atol=1e-5)
            without = BertModel.from_pretrained(report.parents[1] / "encoder")(
                input_ids=TOKENS, attention_mask=counted[..., 0].long()
            ).last_hidden_state
        assert (states - without).abs().max() > 1e-3


def test_what_is_written_is_read_back(report: Path, tmp_path: Path) -> None:
    for method in methods_of(report):
        found = exported(report, tmp_path / method, method)
        read = fedfisher.read_adapter(tmp_path / method)
        expected = found.adapter()
        assert read.tensors.keys() == expected.tensors.keys()
        for name, tensor in expected.tensors.items():
            torch.testing.assert_close(read.tensors[name], tensor)
        assert read.rank == (4 if method == "fedex_lora" else 2)
        assert read.config["base_model_name_or_path"] == "encoder"
        about = json.loads((tmp_path / method / "network.json").read_text())
        assert (about["class_names"], about["inputs"]["shape"]) == (["1", "5"], [7])


def test_the_scale_is_in_the_product(report: Path, tmp_path: Path) -> None:
    found = exported(report, tmp_path / "out", "fedavg")
    place, key = found.network.places["1_query"], "1_query"
    seen = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    product = products(fedfisher.read_adapter(tmp_path / "out").tensors)[f"base_model.model.{place}"]
    torch.testing.assert_close(seen @ product.T, found.network.adapter(key)(seen))


def test_two_exported_folders_are_merged_by_the_command(report: Path, tmp_path: Path) -> None:
    exported(report, tmp_path / "one", "fedavg")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    tensors = load_file(tmp_path / "two" / TENSORS)
    save_file({name: 3 * tensor for name, tensor in tensors.items()}, tmp_path / "two" / TENSORS)
    main(["merge", str(tmp_path / "one"), str(tmp_path / "two"), "--method", "flexlora", "-o", str(tmp_path / "out")])
    one, merged = (fedfisher.read_adapter(tmp_path / name).tensors for name in ("one", "out"))
    # Three times each factor is nine times the product.
    for layer, product in products(merged).items():
        torch.testing.assert_close(product, 5 * products(one)[layer], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(merged[f"{HEAD}.weight"], 2 * one[f"{HEAD}.weight"])
    assert json.loads((tmp_path / "out" / CONFIG).read_text())["target_modules"].count("|") == 1


def test_what_can_not_be_exported_is_refused(report: Path, tmp_path: Path) -> None:
    row, store = choose_row(report, method="fedavg", settings={}), stored(report)
    with pytest.raises(InputError, match=r"--onnx of model 'folder:encoder/lora', whose encoder is not exported"):
        export(row, store, tmp_path / "out", onnx=True)
    if "fedex_lora" in methods_of(report):
        with pytest.raises(InputError, match="method 'ensemble' keeps 2 networks; allowed: methods that leave one"):
            export(choose_row(report, method="ensemble", settings={}), store, tmp_path / "out")
    encoder = report.parents[1] / "encoder"
    before = (encoder / "config.json").read_bytes()
    (encoder / "config.json").write_bytes(before + b"\n")
    try:
        with pytest.raises(InputError, match=r"has other files, .* than when its clients trained; allowed: the same"):
            export(row, store, tmp_path / "out")
    finally:
        (encoder / "config.json").write_bytes(before)
    assert not (tmp_path / "out").exists()


def test_a_network_on_texts_without_adapters_is_refused(workplace: Path) -> None:
    tiny_folder.write(workplace / "encoder")
    done = run(workplace, workplace / "encoder", "lora", {"fedavg": {}}, name="gru")
    (row,) = make_rows(done.plan, done.outcome)
    with pytest.raises(InputError, match="model 'gru' reads texts as tokens, and has no adapters; allowed: networks"):
        export(row, done.store, workplace / "out")
