"""A benchmark's network with LoRA adapters, as a folder that PEFT reads."""

import re
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedfisher.adapters import Adapter
from fedfisher_core.data.layouts import Texts
from fedfisher_core.data.specs import datasets
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import Artifact, Store, read_document, read_tensors
from fedfisher_core.engine.store.caching import manifest_here
from fedfisher_core.experiments.benchmark.rows import Row
from fedfisher_core.federation.data import INFO, TEXTS
from fedfisher_core.federation.global_models import Result, read_result
from fedfisher_core.federation.start import KIND, NETWORK
from fedfisher_core.methods.server import Combine
from fedfisher_core.models.lora import AdaptedEncoder, fixed_a
from fedfisher_core.models.spec import Lora, ModelSpec
from fedfisher_core.reporting.formats import plural

HEAD = "base_model.model.head"
"""Begins the names of the head's weights, which PEFT passes over, and `fedfisher merge` averages."""


@dataclass(frozen=True)
class AdaptedNetwork:
    """The global network of a row, in evaluation mode."""

    network: AdaptedEncoder
    spec: ModelSpec
    class_names: list[str]

    @classmethod
    def of(cls, row: Row, store: Store) -> "AdaptedNetwork":
        """Read the network of a row.

        Raises:
            InputError: the store no longer has the network, the method keeps several networks, it has no adapters, or
                its encoder has changed.
        """
        artifact = find_artifact(store, "aggregates", row.artifact, row)
        manifest, result = manifest_here(artifact), read_result(artifact)
        require_one_network(row, result)
        info = read_document(find_artifact(store, "data", manifest.inputs["data"], row), INFO)
        dataset, of_model = datasets.get(row.dataset), manifest.settings["model"]
        spec = ModelSpec(
            row.model,
            Texts(**info[TEXTS]),
            dataset.classes,
            of_model["bias"],
            result.widths,
            _lora(artifact, row, store),
        )
        if spec.identity != of_model["name"]:
            raise InputError(
                f"model {row.model!r} has other files, or another version of transformers, than when its clients "
                "trained; allowed: the same of both"
            )
        if not isinstance(spec.skeleton(), AdaptedEncoder):
            raise InputError(
                f"model {row.model!r} reads texts as tokens, and has no adapters; allowed: networks with adapters, or "
                "of images, numbers, characters or a trunk's features"
            )
        network = spec.load(read_tensors(artifact, NETWORK.format(0))).eval()
        assert isinstance(network, AdaptedEncoder)
        return cls(network, spec, info["class_names"])

    @torch.no_grad()
    def adapter(self) -> Adapter:
        """Its adapters and its head by PEFT's names, for the encoder as transformers has it."""
        tensors, network = {}, self.network
        for key, place in network.places.items():
            b = network.get_parameter(f"lora_B.{key}.weight")
            if self.spec.lora.trained == "both":
                a: Tensor = network.get_parameter(f"lora_A.{key}.weight")
            else:
                a = fixed_a(key, network.given[key], network.rank, b.device)
            tensors[f"base_model.model.{place}.lora_A.weight"] = a.clone()
            tensors[f"base_model.model.{place}.lora_B.weight"] = b * network.scale
        for name, weight in self.network.head.named_parameters():
            tensors[f"{HEAD}.{name}"] = weight.clone()
        layers = {re.sub(r"\.\d+\.", ".{}.", place, count=1) for place in self.network.places.values()}
        config: dict[str, Any] = {
            "peft_type": "LORA",
            "task_type": "FEATURE_EXTRACTION",
            "base_model_name_or_path": self.network.base,
            # Names of layers alone would stand for others that end so.
            "target_modules": "|".join(re.escape(one).replace(r"\{\}", r"\d+") for one in sorted(layers)),
            "lora_dropout": 0.0,
            "fan_in_fan_out": False,
            "bias": "none",
        }
        return Adapter(config, tensors)


def find_artifact(store: Store, kind: str, key: str, row: Row) -> Artifact:
    """Find what a row rests on; InputError where the store no longer has it."""
    artifact = store.refer(kind, key)
    if artifact is None:
        raise InputError(
            f"{store.location} has no {kind}/{key} of benchmark {row.benchmark!r}; allowed: to run it again, or to "
            "name the store by --set run.store=FOLDER"
        )
    return artifact


def require_one_network(row: Row, result: Result) -> None:
    """Refuse a method that keeps several networks, or a combiner of one, by an InputError."""
    combined = result.combine in (Combine.LEARNT, Combine.MEAN_FEATURE)
    if result.networks != 1 or combined:
        kept = plural(result.networks, "network") + (" and a combiner" if combined else "")
        raise InputError(f"method {row.method!r} keeps {kept}; allowed: methods that leave one network")


def _lora(aggregate: Artifact, row: Row, store: Store) -> Lora:
    """Find how clients' adapters were made, in what the first round started from."""
    while (start := store.refer(KIND, manifest_here(aggregate).inputs["start"])) is None:
        aggregate = find_artifact(store, "aggregates", manifest_here(aggregate).inputs["start"], row)
    said = manifest_here(start).settings["model"].get("lora", {})
    return replace(Lora(**said), targets=tuple(said.get("targets", Lora().targets)))
