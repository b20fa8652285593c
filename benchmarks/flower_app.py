"""FedAvg in Flower's simulation on Ray, for an environment that has Flower and nothing of this project.

BARE_OPTIONS=... python -c "from benchmarks.flower_app import run; run()"; Ray's workers import this module as well.
"""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.bare import OPTIONS, accuracy, examples, lenet, tell, train

client = ClientApp()
server = ServerApp()


@client.train()
def train_one(message: Message, context: Context) -> Message:
    """Train one client for a round."""
    start = message.content["arrays"].to_torch_state_dict()
    weights, size = train(start, int(context.node_config["partition-id"]))
    content = RecordDict({"arrays": ArrayRecord(weights), "metrics": MetricRecord({"num-examples": size})})
    return Message(content=content, reply_to=message)


def measure(number: int, arrays: ArrayRecord) -> MetricRecord:
    """Measure the global network on all test examples."""
    return MetricRecord({"accuracy": accuracy(arrays.to_torch_state_dict())})


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
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=OPTIONS.rounds, evaluate_fn=measure)
    tell(result.evaluate_metrics_serverapp[OPTIONS.rounds]["accuracy"])


def run() -> None:
    """Start the simulation."""
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=len(examples()["ends"]),
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}},
    )
