"""What the server does: merge the clients' networks, test the result and write it."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from safetensors.torch import save_file

from fedfisher.flower import FedFisherStrategy
from flower_app.task import accuracy, build, test_digits

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the one round."""
    config, network = context.run_config, build()
    inputs, labels = test_digits()

    def test(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        network.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(network, inputs, labels)})

    strategy = FedFisherStrategy(
        network,
        inputs,
        method=str(config["method"]),
        budget=config["budget"],
        min_train_nodes=int(config["clients"]),
        min_available_nodes=int(config["clients"]),
    )
    result = strategy.start(grid, ArrayRecord(build().state_dict()), evaluate_fn=test)
    save_file(result.arrays.to_torch_state_dict(), str(config["out"]))
