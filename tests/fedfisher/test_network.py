"""Networks as people write them: which layer has the classes, what is frozen, and what no client sends."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedfisher
from tests.fedfisher.own import drawn, examples, network


def refused(message: str) -> Any:
    return pytest.raises(fedfisher.InputError, match=message)


class HeadFirst(nn.Module):
    """A network whose last layer is defined first, and whose other layer has as many units as there are classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(3, 3), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs).relu())


def test_a_layer_that_nothing_reads_is_not_the_layer_of_classes() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.spare = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.head(self.body(inputs).relu())

    inputs, _ = examples(12, 0, 4)
    given = [fedfisher.Client(drawn(Spare, seed), (inputs, torch.arange(12) % 2)) for seed in range(2)]
    merged = fedfisher.merge(given, method="fedavg_by_holders")
    assert not merged.get_parameter("head.weight")[2].any()
    assert merged.get_parameter("spare.weight")[2].any()


def test_a_head_that_the_network_reads_itself_is_the_layer_of_classes() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return nn.functional.linear(self.body(inputs).relu(), self.head.weight, self.head.bias)

    inputs, _ = examples(12, 0, 4)
    given = [fedfisher.Client(drawn(Reading, seed), (inputs, torch.arange(12) % 2)) for seed in range(2)]
    merged = fedfisher.merge(given, method="fedavg_by_holders")
    assert not merged.get_parameter("head.weight")[2].any()
    assert merged.get_parameter("body.weight")[2].any()


@pytest.mark.parametrize("method", ["fedavg_by_holders", "ma_echo_official"])
def test_the_layer_of_classes_is_the_last_that_is_called(method: str) -> None:
    inputs, _ = examples(12, 0, 4)
    # Class 2 is held by no client, so that its row of the layer of classes becomes 0.
    given = [fedfisher.Client(drawn(HeadFirst, seed), (inputs, torch.arange(12) % 2)) for seed in range(2)]
    merged = fedfisher.merge(given, method=method)
    assert not merged.get_parameter("head.weight")[2].any()
    assert merged.get_parameter("body.weight")[2].any()


class Characters(nn.Module):
    """A network with more positions than tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions, self.head = nn.Embedding(7, 3), nn.Embedding(16, 3), nn.Linear(3, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        return self.head((self.tokens(tokens) + self.positions(places)).mean(1))


def test_tokens_that_a_network_changes_are_the_callers_own() -> None:
    class Clamping(Characters):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens.clamp_(min=1))

    tokens = torch.zeros(4, 3, dtype=torch.int64)
    with refused("^model 'Clamping' changes the examples that it is given"):
        fedfisher.Client(Clamping(), (tokens, torch.zeros(4, dtype=torch.int64)))
    assert not tokens.any()


def test_a_table_that_is_called_by_keyword_is_averaged_and_has_no_fisher() -> None:
    class Named(Characters):
        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.tokens(input=tokens).mean(1))

    tokens = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0))
    given = [fedfisher.Client(drawn(Named, seed), (tokens, torch.arange(9) % 3)) for seed in range(2)]
    assert fedfisher.merge(given, method="fedavg")(tokens).shape == (9, 3)
    with refused("layer 'tokens' gets its inputs by keyword; allowed: by position"):
        fedfisher.merge(given, method="fedfisher_diag")


def test_positions_are_no_tokens() -> None:
    tokens = torch.tensor([[1, 2, 3], [6, 5, 4]])
    with refused("^the client's data has the token 7; allowed: 0 to 6, as the network has$"):
        fedfisher.Client(Characters(), (torch.cat([tokens, tokens + 1]), torch.zeros(4, dtype=torch.int64)))


@pytest.mark.parametrize("method", ["fedfisher_kfac", "fedfisher_diag"])
def test_a_frozen_table_of_tokens_is_served(method: str) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding.from_pretrained(torch.eye(7, 4))
            self.head = nn.Linear(4, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            rows = self.table(tokens)
            rows *= 2.0
            return self.head(rows.mean(1))

    tokens = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0))
    given = [fedfisher.Client(drawn(Words, seed), (tokens, torch.arange(9) % 3)) for seed in range(2)]
    merged = fedfisher.merge(given, method=method)
    assert torch.allclose(merged.get_parameter("table.weight"), torch.eye(7, 4), atol=1e-6)


class OneHot(nn.Module):
    """A frozen linear layer on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(7, 4), nn.Linear(4, 3)
        self.first.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.first(nn.functional.one_hot(tokens, 7).float()).mean(1))


class Silent(OneHot):
    """The same under torch.no_grad."""

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            rows = self.first(nn.functional.one_hot(tokens, 7).float())
        return self.head(rows.mean(1))


def test_frozen_layers_have_the_same_fisher_under_no_grad() -> None:
    tokens = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0))
    found = [
        fedfisher.Client(drawn(kind, 0), (tokens, torch.arange(9) % 3)).statistics("diagonal_fisher")
        for kind in (OneHot, Silent)
    ]
    assert found[0]["first.weight"].any()
    assert all(torch.allclose(found[1][key], one) for key, one in found[0].items())


def test_a_trained_layer_under_no_grad_is_refused() -> None:
    module = drawn(Silent, 0)
    module.requires_grad_()
    tokens = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0))
    with refused("layer 'first' has weights that are trained, and outputs without a gradient; allowed"):
        fedfisher.Client(module, (tokens, torch.arange(9) % 3)).statistics("diagonal_fisher")


@pytest.mark.parametrize("method", ["fedfisher_kfac", "fedfisher_diag"])
def test_a_network_whose_parameters_are_its_own_is_served(method: str) -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs @ self.weight

    inputs, labels = examples(9, 0, 4)
    given = [fedfisher.Client(drawn(Rows, seed), (inputs, labels)) for seed in range(2)]
    assert fedfisher.merge(given, method=method)(inputs).shape == (9, 3)


def test_tensors_in_lists_are_refused_by_name() -> None:
    module = network()
    module.masks = [torch.ones(3)]
    with refused("'masks' is or holds a tensor that no client sends; allowed: parameters, and tensors"):
        fedfisher.Client(module, examples())
