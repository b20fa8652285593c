"""Networks that a caller wrote are merged as they are, or refused by name."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import fedfisher
from fedfisher_core.communication.wire.budget import fedavg_bits
from tests.fedfisher.own import client, clients, drawn, examples, loader, network


def refused(message: str) -> Any:
    return pytest.raises(fedfisher.InputError, match=message)


@pytest.mark.parametrize("method", ["fedavg", "fedfisher_kfac", "fedfisher_diag", "regmean", "otfusion", "ma_echo"])
def test_the_result_is_a_network_of_the_same_kind(method: str) -> None:
    settings = {"regmean": {"off_diagonal": (0.9,)}, "otfusion": {}}.get(method, {})
    merged = fedfisher.merge(clients(), method=method, validation=loader(), **settings)
    assert str(merged) == str(network())
    assert merged(examples()[0]).shape == (12, 3)
    assert not merged.training


def test_the_mean_counts_clients_by_their_examples() -> None:
    given = clients(2)
    merged = fedfisher.merge(given, method="fedavg")
    weights = [one.weights["6.weight"] for one in given]
    assert merged.get_parameter("6.weight").allclose((10 * weights[0] + 11 * weights[1]) / 21, atol=1e-6)


def test_the_callers_networks_stay_as_they_were() -> None:
    module = network()
    module.train()
    module[5].eval()
    before, state = {name: tensor.clone() for name, tensor in module.state_dict().items()}, torch.get_rng_state()
    fedfisher.merge([fedfisher.Client(module, examples())] * 2, method="fedfisher_kfac")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert (module.training, module[5].training) == (True, False)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loader_and_its_tensors_give_the_same_statistics() -> None:
    one = fedfisher.Client(network(), loader())
    other = fedfisher.Client(network(), examples(), batch_size=5)
    for name in ("kfac", "diagonal_fisher", "gram", "squared_gradients", "label_counts"):
        found, expected = one.statistics(name), other.statistics(name)
        assert all(torch.equal(found[key], expected[key]) for key in expected), name


def test_weights_may_be_named_apart_from_the_network() -> None:
    given = fedfisher.Client(network(), loader(), weights=network(1).state_dict())
    expected = fedfisher.Client(network(1), loader()).statistics("kfac")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in given.statistics("kfac").items())


def test_matched_networks_are_as_wide_as_the_matching_makes_them() -> None:
    merged = fedfisher.merge(clients(), method="pfnm")
    filters, hidden = merged.get_submodule("0"), merged.get_submodule("3")
    assert isinstance(filters, nn.Conv2d)
    assert isinstance(hidden, nn.Linear)
    assert filters.out_channels >= 2
    assert hidden.in_features == 9 * filters.out_channels
    assert merged(examples()[0]).shape == (12, 3)


class Fixed(nn.Module):
    """A network whose code holds the number of its filters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.head = nn.Linear(72, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.conv(inputs).relu().view(-1, 72))


class Scaled(nn.Module):
    """A network with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(36, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * self.head(inputs.flatten(1))


class Tied(nn.Module):
    """A network that uses a weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.again, self.head = nn.Linear(36, 36), nn.Linear(36, 36), nn.Linear(36, 3)
        self.again.weight = self.hidden.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.again(self.hidden(inputs.flatten(1)).relu()).relu())


def sequence(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Flatten(), *layers)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch normalisation": (
        sequence(nn.BatchNorm1d(36), nn.Linear(36, 3)),
        "^model 'Sequential': layer '1' has type BatchNorm1d, .*; allowed: GroupNorm",
    ),
    "a shared weight": (Tied, r"^model 'Tied': 'again\.weight' is shared; allowed: one name a parameter$"),
    "no weights": (sequence(), "^model 'Sequential' has no weights"),
    "double precision": (lambda: Fixed().double(), r"^model 'Fixed' has 'conv\.weight' in torch\.float64"),
    "a lazy layer": (sequence(nn.LazyLinear(3)), r"^model 'Sequential': '1\.weight' has no shape"),
    "other inputs": (sequence(nn.Linear(35, 3)), "^model 'Sequential' can't take 1 x 6 x 6 an example: RuntimeError"),
    "maps": (
        sequence(nn.Linear(36, 36), nn.Unflatten(1, (4, 3, 3))),
        r"gives outputs of shape \(2, 4, 3, 3\); allowed",
    ),
    "outputs of the batch": (sequence(nn.Linear(36, 3), nn.Softmax(0)), "depend on chance or on the other examples"),
}


@pytest.mark.parametrize("what", NETWORKS)
def test_networks_that_no_method_can_merge_are_refused_by_name(what: str) -> None:
    build, message = NETWORKS[what]
    with refused(message) as caught:
        fedfisher.Client(build(), examples())
    assert "\n" not in str(caught.value)


class Counting(nn.Sequential):
    """Reshapes by the number of its inputs, which tracing does not know."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.reshape(len(inputs), -1))


LAYERS: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "fixed widths": (Fixed, "pfnm", "^method 'pfnm' can't serve model 'Fixed': .*mat1 and mat2 shapes"),
    "a parameter": (
        Scaled,
        "fedlpa",
        "^method 'fedlpa' can't serve model 'Scaled': parameter 'scale' is in no layer of torch, and its input factor",
    ),
    "operations that depend on the inputs": (
        Counting,
        "otfusion",
        "^method 'otfusion' can't serve model 'Counting': .*: its operations depend on its inputs",
    ),
    "features": (network, "fedcgs", "^method 'fedcgs' can't serve model 'Sequential': "),
}


@pytest.mark.parametrize("what", LAYERS)
def test_layers_that_a_method_cannot_take_are_refused_by_name(what: str) -> None:
    build, method, message = LAYERS[what]
    given = [fedfisher.Client(drawn(build, seed), examples(seed=seed)) for seed in range(2)]
    with refused(message) as caught:
        fedfisher.merge(given, method=method)
    assert "\n" not in str(caught.value)
    assert fedfisher.merge(given, method="fedavg")


@pytest.mark.parametrize("method", ["fedfisher_kfac", "fedfisher_diag"])
def test_a_parameter_in_no_layer_is_merged_by_its_diagonal(method: str) -> None:
    given = [fedfisher.Client(drawn(Scaled, seed), examples(seed=seed)) for seed in range(2)]
    scales = [float(one.weights["scale"]) for one in given]
    merged = float(fedfisher.merge(given, method=method).get_parameter("scale"))
    assert min(scales) <= merged <= max(scales)


class Words(nn.Module):
    """A network that looks at embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens).mean(1))


def test_numbers_and_tokens_are_taken_as_images_are() -> None:
    tokens = torch.arange(20).reshape(4, 5) % 7
    labels = torch.tensor([0, 1, 2, 0])
    words = [fedfisher.Client(drawn(Words, seed), (tokens, labels)) for seed in range(2)]
    assert fedfisher.merge(words, method="fedfisher_diag")(tokens).shape == (4, 3)
    rows = [fedfisher.Client(drawn(sequence(nn.Linear(6, 3)), seed), examples(9, seed, 6)) for seed in range(2)]
    assert fedfisher.merge(rows, method="fedfisher_kfac")(examples(9, 0, 6)[0]).shape == (9, 3)


inputs, labels = examples()
DATA: dict[str, tuple[Any, str]] = {
    "no labels": ([inputs], "has batches of Tensor; allowed: a tuple of two tensors, inputs and labels"),
    "three parts": ((inputs, labels, labels), r"has batches of \(Tensor, Tensor, Tensor\)"),
    "arrays": (
        (inputs.numpy(), labels.numpy()),
        r"has batches of \(ndarray, ndarray\); allowed: a tuple",
    ),
    "two shapes": ([(inputs, labels), (inputs[..., 1:], labels)], "has batches that differ: RuntimeError: Sizes of"),
    "nothing": ([], "has no examples"),
    "an empty pair": ((inputs[:0], labels[:0]), "has no examples"),
    "a missing number": ((inputs * torch.nan, labels), "has inputs that are not finite; allowed: finite numbers"),
    "fewer labels": ((inputs, labels[:5]), r"has labels of shape \(5,\) in torch.int64 for inputs of shape"),
    "targets": ((inputs, labels.float()), r"has labels of shape \(12,\) in torch.float32"),
    "a fourth class": ((inputs, labels + 1), "has the label 3; allowed: 0 to 2"),
    "a negative class": ((inputs, labels - 1), "has the label -1; allowed: 0 to 2"),
}


@pytest.mark.parametrize("what", DATA)
def test_data_without_labels_of_the_network_is_refused(what: str) -> None:
    data, message = DATA[what]
    with refused(f"^the client's data {message}"):
        fedfisher.Client(network(), data)
    with refused(f"^validation {message}"):
        fedfisher.merge(clients(), method="best_local", validation=data)


@pytest.mark.parametrize("given", [inputs.double(), inputs[:, 0], inputs[..., None], inputs.long()])
def test_inputs_of_another_layout_are_refused(given: Tensor) -> None:
    with refused(r"^examples have shape \(.*allowed: images \(examples, channels, height, width\) or numbers"):
        fedfisher.Client(network(), (given, labels))


def other_stride() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=2, dilation=2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 5), nn.ReLU(),
        nn.Dropout(0.2), nn.Linear(5, 3),
    )  # fmt: skip


def wider() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(18, 6), nn.ReLU(), nn.Linear(6, 3)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (
            lambda: fedfisher.Client(wider(), loader()),
            r"^client 1 has '3\.weight' of shape \[6, 18\], but client 0 has",
        ),
        (lambda: fedfisher.Client(other_stride(), loader()), "^client 1 has layers "),
        (
            lambda: fedfisher.Client(network(), loader(), fisher={"estimator": "empirical"}),
            "^client 1 has Fishers that are 'empirical', but client 0 has 'exact'",
        ),
    ],
)
def test_unlike_networks_are_refused(odd: Callable[[], fedfisher.Client], message: str) -> None:
    with refused(message):
        fedfisher.merge([client(), odd()], method="fedavg")


def normalised(seed: int, **options: Any) -> nn.Module:
    """A network whose running statistics have seen examples."""
    made = drawn(sequence(nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, **options), nn.ReLU(),
        nn.Flatten(), nn.Linear(64, 3)), seed)  # fmt: skip
    made(examples(30, seed)[0])
    return made.eval()


@pytest.mark.parametrize(("momentum", "kept"), [(None, 0.1), (0.0, 0.0), (0.3, 0.3)])
def test_running_statistics_move_on_at_their_own_rate(momentum: float | None, kept: float) -> None:
    after = fedfisher.replace_batch_norm(normalised(0, momentum=momentum))
    assert after.get_submodule("3").momentum == kept


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None, "eps": 0.1}])
def test_running_statistics_become_weights(options: dict[str, Any]) -> None:
    given = examples()[0]
    before = [normalised(seed, **options) for seed in range(2)]
    after = [fedfisher.replace_batch_norm(one) for one in before]
    assert all(one(given).allclose(other(given), atol=1e-5) for one, other in zip(before, after, strict=True))
    assert isinstance(before[0][3], nn.BatchNorm2d)
    for method in ("fedavg", "fedfisher_diag", "fedfisher_kfac"):
        merged = fedfisher.merge([fedfisher.Client(one, examples()) for one in after], method=method)
        assert merged(given).isfinite().all()
    means = [one[3].running_mean for one in before]
    merged = fedfisher.merge([fedfisher.Client(one, examples()) for one in after], method="fedavg")
    assert merged.get_parameter("3.mean").allclose((means[0] + means[1]) / 2)


def test_a_normalisation_without_running_statistics_is_refused() -> None:
    with refused("^layer '3' keeps no running statistics; allowed: track_running_stats=True$"):
        fedfisher.replace_batch_norm(normalised(0, track_running_stats=False))


class Activated(nn.BatchNorm2d):
    """Batch normalisation that does more."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).relu()


def test_a_normalisation_that_does_more_is_refused() -> None:
    with refused("^layer '1' has type Activated, whose forward is not that of BatchNorm2d; allowed: BatchNorm2d, and"):
        fedfisher.replace_batch_norm(nn.Sequential(nn.Conv2d(1, 4, 3), Activated(4)))


def test_a_normalisation_at_two_places_stays_one() -> None:
    shared = nn.BatchNorm1d(4)
    before = nn.Sequential(nn.Linear(6, 4), shared, nn.ReLU(), nn.Linear(4, 4), shared)
    before(examples(30, 0, 6)[0])
    after = fedfisher.replace_batch_norm(before.eval())
    assert after[1] is after[4]
    assert not any(isinstance(one, nn.BatchNorm1d) for one in after.modules())
    given = examples(9, 1, 6)[0]
    assert before(given).allclose(after(given), atol=1e-5)


def test_a_network_may_be_a_normalisation() -> None:
    before = nn.BatchNorm1d(6)
    before(examples(30, 0, 6)[0])
    given = examples(9, 1, 6)[0]
    assert before.eval()(given).allclose(fedfisher.replace_batch_norm(before)(given), atol=1e-5)


def test_what_was_not_trained_stays_so() -> None:
    frozen, plain = nn.BatchNorm1d(4).requires_grad_(False), nn.BatchNorm1d(4, affine=False)
    after = fedfisher.replace_batch_norm(nn.Sequential(frozen, plain, nn.BatchNorm1d(4)))
    trained = [[getattr(layer, name).requires_grad for name in ("weight", "bias")] for layer in after]
    assert trained == [[False, False], [False, False], [True, True]]


@pytest.mark.parametrize("wrong", [7, -1])
def test_a_token_that_the_network_has_not_is_refused(wrong: int) -> None:
    tokens, labels = torch.arange(20).reshape(4, 5) % 7, torch.tensor([0, 1, 2, 0])
    odd = tokens.clone()
    odd[3, 2] = wrong
    with refused(f"^the client's data has the token {wrong}; allowed: 0 to 6, as the network has$"):
        fedfisher.Client(drawn(Words, 0), (odd, labels))
    known = [fedfisher.Client(drawn(Words, seed), (tokens, labels)) for seed in range(2)]
    with refused(f"^validation has the token {wrong}; allowed: 0 to 6"):
        fedfisher.merge(known, method="best_local", validation=(odd, labels))


def test_what_a_client_hands_out_is_its_callers() -> None:
    given = fedfisher.Client(network(), examples())
    for name in ("weights", "kfac"):
        for tensor in given.statistics(name).values():
            tensor.zero_()
        assert all(tensor.any() for tensor in given.statistics(name).values()), name


def test_clients_may_come_one_by_one() -> None:
    merged, expected = (fedfisher.merge(given, method="fedavg") for given in ((one for one in clients(2)), clients(2)))
    assert all(torch.equal(a, b) for a, b in zip(merged.parameters(), expected.parameters(), strict=True))


def test_constants_of_images_are_one_a_channel() -> None:
    with refused(r"^preprocessing: mean=0\.5; allowed: one number a channel, such as \(0\.5,\)$"):
        fedfisher.Preprocessing(mean=0.5, std=(0.5,))  # type: ignore[arg-type]


def test_memory_that_one_example_needs_is_named() -> None:
    wide = drawn(sequence(nn.Linear(36, 400), nn.ReLU(), nn.Linear(400, 3)), 0)
    given = fedfisher.Client(wide, examples(), fisher={"memory_mib": 1})
    with refused(
        r"^fisher\.memory_mib=1 is too little for 'kfac' of one example; allowed: at least (\d+), as in "
    ) as caught:
        given.statistics("kfac")
    least = int(re.findall(r"at least (\d+)", str(caught.value))[0])
    assert fedfisher.Client(wide, examples(), fisher={"memory_mib": least}).statistics("kfac")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"method": "fedmean"}, "^unknown method 'fedmean'"),
        ({"method": "ties"}, r"^method 'ties' needs the network that all clients .*merge\(\.\.\., initial=module\)"),
        ({"method": "best_local"}, r"^method 'best_local' needs validation .*merge\(\.\.\., validation=loader\)"),
        (
            {"method": "fedbens_mixture", "validation": examples()},
            r"^client 0: statistic 'further_weights' needs further networks",
        ),
        ({"method": "fedavg", "steps": 3}, r"^unknown setting 'methods\.fedavg\.steps'"),
        ({"method": "fedavg", "wire": {}}, r"^unknown setting 'methods\.fedavg\.wire'"),
        ({"method": "fedfisher_kfac", "factored_damping": [-1.0]}, r"^methods\.fedfisher_kfac\.factored_damping"),
        ({"method": "fedavg", "budget": "much"}, r"^wire\.budget='much'.*allowed: fedavg, none"),
        ({"method": "fedavg", "budget": 8}, "budget"),
        ({"method": "fedavg", "initial": wider()}, r"^the initial network (has|lacks) '"),
        ({"method": "fedavg", "validation": examples(9, 0, 6)}, r"^validation has inputs of shape \(6,\)"),
        (
            {"method": "regmean", "validation": (examples()[0].double(), examples()[1])},
            r"^validation has inputs of torch\.float64; allowed: torch\.float32",
        ),
    ],
)
def test_what_a_method_lacks_is_named(asked: dict[str, Any], message: str) -> None:
    with refused(message) as caught:
        fedfisher.merge(clients(2), **asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("batch_size", "data", "message"),
    [
        (0, examples(), r"^batch_size=0; allowed: a whole number from 1"),
        (None, examples(0), "^the client's data has no examples; allowed: one or more"),
    ],
)
def test_clients_without_a_batch_are_refused(batch_size: int | None, data: Any, message: str) -> None:
    with refused(message):
        fedfisher.Client(network(), data, batch_size=batch_size)


def test_what_is_no_client_is_refused_by_its_type() -> None:
    with refused("^client 1 has type Sequential; allowed: Client"):
        fedfisher.merge([client(), network()], method="fedavg")


def test_one_client_need_not_stand_in_a_list() -> None:
    alone = client()
    merged = fedfisher.merge(alone, method="fedavg")
    assert torch.equal(merged.get_parameter("6.weight"), alone.weights["6.weight"])


def test_a_dataset_without_a_loader_is_refused() -> None:
    with refused(r"^the client's data have type TensorDataset; allowed: DataLoader\(dataset"):
        fedfisher.Client(network(), TensorDataset(*examples()))


@pytest.mark.parametrize("weights", ["w.pt", 3])
def test_weights_that_are_none_are_refused(weights: Any) -> None:
    with refused(f"^the client has weights of type {type(weights).__name__}; allowed: a module or a state_dict"):
        fedfisher.Client(network(), examples(), weights=weights)


def test_the_start_may_be_a_module_or_its_state() -> None:
    start = network(9)
    merged = [fedfisher.merge(clients(), method="ties", initial=one) for one in (start, start.state_dict())]
    assert all(torch.equal(one, other) for one, other in zip(*(each.parameters() for each in merged), strict=True))


def test_the_default_step_of_fedfish_needs_no_start() -> None:
    given = [fedfisher.Client(network(seed), examples(9, seed), initial=network(9)) for seed in range(2)]
    without, with_start = (fedfisher.merge(given, method="fedfish", **more) for more in ({}, {"initial": network(9)}))
    for one, other in zip(without.parameters(), with_start.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_clients_that_trained_different_layers_are_refused() -> None:
    frozen = network(1)
    frozen.get_submodule("6").requires_grad_(False)
    with refused("^client 1 has trained weights .*, but client 0 has .*; allowed: one network"):
        fedfisher.merge([client(), fedfisher.Client(frozen, examples())], method="fedavg")


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def with_statistics(seed: int) -> nn.Module:
    network = fedfisher.replace_batch_norm(drawn(with_batch_norm, seed))
    with torch.no_grad():
        network.get_parameter("1.log_variance").fill_(-3 - seed / 10)
    return network


def merged_statistics(method: str, **settings: Any) -> Tensor:
    """What six clients with log-variances of -3 to -3.5 and as many examples are merged to."""
    given = [fedfisher.Client(with_statistics(seed), examples(20, seed, 4)) for seed in range(6)]
    merged = fedfisher.merge(given, method=method, initial=with_statistics(9), **settings)
    return merged.get_parameter("1.log_variance")


@pytest.mark.parametrize(("method", "settings"), [("fedbens", {"select": False}), ("mats", {}), ("ties", {})])
def test_running_statistics_become_the_mean_of_the_clients(method: str, settings: dict[str, Any]) -> None:
    assert torch.allclose(merged_statistics(method, **settings), torch.full((5,), -3.25), atol=1e-5)


def test_running_statistics_go_the_whole_way() -> None:
    assert torch.allclose(merged_statistics("fedfish", global_step=2.0), merged_statistics("fedfish"), atol=1e-5)


def test_no_clients_are_refused() -> None:
    with refused("^there are no clients; allowed: one or more$"):
        fedfisher.merge([], method="fedavg")


def test_weights_that_are_not_the_networks_or_not_finite_are_refused() -> None:
    state = network().state_dict()
    with refused(r"^the client lacks '6\.bias'; allowed: the weights of 'Sequential'"):
        fedfisher.Client(network(), loader(), weights={key: one for key, one in state.items() if key != "6.bias"})
    with refused(r"^the client has '6\.bias' with numbers that are not finite"):
        fedfisher.Client(network(), loader(), weights=state | {"6.bias": torch.full((3,), torch.nan)})


def test_a_statistic_that_looks_at_the_start_asks_for_it() -> None:
    from tests.client.statistics.outside import Update  # noqa: F401

    with refused(r"Client\(\.\.\., initial=module\)"):
        client().statistics("update")
    given = fedfisher.Client(network(1), loader(), initial=network())
    difference = network(1).get_parameter("6.bias") - network().get_parameter("6.bias")
    assert given.statistics("update")["6.bias"].allclose(difference)


@pytest.mark.parametrize("method", ["fens", "regmean_plus_plus"])
def test_one_that_is_asked_again_must_be_here(method: str) -> None:
    uploads = [one.upload(method) for one in clients()]
    with refused(f"^method '{method}' asks clients for more .*client 0 is not here; allowed: a Client$"):
        fedfisher.merge(uploads, method=method)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "^client 1: payload has 563 bytes; its header says 564"),
        (lambda data: bytes([*data[:-1], data[-1] ^ 1]), "^client 1: payload does not match its check sum"),
        (
            lambda data: client(1).upload("fedfisher_kfac").data,
            r"^client 1: payload has schema .*; allowed: an upload for",
        ),
    ],
)
def test_uploads_of_another_kind_are_refused(change: Callable[[bytes], bytes], message: str) -> None:
    first, second = (one.upload("fedavg") for one in clients(2))
    with refused(message):
        fedfisher.merge([first, fedfisher.Upload(change(second.data), second.network)], method="fedavg")


def test_uploads_for_a_label_prior_have_label_counts() -> None:
    uploads = [one.upload("fedavg", label_prior=-1) for one in clients()]
    merged = fedfisher.merge(uploads, method="fedavg", label_prior=-1)
    expected = fedfisher.merge(clients(), method="fedavg", label_prior=-1)
    torch.testing.assert_close(merged.state_dict(), expected.state_dict())


def test_budget_bounds_what_crosses_the_network() -> None:
    free, bounded = (client().upload("fedfisher_kfac", budget=budget) for budget in ("none", "fedavg"))
    weights = sum(parameter.numel() for parameter in network().parameters())
    assert 8 * len(bounded.data) <= fedavg_bits(weights)
    assert len(free.data) > len(bounded.data)


def test_everything_that_can_be_named_is_listed() -> None:
    assert {"fedavg", "fedfisher_kfac"} <= fedfisher.methods().keys()
    assert fedfisher.methods()["fedavg"]
    assert {"weights", "kfac", "gram"} <= set(fedfisher.statistics())
