"""What each client does: train once, and send what the server's method needs."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedfisher.flower import reply
from flower_app.task import accuracy, build, client_digits, fit

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the server's network, and upload."""
    network = build()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = client_digits(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    epochs, rate = int(context.run_config["epochs"]), float(context.run_config["learning-rate"])
    loss = fit(network, loader, epochs=epochs, learning_rate=rate)
    return reply(message, network, loader, metrics={"loss": loss})


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Measure the merged network on the client's own digits."""
    network = build()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = client_digits(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    inputs, labels = loader.dataset.tensors
    measured = {"accuracy": accuracy(network, inputs, labels), "num-examples": len(labels)}
    return Message(content=RecordDict({"metrics": MetricRecord(measured)}), reply_to=message)
