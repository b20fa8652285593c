"""FedAvg in Flower's simulation on Ray, for an environment that has Flower and nothing of this project.

FLOWER_APP=OPTIONS python -c "import flower_app; flower_app.run()"

Ray's workers import this module, and read the same options: JSON with the fields of `Options`.
"""

import json
import os
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Options:
    """What is trained.

    Args:
        examples: an .npz file: inputs and labels of all clients in one piece, `ends` where each client's end, and
            inputs and labels of the test.
        rounds: how many.
        cohort: clients of a round.
        epochs: of a client.
        batch_size: examples of a step.
        learning_rate: of a step.
    """

    examples: str
    rounds: int
    cohort: int
    epochs: int
    batch_size: int
    learning_rate: float


OPTIONS = Options(**json.loads(os.environ["FLOWER_APP"]))
client = ClientApp()
server = ServerApp()


@cache
def examples() -> dict[str, Tensor]:
    """Read all examples, once a process."""
    torch.set_num_threads(1)
    with np.load(OPTIONS.examples) as files:
        return {name: torch.from_numpy(files[name]) for name in files}


def lenet() -> nn.Module:
    """Build the network of the other side."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


@client.train()
def train(message: Message, context: Context) -> Message:
    """Train one client for a round."""
    held, number = examples(), int(context.node_config["partition-id"])
    ends = [0, *held["ends"].tolist()]
    mine = slice(ends[number], ends[number + 1])
    inputs, labels = held["inputs"][mine], held["labels"][mine]
    network = lenet()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(network.parameters(), lr=OPTIONS.learning_rate, fused=True)
    for _ in range(OPTIONS.epochs):
        for batch in torch.randperm(len(labels)).split(OPTIONS.batch_size):
            optimiser.zero_grad()
            functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            optimiser.step()
    metrics = MetricRecord({"num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


def accuracy(number: int, arrays: ArrayRecord) -> MetricRecord:
    """Measure the global network on all test examples."""
    held, network = examples(), lenet()
    network.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        right = (network(held["test_inputs"]).argmax(1) == held["test_labels"]).float().mean()
    return MetricRecord({"accuracy": float(right)})


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Average the cohort of every round, and print what came of it."""
    clients = len(examples()["ends"])
    strategy = FedAvg(
        fraction_train=OPTIONS.cohort / clients,
        fraction_evaluate=0.0,
        min_train_nodes=OPTIONS.cohort,
        min_available_nodes=clients,
    )
    torch.manual_seed(0)
    start = ArrayRecord(lenet().state_dict())
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=OPTIONS.rounds, evaluate_fn=accuracy)
    last = result.evaluate_metrics_serverapp[OPTIONS.rounds]["accuracy"]
    print("RESULT", json.dumps({"accuracy": 100 * float(last)}), flush=True)


def run() -> None:
    """Start the simulation."""
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=len(examples()["ends"]),
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
    )
