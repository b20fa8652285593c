"""Transformers that a caller wrote are merged with the statistics of their own layers."""

import pytest
import torch
from torch import Tensor, nn

import fedfisher
from fedfisher_core.fisher.engine import compute_fisher
from fedfisher_core.fisher.weight_sharing import WeightSharing
from tests.fisher.reference import TinyEncoder, TinyGPT, TinyViT, pad

TOKENS = 5


def examples(kind: type[nn.Module], seed: int, classes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Examples of some classes: a token, or the brightness of an image, says which."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes)[torch.randint(len(classes), (120,), generator=generator)]
    if kind is TinyViT:
        return torch.randn(120, 3, 7, 6, generator=generator) / 4 + labels[:, None, None, None] - 1.0, labels
    tokens = torch.randint(3, TOKENS, (120, 6), generator=generator)
    tokens[:, 0] = labels.clamp(min=1) if kind is TinyEncoder else labels
    tokens[labels == 0, 0] = 3 if kind is TinyEncoder else 0
    return pad(tokens) if kind is TinyEncoder else tokens, labels


def trained(kind: type[nn.Module], seed: int, classes: tuple[int, ...]) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    network = TinyViT(bias=True, channels=3) if kind is TinyViT else kind(bias=True)
    inputs, labels = examples(kind, seed, classes)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
    return network.eval(), (inputs, labels)


def accuracy(network: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    with torch.no_grad():
        return (network(data[0]).argmax(1) == data[1]).float().mean().item()


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((kind, "fedfisher_kfac") for kind in (TinyViT, TinyGPT, TinyEncoder)),
        (TinyGPT, "fedfisher_diag"),
        (TinyGPT, "regmean"),
    ],
)
def test_a_merged_transformer_knows_what_its_clients_know(kind: type[nn.Module], method: str) -> None:
    clients = [fedfisher.Client(*trained(kind, seed, (0, 1, 2))) for seed in (1, 2)]
    settings = {"off_diagonal": (0.9,)} if method == "regmean" else {}
    merged = fedfisher.merge(clients, method=method, **settings)
    assert accuracy(merged, examples(kind, 3, (0, 1, 2))) > 0.9


@pytest.mark.parametrize("kind", [TinyGPT, TinyEncoder])
def test_clients_of_other_classes_know_all_of_them_together(kind: type[nn.Module]) -> None:
    clients = [fedfisher.Client(*trained(kind, seed, classes)) for seed, classes in ((1, (0, 1)), (2, (1, 2)))]
    merged = fedfisher.merge(clients, method="fedfisher_kfac")
    assert accuracy(merged, examples(kind, 3, (0, 1, 2))) > 0.75


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
def test_the_form_of_kfac_is_a_setting_that_clients_share(sharing: str) -> None:
    network, data = trained(TinyEncoder, 1, (0, 1, 2))
    client = fedfisher.Client(network, data, fisher={"weight_sharing": sharing})
    expected = compute_fisher(network, data[0], weight_sharing=WeightSharing(sharing)).kfac
    found = client.statistics("kfac")
    assert all(torch.equal(found[f"{name}.outputs"], block.outputs) for name, block in expected.items())
    other = fedfisher.Client(network, data, fisher={"weight_sharing": "reduce" if sharing == "expand" else "expand"})
    with pytest.raises(fedfisher.InputError, match="has Fishers that are 'exact"):
        fedfisher.merge([client, other], method="fedfisher_kfac")


@pytest.mark.parametrize("kind", [TinyViT, TinyGPT, TinyEncoder])
def test_one_transformer_alone_stays_as_it_is(kind: type[nn.Module]) -> None:
    network, data = trained(kind, 1, (0, 1))
    merged = fedfisher.merge([fedfisher.Client(network, data)] * 2, method="fedfisher_kfac", budget="none")
    assert all(torch.allclose(merged.get_parameter(name), one) for name, one in network.named_parameters())


@pytest.mark.parametrize("form", ["fedfisher", "paper"])
def test_factors_of_a_transformer_fit_the_budget_of_its_weights(form: str) -> None:
    clients = [fedfisher.Client(*trained(TinyViT, seed, (0, 1, 2))) for seed in (1, 2)]
    sent = clients[0].upload("fedfisher_kfac", budget="fedavg", format=form)
    exact = clients[0].upload("fedfisher_kfac")
    assert len(sent.data) < len(exact.data) / 2
    merged = fedfisher.merge(clients, method="fedfisher_kfac", budget="fedavg", format=form)
    assert accuracy(merged, examples(TinyViT, 3, (0, 1, 2))) > 0.9
