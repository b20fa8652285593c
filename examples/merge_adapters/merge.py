"""Merge two of PEFT's adapters by what each client's layers saw: two folders and two files of statistics become one."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fedfisher

LAYER = "base_model.model.query"
WIDTH, RANK = 16, 4
METHODS = ("fedavg", "flexlora", "regmean_products")


def train(base: nn.Linear, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Train LoRA factors next to a frozen layer, in the place of PEFT."""
    a, b = nn.Linear(WIDTH, RANK, bias=False), nn.Linear(RANK, WIDTH, bias=False)
    nn.init.zeros_(b.weight)
    optimiser = torch.optim.Adam([*a.parameters(), *b.parameters()], lr=0.02)
    for _ in range(300):
        optimiser.zero_grad()
        (base(inputs) + b(a(inputs)) - targets).square().mean().backward()
        optimiser.step()
    return {f"{LAYER}.lora_A.weight": a.weight.detach(), f"{LAYER}.lora_B.weight": b.weight.detach()}


def write_client(folder: Path, factors: Mapping[str, Tensor], inputs: Tensor) -> None:
    """Write what a client shares: PEFT's folder, and next to it the mean of x x^T over its layer's inputs x."""
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": RANK, "lora_alpha": RANK}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["query"]}))
    save_file(dict(factors), folder / "adapter_model.safetensors")
    # In a network, a forward hook on the layer collects its inputs.
    save_file({LAYER: inputs.T @ inputs / len(inputs)}, folder.with_name(f"{folder.name}_gram.safetensors"))


def error(base: nn.Linear, adapter: fedfisher.Adapter, inputs: Tensor, targets: Tensor) -> float:
    """Measure the mean square error of the layer with an adapter."""
    a, b = (adapter.tensors[f"{LAYER}.lora_{factor}.weight"] for factor in "AB")
    with torch.no_grad():
        return (base(inputs) + inputs @ a.T @ b.T - targets).square().mean().item()


def main() -> None:
    """Train two clients on inputs in directions of their own, merge them by three methods, and print errors on both."""
    torch.manual_seed(0)
    base, change = nn.Linear(WIDTH, WIDTH, bias=False), torch.randn(WIDTH, RANK) @ torch.randn(RANK, WIDTH) / WIDTH
    directions = torch.linalg.qr(torch.randn(WIDTH, WIDTH)).Q.split(WIDTH // 2, dim=1)
    inputs = [torch.randn(200, WIDTH // 2) @ one.T for one in directions]
    targets = [base(rows).detach() + rows @ change.T for rows in inputs]
    folders = [Path("client_0"), Path("client_1")]
    for folder, rows, wanted in zip(folders, inputs, targets, strict=True):
        write_client(folder, train(base, rows, wanted), rows)

    adapters = [fedfisher.read_adapter(folder) for folder in folders]
    grams = [load_file(f"{folder}_gram.safetensors") for folder in folders]
    for method in METHODS:
        more = {"grams": grams, "off_diagonal": [1.0]} if method == "regmean_products" else {}
        merged = fedfisher.merge_adapters(adapters, method=method, **more)
        print(f"{method}: {error(base, merged, torch.cat(inputs), torch.cat(targets)):.4f}")
    fedfisher.write_adapter(merged, "merged")


if __name__ == "__main__":
    main()
