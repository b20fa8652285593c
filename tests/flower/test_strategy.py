"""A strategy and its clients in one process, with Flower's own messages."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import fedfisher
from tests.fedfisher import own

pytest.importorskip("flwr", reason="Flower is not here; `make test` runs these tests in .venv/flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from fedfisher.flower import FedFisherStrategy, reply
from fedfisher_core.data.layouts import Images

START = own.network(7)
INPUTS = Images(1, 6, 6).zeros(1)
Answer = Callable[[Message], Message]


def trained(number: int, message: Message) -> Message:
    """A client whose training makes the network `own.network(number)`."""
    return reply(message, own.network(number), own.loader(10 + number, number))


class Nodes:
    """A grid whose nodes answer at once; it has what strategies use of one."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = dict(enumerate(answers, start=1))

    def get_node_ids(self) -> list[int]:
        return list(self.answers)

    def send_and_receive(self, messages: Iterable[Message], timeout: float) -> list[Message]:
        return [self.answer(message) for message in messages]

    def answer(self, message: Message) -> Message:
        return self.answers[message.metadata.dst_node_id](message)


TWO = Nodes(lambda message: trained(0, message), lambda message: trained(1, message))


@pytest.fixture(autouse=True)
def _inside_a_run() -> None:
    """Flower makes messages in a run alone."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def strategy(method: str = "fedavg", **options: Any) -> FedFisherStrategy:
    return FedFisherStrategy(own.network(), INPUTS, method=method, fraction_evaluate=0.0, **options)


def arrays(network: nn.Module = START) -> ArrayRecord:
    return ArrayRecord(network.state_dict())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", {}),
        ("fedfisher_kfac", {"budget": "fedavg"}),
        ("fedfisher_diag", {"fisher": {"estimator": "empirical"}, "format": "float32"}),
        ("ties", {"settings": {"share": 0.5}}),
        ("gradient_matching", {}),
        ("fedavg", {"settings": {"label_prior": -1.0}}),
        ("regmean", {"settings": {"off_diagonal": (0.5, 0.9)}, "validation": own.examples(9)}),
    ],
)
def test_the_network_is_that_of_merge(method: str, options: dict[str, Any]) -> None:
    one = strategy(method, **options)
    result = one.start(TWO, arrays())
    settings, fisher = options.pop("settings", {}), options.pop("fisher", None)
    wire = {key: options[key] for key in ("budget", "format") if key in options}
    wire |= {key: settings[key] for key in settings if key == "label_prior"}
    clients = [
        fedfisher.Client(own.network(number), own.loader(10 + number, number), initial=START, fisher=fisher)
        for number in (0, 1)
    ]
    uploads = [client.upload(method, **wire) for client in clients]
    expected = fedfisher.merge(uploads, method=method, initial=START, **options, **settings)
    found = result.arrays.to_torch_state_dict()
    torch.testing.assert_close(found, dict(expected.state_dict()))
    assert one.merged is not None
    torch.testing.assert_close(dict(one.merged.state_dict()), found, rtol=0, atol=0)
    bits = result.train_metrics_clientapp[1]["upload-bits"]
    assert sorted(bits) == sorted(8 * len(upload.data) for upload in uploads)


def test_the_order_of_the_clients_changes_no_bit() -> None:
    first = strategy("fedfisher_kfac").start(TWO, arrays()).arrays.to_torch_state_dict()
    other = strategy("fedfisher_kfac").start(Nodes(TWO.answers[2], TWO.answers[1]), arrays())
    torch.testing.assert_close(other.arrays.to_torch_state_dict(), first, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fedfishr_kfac"}, "^unknown method 'fedfishr_kfac'; did you mean 'fedfisher_kfac'"),
        ({"method": "ensemble"}, "^method 'ensemble' leaves no single network of the clients' own shape; allowed: "),
        ({"method": "pfnm"}, "^method 'pfnm' leaves no single network of the clients' own shape; allowed: "),
        ({"method": "regmean_plus_plus"}, "^method 'regmean_plus_plus' asks clients for more after their uploads; "),
        ({"method": "centralised"}, "^method 'centralised' trains one network on the data of all clients; "),
        ({"method": "regmean"}, "^method 'regmean' needs validation examples of the server; allowed: "),
        ({"method": "ties", "settings": {"shar": 1}}, "^unknown setting 'methods.ties.shar'; did you mean 'share'"),
        ({"budget": 3}, "can't serve model 'Sequential': .*3"),
    ],
)
def test_what_cannot_be_done_is_refused_before_a_client_is_asked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(fedfisher.InputError, match=message) as caught:
        strategy(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("initial", "rounds", "message"),
    [
        (arrays(), 3, "^num_rounds=3: method 'fedavg' merges once; allowed: 1$"),
        (arrays(nn.Linear(2, 2)), 1, "^initial_arrays (has|lacks) '.*'; allowed: the weights of 'Sequential'"),
    ],
)
def test_more_rounds_and_other_weights_are_refused(initial: ArrayRecord, rounds: int, message: str) -> None:
    with pytest.raises(fedfisher.InputError, match=message):
        strategy().start(Nodes(), initial, num_rounds=rounds)


def asked(by: FedAvg) -> Message:
    """What a strategy asks a client."""
    return next(iter(by.configure_train(1, arrays(), ConfigRecord(), TWO)))


def test_a_client_with_another_network_refuses() -> None:
    message = asked(strategy("fedfisher_kfac"))
    wider = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(fedfisher.InputError, match=r"^the server has '1.weight' of shape None, but the client has "):
        reply(message, wider, own.examples())
    smooth = own.network()
    smooth[1] = nn.Tanh()
    with pytest.raises(fedfisher.InputError, match=r"^the server has layers .*ReLU.*, but the client has .*Tanh"):
        reply(message, smooth, own.examples())


def test_a_client_whose_server_asks_for_nothing_refuses() -> None:
    with pytest.raises(fedfisher.InputError, match=r"^the server asks for no upload; allowed: .*FedFisherStrategy$"):
        reply(asked(FedAvg()), own.network(), own.examples())


def failing(message: Message) -> Message:
    return Message(Error(code=1, reason="no digits\nhere"), reply_to=message)


def cut(message: Message) -> Message:
    """A client whose upload lost its end."""
    answered = trained(1, message)
    array = answered.content["fedfisher"]["upload"]
    answered.content["fedfisher"]["upload"] = Array("uint8", array.shape, array.stype, array.data[:-3])
    return answered


def averaging(message: Message) -> Message:
    """A client of Flower's FedAvg."""
    metrics = MetricRecord({"num-examples": 3})
    return Message(RecordDict({"arrays": arrays(), "metrics": metrics}), reply_to=message)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((TWO.answers[1], failing), "^1 uploads arrived; allowed: at least min_train_nodes=2; node 2: no digits here$"),
        ((TWO.answers[1], cut), "^client [01]: node 2: .*; allowed: an upload for method 'fedavg', wire.budget=none"),
        ((averaging, averaging), "^node [12] sent no upload; allowed: a ClientApp that returns fedfisher.flower.reply"),
        ((TWO.answers[1], averaging), "^All ArrayRecords must have the same keys"),
    ],
)
def test_uploads_that_cannot_be_merged_are_refused(answers: tuple[Answer, Answer], words: str) -> None:
    with pytest.raises((fedfisher.InputError, InconsistentMessageReplies), match=words) as caught:
        strategy().start(Nodes(*answers), arrays())
    assert "\n" not in str(caught.value)


def test_clients_that_failed_are_left_out_where_enough_sent_an_upload() -> None:
    found = strategy().start(Nodes(TWO.answers[1], failing, TWO.answers[2]), arrays()).arrays.to_torch_state_dict()
    expected = strategy().start(TWO, arrays()).arrays.to_torch_state_dict()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
