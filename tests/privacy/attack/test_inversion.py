"""The search for latents: its update, its loss, and what it finds in a network whose answer is known."""

import math

import pytest
import torch
from torch import Tensor, nn

from fedfisher_core.client.statistics.kfac import KFAC
from fedfisher_core.data.tensors import normalise
from fedfisher_core.engine.errors import DivergedAttackError, InputError
from fedfisher_core.privacy.attack.evidence import Knowledge, Together, evidence_of
from fedfisher_core.privacy.attack.inversion import Reconstruction, Terms, invert, update
from fedfisher_core.privacy.attack.settings import InversionSettings
from tests.privacy.attack.pieces import PIXELS, pixelwise_gan
from tests.tiny import CLASSES, LINEAR, SIZE, TINY, TINY_DATA, examples, initial, local

SETTINGS = InversionSettings(restarts=3, images=4, iterations=30, learning_rate=0.02)
TARGET = 2


def view(pixels: Tensor) -> Tensor:
    return normalise(pixels, TINY_DATA)


def linear() -> nn.Module:
    return LINEAR.load(initial(LINEAR, seed=5))


def attack(network: nn.Module | None = None, *, settings: InversionSettings = SETTINGS, **changes) -> Reconstruction:
    return invert(
        network or linear(),
        changes.pop("gan", pixelwise_gan()),
        changes.pop("target", TARGET),
        settings,
        normalise=view,
        generator=torch.Generator().manual_seed(0),
        **{"evidence": Together()} | changes,
    )


def test_two_updates_by_hand() -> None:
    position, velocity = 0.5, 0.0
    rate, momentum = 0.1, 0.9
    latents, velocities = torch.tensor([position]), torch.zeros(1)
    for gradient in (2.0, -1.0):
        following = momentum * velocity - rate * gradient
        position += -momentum * velocity + (1 + momentum) * following
        velocity = following
        latents, velocities = update(
            latents, velocities, torch.tensor([gradient]), learning_rate=rate, momentum=momentum, clip=1.0
        )
    # v: -0.2, then -0.08; z: 0.5 - 0.38 = 0.12, then 0.12 + 0.18 - 0.152.
    assert position == pytest.approx(0.148)
    assert latents.item() == pytest.approx(position)
    assert velocities.item() == pytest.approx(-0.08)


def test_an_update_ends_inside_the_bounds_and_keeps_its_velocity() -> None:
    latents, velocity = update(
        torch.tensor([0.9, -5.0]), torch.zeros(2), torch.tensor([-1.0, 0.0]), learning_rate=1.0, momentum=0.5, clip=0.7
    )
    assert latents.tolist() == pytest.approx([0.7, -0.7])
    assert velocity.tolist() == [1.0, 0.0]


def test_the_first_iteration_by_hand() -> None:
    network, evidence = linear(), evidence_of(kfac(), Knowledge(linear(), CLIENT, share=0.5, target=0))
    settings = SETTINGS.model_copy(update={"restarts": 1, "iterations": 1, "statistics_weight": 25.0})
    found = attack(network, settings=settings, evidence=evidence)
    start = torch.randn(4, PIXELS, generator=torch.Generator().manual_seed(0))
    latents = start.clone().requires_grad_()
    images = latents.sigmoid().reshape(4, 1, SIZE, SIZE)
    logits = network((images - 0.4) / 0.3)
    prior = -images.mean()
    identity = -logits.log_softmax(1)[:, TARGET].mean()
    given = sum(tensor.square().sum() for tensor in kfac().tensors.values())
    fit = evidence.loss(network, ((images - 0.4) / 0.3)[None])[0] / given
    loss = prior + 100 * identity + 25 * fit
    (gradient,) = torch.autograd.grad(loss, latents)
    assert found.losses.tolist() == [[pytest.approx(loss.item(), rel=1e-5)]]
    assert found.terms.prior.tolist() == pytest.approx([prior.item()])
    assert found.terms.identity.tolist() == pytest.approx([identity.item()])
    assert found.terms.evidence.tolist() == pytest.approx([fit.item()], rel=1e-4)
    expected = (start - 1.9 * 0.02 * gradient).clamp(-1, 1)
    torch.testing.assert_close(found.latents[0], expected, rtol=1e-4, atol=1e-5)


def test_a_linear_network_is_inverted() -> None:
    network = linear()
    found = attack(network)
    assert (found.losses[-1] < 0.5 * found.losses[0]).all()
    assert found.images.shape == (3, 4, 1, SIZE, SIZE)
    with torch.no_grad():
        logits = network(view(found.images.flatten(0, 1)))
    assert (logits.argmax(1) == TARGET).all()
    torch.testing.assert_close(found.logits, logits[:, TARGET].reshape(3, 4).mean(1))
    # Where the target's weight is far above the others', pixels are bright.
    weight = network.get_parameter("head.weight")
    lead = weight[TARGET] - weight.mean(0)
    assert torch.corrcoef(torch.stack([lead, found.images.mean((0, 1)).flatten()]))[0, 1] > 0.7


def test_the_prior_alone_makes_what_the_critic_likes() -> None:
    found = attack(settings=SETTINGS.model_copy(update={"identity_weight": 0.0, "learning_rate": 50.0}))
    assert found.images.min().item() == pytest.approx(1 / (1 + math.exp(-1)))


def test_latents_stay_inside_the_bounds() -> None:
    settings = SETTINGS.model_copy(update={"clip": 0.3, "learning_rate": 1.0})
    latents = attack(settings=settings).latents
    assert latents.abs().max().item() == pytest.approx(0.3)


def test_restarts_do_not_see_each_other() -> None:
    evidence = evidence_of(kfac(), Knowledge(linear(), CLIENT, share=0.5, target=0))
    all_three = attack(evidence=evidence)
    alone = attack(settings=SETTINGS.model_copy(update={"restarts": 1}), evidence=evidence)
    torch.testing.assert_close(all_three.images[:1], alone.images)
    torch.testing.assert_close(all_three.losses[:, :1], alone.losses)
    assert not torch.allclose(all_three.images[0], all_three.images[1])


CLIENT = examples(12, seed=1).inputs


def kfac() -> KFAC:
    return KFAC.compute(local(linear(), examples(12, seed=1)))


def test_evidence_draws_images_to_the_clients_statistic() -> None:
    evidence = evidence_of(kfac(), Knowledge(linear(), CLIENT, share=0.5, target=0))
    settings = SETTINGS.model_copy(update={"statistics_weight": 100.0, "identity_weight": 0.0})
    with_evidence = attack(settings=settings, evidence=evidence)
    ignored = attack(settings=settings.model_copy(update={"statistics_weight": 0.0}), evidence=evidence)
    assert (with_evidence.terms.evidence < 0.5 * ignored.terms.evidence).all()


def test_the_best_restart_has_the_highest_logit_even_if_all_are_negative() -> None:
    nothing = torch.zeros(3)
    found = Reconstruction(
        images=torch.arange(3.0).reshape(3, 1, 1, 1, 1),
        latents=torch.zeros(3, 1, 1),
        logits=torch.tensor([-5.0, -2.0, -3.0]),
        losses=torch.zeros(1, 3),
        terms=Terms(nothing, nothing, nothing),
    )
    assert found.best == 1
    assert found.best_images.item() == 1


def test_networks_run_in_evaluation_mode_and_leave_as_they_came() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(PIXELS, CLASSES, bias=False)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.head(nn.functional.dropout(inputs.flatten(1), 0.5, self.training))

    network = Noisy()
    network.head.load_state_dict(linear().head.state_dict())
    gan = pixelwise_gan()
    gan.generator.train()
    torch.testing.assert_close(attack(network, gan=gan).images, attack().images)
    assert network.training
    assert gan.generator.training
    assert not any(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("target", [-1, CLASSES])
def test_classes_that_the_network_lacks_are_refused(target: int) -> None:
    with pytest.raises(InputError, match=f"target={target}; allowed for the attacked network: 0 to 2"):
        attack(target=target)


def test_a_diverged_network_is_named() -> None:
    network = linear()
    with torch.no_grad():
        network.get_parameter("head.weight")[0, 0] = torch.nan
    with pytest.raises(DivergedAttackError, match="iteration 1"):
        attack(network)


def test_evidence_of_another_network_is_refused() -> None:
    other = TINY.load(initial())
    evidence = evidence_of(KFAC.compute(local(other, examples(12))), Knowledge(other, CLIENT, share=0.5, target=0))
    with pytest.raises(InputError, match="'kfac' holds conv"):
        attack(evidence=evidence)
