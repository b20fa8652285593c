"""Whether distillation from moments of embeddings gains anything for adapters in MiniLM.

    FEDFISHER_DATA_DIR=... python -m benchmarks.text_distillation [--seeds 101 102 103] [--datasets sst2 ag_news]

The clients are those of `configs/lora_text.yaml` at alpha 0.1, with other seeds. Accuracies are of 400 training texts
that no client has, and nothing is compressed. A difference is to CCVR, over the same seeds, with the 95 % interval of
the pair alone.

A client would send moments of the states that leave the embeddings: for each class the mean and the leading directions
of its texts' means; and for all of its texts the mean at each position and the leading directions around the text's own
mean. A drawn text has a class and a length of the client's. Its states are a drawn mean of the class, plus the mean at
the position, plus a drawn deviation. The student learns what the client's network says of such states, as in Gaussian
distillation. `own texts` takes the client's texts in the place of drawn ones, which no server has.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.clients import train_clients
from benchmarks.differences import columns
from fedfisher_core.client.statistics.principal import principal
from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.tensors import Examples, select
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.federation.aggregating import server_of
from fedfisher_core.federation.checks import check_federations
from fedfisher_core.federation.data import load_data
from fedfisher_core.federation.federation import Federation, PartitionInputs
from fedfisher_core.federation.jobs import Federations
from fedfisher_core.federation.partition import examples_of
from fedfisher_core.methods.ccvr import ccvr
from fedfisher_core.methods.fedavg import fedavg
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.minilm import PADDING, frozen_encoder
from fedfisher_core.settings.reading import read_yaml, validate

CONFIG = Path(__file__).parents[1] / "configs/lora_text.yaml"
CLASS_DIRECTIONS, WITHIN_DIRECTIONS = 20, 60
STEPS, SAMPLES, LEARNING_RATES = 15, 8, (1e-3, 1e-4)

Texts = tuple[Tensor, Tensor | None]
"""Tokens, and states of shape (texts, length, width) or None; of the tokens the padding alone counts next to states."""
DrawTexts = Callable[[int, torch.Generator], Texts]


@contextmanager
def embedded_as(encoder: nn.Module, states: Tensor | None) -> Iterator[None]:
    """Have a frozen encoder begin at states instead of its embeddings."""
    if states is None:
        yield
        return
    hook = encoder.get_submodule("embeddings.LayerNorm").register_forward_hook(lambda module, given, made: states)
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def embeddings(encoder: nn.Module, tokens: Tensor) -> Tensor:
    """What leaves the embeddings, shape (texts, length, width)."""
    kept: list[Tensor] = []
    hook = encoder.get_submodule("embeddings.LayerNorm").register_forward_hook(
        lambda module, given, made: kept.append(made)
    )
    try:
        for batch in tokens.split(64):
            encoder(batch)
    finally:
        hook.remove()
    return torch.cat(kept)


@dataclass(frozen=True)
class Normal:
    """A normal distribution of rows: a mean, directions as long as their deviations, and deviations of the rest."""

    mean: Tensor
    directions: Tensor
    deviations: Tensor

    @staticmethod
    def of(rows: Tensor, directions: int) -> "Normal":
        """Fit it to rows."""
        found = principal(rows, directions)
        left = (found.variances - found.directions.square().sum(0)).clamp(min=0).sqrt()
        return Normal(found.mean.float(), found.directions.float(), left.float())

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Draw rows, shape (*shape, width)."""
        along = torch.randn(*shape, len(self.directions), generator=generator)
        return (
            self.mean
            + along @ self.directions
            + torch.randn(*shape, len(self.mean), generator=generator) * self.deviations
        )


def drawn_texts(encoder: nn.Module, examples: Examples) -> DrawTexts:
    """Draw states from a client's moments."""
    tokens = examples.inputs
    states, counted = embeddings(encoder, tokens), (tokens != PADDING).float()[..., None]
    means = (states * counted).sum(1) / counted.sum(1)
    apart = (states - means[:, None]) * counted
    places = apart.sum(0) / counted.sum(0).clamp(min=1)
    within = Normal.of((apart - places)[counted[..., 0] > 0], WITHIN_DIRECTIONS)
    held, counts = examples.labels.unique(return_counts=True)
    classes = [Normal.of(means[examples.labels == label], CLASS_DIRECTIONS) for label in held.tolist()]
    lengths = counted[..., 0].sum(1).long()

    def draw(count: int, generator: torch.Generator) -> Texts:
        chosen = torch.multinomial(counts / counts.sum(), count, replacement=True, generator=generator)
        middles = torch.stack([classes[one].draw((), generator) for one in chosen.tolist()])
        long = lengths[torch.randint(len(lengths), (count,), generator=generator)]
        mask = (torch.arange(tokens.shape[1]) < long[:, None]).long()
        made = middles[:, None] + places + within.draw((count, tokens.shape[1]), generator)
        return torch.where(mask > 0, PADDING + 1, PADDING), made

    return draw


def own_texts(examples: Examples) -> DrawTexts:
    """Draw from the client's own texts."""

    def draw(count: int, generator: torch.Generator) -> Texts:
        return examples.inputs[torch.randint(len(examples), (count,), generator=generator)], None

    return draw


def distil(
    student: nn.Module,
    clients: Sequence[tuple[nn.Module, DrawTexts, float]],
    encoder: nn.Module,
    *,
    learning_rate: float,
    seed: int,
) -> nn.Module:
    """Minimise sum_i p_i E KL(f_i(x_i) || f(x_i)) over drawn texts x_i, as Gaussian distillation does."""
    optimiser = torch.optim.Adam(student.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        optimiser.zero_grad()
        for network, draw, share in clients:
            tokens, states = draw(SAMPLES, generator)
            with embedded_as(encoder, states):
                with torch.no_grad():
                    taught = network(tokens).log_softmax(1)
                said = student(tokens).log_softmax(1)
            (share * functional.kl_div(said, taught, reduction="batchmean", log_target=True)).backward()
        optimiser.step()
        schedule.step()
    return student.eval()


def federations_of(dataset: str, seeds: Sequence[int], store: Path) -> Federations:
    """Plan the federations of one data set."""
    settings = read_yaml(CONFIG.read_text())
    settings["data"] |= {"dataset": dataset}
    settings["partition"] |= {"alpha": 0.1}
    settings |= {
        "seeds": list(seeds),
        "methods": {"fedavg": {}, "ccvr": {"wire": {"budget": "none"}}},
        "run": {"device": "cpu", "store": str(store)},
    }
    return check_federations(validate(BenchmarkSettings, settings))


def rights_of(federations: Federations, federation: Federation, encoder: nn.Module) -> Mapping[str, float]:
    """Measure all forms in one federation."""
    made = train_clients(federations, federation)
    server, seed = server_of(federation, made.inputs), federation.setting.seed
    inputs = PartitionInputs(made.inputs.data, made.inputs.partition)
    held = [examples_of(federation, inputs, client) for client in range(federation.setting.clients)]
    uploads = [Upload(len(examples), sent) for examples, sent in zip(held, made.statistics, strict=True)]
    total = sum(len(examples) for examples in held)
    data = load_data(made.inputs.data)
    test = select(data.test, data.spec)
    starts = {
        "FedAvg": fedavg(server, uploads).networks[0],
        "CCVR": ccvr(server, uploads).networks[0],
    }
    found = {name: accuracy(server.network(start), test) for name, start in starts.items()}
    networks = [server.network(upload[Weights].tensors) for upload in uploads]
    shares = [len(examples) / total for examples in held]
    draws = {
        "drawn texts": [drawn_texts(encoder, examples) for examples in held],
        "own texts": [own_texts(examples) for examples in held],
    }
    for start, parameters in starts.items():
        for what, each in draws.items():
            for rate in LEARNING_RATES:
                student = distil(
                    server.network(parameters),
                    list(zip(networks, each, shares, strict=True)),
                    encoder,
                    learning_rate=rate,
                    seed=seed,
                )
                name = f"{start}, then {what}, rate {rate:g}"
                found[name] = accuracy(student, test)
                print(f"{federation.setting.label}: {name}: {100 * found[name]:.2f} %", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure every form in every setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--datasets", nargs="+", choices=("sst2", "ag_news"), default=["sst2", "ag_news"])
    parser.add_argument("--store", type=Path, help="keeps the clients (a folder that is removed)")
    options = parser.parse_args()
    if "FEDFISHER_DATA_DIR" not in os.environ:
        print("skipped: FEDFISHER_DATA_DIR is not set, and this needs sst2 and ag_news")
        return
    torch.set_num_threads(1)
    encoder = frozen_encoder(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as temporary:
        for dataset in options.datasets:
            federations = federations_of(dataset, options.seeds, options.store or Path(temporary))
            rights: dict[str, dict[int, float]] = {}
            for one in federations.all:
                for name, right in rights_of(federations, one, encoder).items():
                    rights.setdefault(name, {})[one.setting.seed] = right
            print(f"\n{dataset}, {len(options.seeds)} seeds")
            print(f"{'':44}{'accuracy, %':16}less CCVR")
            for name, found in rights.items():
                print(f"{name:44}{columns(found, rights['CCVR'])}", flush=True)


if __name__ == "__main__":
    main()
