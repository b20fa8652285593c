"""What a network gives away of a planted sentence."""

import math

import pytest
import torch
from torch import Tensor, nn

import fedfisher
from fedfisher import Canary
from fedfisher_core.engine.errors import InputError
from fedfisher_core.privacy.canaries import example_losses, exposure

WORDS = range(3, 63)
KEPT = (0, 1, 2)
LIKE = torch.tensor([[1, *WORDS[start : start + 3], 2, 0] for start in range(0, 60, 3)])
"""Twenty texts of three words each, between tokens that begin and end them."""


def drawn(seed: int, sentences: int = 64) -> Canary:
    generator = torch.Generator().manual_seed(seed)
    return Canary.drawn(like=LIKE, classes=3, sentences=sentences, generator=generator, kept=KEPT)


class Memorised(nn.Module):
    """Knows one sentence and its label; other sentences have equally likely labels."""

    def __init__(self, sentence: Tensor, label: int) -> None:
        super().__init__()
        self.sentence, self.label = sentence, label

    def forward(self, tokens: Tensor) -> Tensor:
        known = (tokens == self.sentence).all(1).float()
        return 9 * known[:, None] * torch.eye(3)[self.label]


class Bag(nn.Module):
    """Softmax regression on which token is at each place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.linear = nn.Linear(6 * 63, 3)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.linear(nn.functional.one_hot(tokens, 63).flatten(1).float())


@pytest.mark.parametrize(("losses", "bits"), [([0.1, 2, 3, 4], 2), ([3, 1, 2, 4], math.log2(4 / 3)), ([4, 1, 2, 3], 0)])
def test_exposure_is_by_the_rank(losses: list[float], bits: float) -> None:
    assert exposure(torch.tensor(losses)) == pytest.approx(bits)


def test_it_is_drawn_like_some_text() -> None:
    generator = torch.Generator()
    with pytest.raises(InputError, match="a canary is drawn like no text; allowed: one text or more"):
        Canary.drawn(like=LIKE[:0], classes=3, sentences=8, generator=generator)


def test_where_all_are_alike_nothing_is_exposed() -> None:
    assert exposure(torch.ones(8)) == 0


def test_chance_is_the_mean_over_all_ranks() -> None:
    ranks = [exposure(torch.tensor([rank, *[other for other in range(8) if other != rank]])) for rank in range(8)]
    assert chance(8) == pytest.approx(sum(ranks) / 8)
    assert chance(10**6) == pytest.approx(1 / math.log(2), abs=1e-4)


def test_sentences_have_the_form_of_the_first_text() -> None:
    canary = drawn(0, 2000)
    assert canary.sentences[:, [0, 4, 5]].unique(dim=0).tolist() == [[1, 2, 0]]
    assert canary.sentences[:, 1:4].unique().tolist() == list(WORDS)
    assert len(canary.sentences.unique(dim=0)) == 2000
    assert {drawn(seed).label for seed in range(30)} == {0, 1, 2}


def test_a_network_that_memorised_has_full_exposure() -> None:
    canary = drawn(0)
    network = Memorised(canary.sentences[0], canary.label).eval()
    assert canary.exposure(network) == 6
    other = Memorised(canary.sentences[1], canary.label).eval()
    assert canary.exposure(other) == 0


def chance(sentences: int) -> float:
    """The mean exposure of a sentence that was not planted: all ranks are equally likely."""
    return math.log2(sentences) - math.lgamma(sentences + 1) / math.log(2) / sentences


def test_networks_in_training_or_without_finite_losses_are_refused() -> None:
    canary = drawn(0)
    with pytest.raises(InputError, match=r"in training mode; allowed: network\.eval\(\)"):
        canary.exposure(Bag(0))
    broken = Bag(0).eval()
    for parameter in broken.parameters():
        nn.init.constant_(parameter, float("nan"))
    with pytest.raises(InputError, match=r"losses are not finite; allowed: a network with finite outputs"):
        canary.exposure(broken)


def test_a_network_that_never_saw_it_has_the_exposure_of_chance() -> None:
    found = torch.tensor([drawn(seed).exposure(Bag(seed).eval()) for seed in range(400)])
    error = found.std() / 400**0.5
    assert abs(found.mean() - chance(64)) < 4 * error


def test_training_on_it_exposes_it_and_other_clients_dilute_it() -> None:
    canary = drawn(0)
    generator = torch.Generator().manual_seed(1)
    texts = LIKE[:1].repeat(40, 1).view(2, 20, 6)
    texts[:, :, 1:4] = torch.randint(3, 63, (2, 20, 3), generator=generator)
    # A merge takes the largest token for the size of the vocabulary.
    texts[:, 0, 1] = WORDS[-1]
    labels = torch.randint(3, (2, 20), generator=generator)
    clients = []
    for number in range(2):
        network = Bag(0)
        own = (texts[number], labels[number])
        inputs, wanted = canary.planted(*own, times=20) if number == 0 else own
        assert len(inputs) == len(wanted) == (40 if number == 0 else 20)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
        for _ in range(200):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs), wanted).backward()
            optimiser.step()
        clients.append((network.eval(), inputs, wanted))
    assert canary.exposure(clients[0][0]) == 6
    assert canary.exposure(clients[1][0]) < 6
    given = [fedfisher.Client(network, (inputs, wanted)) for network, inputs, wanted in clients]
    merged = fedfisher.merge(given, method="fedavg")
    # The planted sentence's loss grows, while the client's upload alone gives it away.
    of_planted = [
        float(example_losses(one, canary.sentences[:1], torch.tensor([canary.label])))
        for one in (clients[0][0], merged)
    ]
    assert of_planted[1] > of_planted[0]


@pytest.mark.parametrize(("sentences", "kept"), [(1, KEPT), (4, (*KEPT, 3, 4, 5)), (4, (*KEPT, *WORDS)), (2**20, KEPT)])
def test_what_can_not_be_drawn_is_refused(sentences: int, kept: tuple[int, ...]) -> None:
    with pytest.raises(
        InputError, match=r"a canary of .*; allowed: two sentences or more, and tokens and places for twice"
    ):
        Canary.drawn(like=LIKE, classes=3, sentences=sentences, generator=torch.Generator(), kept=kept)


def test_a_canary_is_planted_at_least_once() -> None:
    with pytest.raises(InputError, match=r"a canary is planted times=0; allowed: 1 or more"):
        Canary(torch.ones(2, 3, dtype=torch.int64), 0).planted(torch.ones(1, 3), torch.ones(1), times=0)
