"""Co-Boosting: distillation of an ensemble whose members' weights are learnt, on images that it finds hard."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import require_images
from fedfisher_core.data.tensors import augment, normalise
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.distillation.generator import draw_generator, require_room
from fedfisher_core.methods.distillation.student import Teacher, distillation_loss
from fedfisher_core.methods.distillation.synthesis import synthesise
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import mean_parameters
from fedfisher_core.models.evaluation import logits
from fedfisher_core.models.layers import begin_training
from fedfisher_core.models.spec import parameters_of

Factor = Annotated[float, Field(ge=0)]

# The authors' code has these numbers, and no setting for them.
_ADVERSARIAL_TEMPERATURE = 3.0
_DIRECTION_TEMPERATURE = 4.0
_LONGEST_GRADIENT = 10.0
# Roundings of the largest output up to which a slope counts as zero.
_ROUNDED = 16


@dataclass(frozen=True)
class HardObjective:
    """The loss that hard images are synthesised by (Dai et al. 2024, L_H and L_A).

    Args:
        classes: factor of the teacher's cross-entropy with the labels, weighted image by image.
        hardness: exponent of 1 - p in these weights, where p is the teacher's probability of the label.
        batch_norm: factor of the distance from the statistics in the teacher's batch normalisation.
        adversarial: factor of minus the divergence of student and teacher.
    """

    classes: float
    hardness: float
    batch_norm: float
    adversarial: float

    def __call__(self, student: Tensor, teacher: Tensor, labels: Tensor, distance: Tensor | float) -> Tensor:
        """Sum the losses of logits of shape (images, classes)."""
        entropies = functional.cross_entropy(teacher, labels, reduction="none")
        weights = (1 - (-entropies.detach()).exp()) ** self.hardness
        return (
            self.classes * (weights * entropies).mean()
            + self.batch_norm * distance
            - self.adversarial * distillation_loss(student, teacher, _ADVERSARIAL_TEMPERATURE)
        )


def boosted(weights: Tensor, outputs: Tensor, labels: Tensor, step: float) -> Tensor:
    """Move the ensemble's weights by one signed gradient step, within 0 and 1 (Dai et al. 2024, equation 10).

    Scaled weights make the same prediction, so that the gradient is orthogonal to them: not all of them can fall. A
    slope that is nothing but rounding, as that of clients with equal outputs, moves no weight.

    Args:
        weights: of the clients, shape (clients,).
        outputs: logits of the clients, shape (clients, images, classes).
        labels: shape (images,).
    """
    weights = weights.detach().requires_grad_()
    total = weights.sum()
    loss = functional.cross_entropy(torch.einsum("k,knc->nc", weights / total, outputs), labels)
    (gradient,) = torch.autograd.grad(loss, weights)
    rounding = _ROUNDED * torch.finfo(outputs.dtype).eps * outputs.abs().max() / total.detach()
    signs = torch.where(gradient.abs() > rounding, gradient.sign(), 0)
    return (weights.detach() - step * signs).clamp(0, 1)


def diversified(teacher: nn.Module, inputs: Tensor, size: Tensor | float, generator: torch.Generator) -> Tensor:
    """Move each input by a signed step that changes the teacher's prediction in a random direction.

    Dai et al. 2024, equations 6 and 7; the direction is drawn uniformly from [-1, 1] class by class.

    Args:
        inputs: shape (images, channels, height, width).
        size: of the step of every element, in a shape that broadcasts against the inputs.
        generator: draws the directions, on the CPU.
    """
    inputs = inputs.detach().requires_grad_()
    predicted = (teacher(inputs) / _DIRECTION_TEMPERATURE).softmax(1)
    directions = 2 * torch.rand(predicted.shape, generator=generator).to(predicted) - 1
    (gradient,) = torch.autograd.grad((directions * predicted).sum(), inputs)
    return inputs.detach() + size * gradient.sign()


@method(
    "co_boosting",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2402.15070",
    supports=require_room,
)
def co_boosting(
    server: Server,
    uploads: Sequence[Upload],
    *,
    epochs: PositiveInt = 200,
    start: Annotated[Literal["fedavg", "initial"], Field(description="weights of the student at first")] = "initial",
    learning_rate: Annotated[PositiveFloat, Field(description="of the student's SGD, at first")] = 0.01,
    momentum: Annotated[float, Field(ge=0, lt=1, description="of the student's SGD")] = 0.9,
    weight_decay: Annotated[Factor, Field(description="of the student's SGD")] = 1e-4,
    batch_size: Annotated[PositiveInt, Field(description="images a step of the student and of the weights")] = 128,
    temperature: Annotated[PositiveFloat, Field(description="of the distillation")] = 4.0,
    images: Annotated[int, Field(ge=2, description="synthesised every epoch")] = 128,
    latent: Annotated[PositiveInt, Field(description="numbers of noise an image")] = 256,
    generator_steps: Annotated[PositiveInt, Field(description="of the generator's Adam every epoch")] = 30,
    generator_learning_rate: Annotated[PositiveFloat, Field(description="of the generator's Adam")] = 1e-3,
    class_loss: Annotated[Factor, Field(description="factor of the weighted cross-entropy")] = 1.0,
    hardness: Annotated[Factor, Field(description="exponent of 1 - p in its weights; 0 for equal weights")] = 1.0,
    batch_norm_loss: Annotated[Factor, Field(description="factor of the distance of statistics")] = 0.0,
    adversarial_loss: Annotated[Factor, Field(description="factor of the divergence")] = 1.0,
    perturbation: Annotated[Factor, Field(description="of the student's pixels, where white is 1")] = 4 / 255,
    weight_step: Annotated[Factor, Field(description="of the ensemble's weights, at first; 0 for equal ones")] = 0.01,
    weight_decline: Annotated[float, Field(gt=0, le=1, description="of that step from epoch to epoch")] = 0.99,
) -> Aggregate:
    """Distil the clients' ensemble on hard images, and learn the ensemble's weights on them (Dai et al. 2024).

    In each epoch a new generator makes images whose labels the ensemble finds hard and that student and ensemble judge
    differently; the ensemble's weights move to predict the labels of the images so far; and the student learns
    from the ensemble on all images, moved a little. The defaults are those of the authors' script `co_boosting.sh`.
    Their code enlarges images of 28x28 pixels to 32x32, keeps 8 bits of a pixel and reports the best epoch on test
    images. Here images have the clients' size and full precision, and the last epoch counts.

    Images are cropped and mirrored where the clients' were.

    Args:
        epochs: batches of images, and passes of the student over all batches so far.

    Raises:
        ArithmeticError: the student or the generator diverged.
    """
    clients = [server.network(upload[Weights].tensors) for upload in uploads]
    weights = torch.full((len(clients),), 1 / len(clients), device=server.device)
    student = server.network(mean_parameters(uploads) if start == "fedavg" else server.initial)
    optimiser = torch.optim.SGD(student.parameters(), lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs)
    objective = HardObjective(
        classes=class_loss, hardness=hardness, batch_norm=batch_norm_loss, adversarial=adversarial_loss
    )
    shape = require_images(server.spec.inputs, "the generator")
    # The authors' 8 / 255 is of inputs whose deviation is taken as 0.5.
    white, black = (normalise(torch.full((1, *server.spec.inputs.shape), one), server.dataset) for one in (1.0, 0.0))
    moves = perturbation * (white - black).to(server.device)
    inputs = torch.empty(0, shape.channels, shape.height, shape.width, device=server.device)
    labels = torch.empty(0, dtype=torch.int64, device=server.device)

    def view(shown: Tensor) -> Tensor:
        return augment(shown, server.generator) if server.dataset.augment else shown

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(inputs), generator=server.generator).to(server.device)
        for first in range(0, len(order), batch_size):
            indices = order[first : first + batch_size]
            yield view(inputs[indices]), labels[indices]

    details = {}
    for epoch in track(range(epochs), what="epoch"):
        teacher = Teacher(clients, (weights / weights.sum()).tolist())
        wanted = torch.randint(server.spec.classes, (images,), generator=server.generator).to(server.device)
        made = synthesise(
            draw_generator(images=shape, latent=latent, generator=server.generator, device=server.device),
            teacher,
            student,
            torch.randn(images, latent, generator=server.generator).to(server.device),
            wanted,
            view=lambda pixels: normalise(pixels, server.dataset),
            # The distance is of all clients' layers together, and the authors take its mean over clients.
            objective=lambda student, taught, wanted, distance: objective(
                student, taught, wanted, distance / len(clients)
            ),
            steps=generator_steps,
            learning_rate=generator_learning_rate,
            gradient_norm=_LONGEST_GRADIENT,
        )
        # As in the authors' code, the weights do not see the newest images.
        for shown, known in batches():
            outputs = torch.stack([logits(client, shown) for client in clients])
            weights = boosted(weights, outputs, known, weight_step * weight_decline**epoch)
        teacher = Teacher(clients, (weights / weights.sum()).tolist())
        inputs = torch.cat([inputs, normalise(made.pixels, server.dataset)])
        labels = torch.cat([labels, wanted])
        begin_training(student, server.generator)
        total = 0.0
        for shown, _ in batches():
            moved = diversified(teacher, shown, moves, server.generator)
            loss = distillation_loss(student(moved), logits(teacher, moved), temperature)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), _LONGEST_GRADIENT)
            optimiser.step()
            total += loss.item() * len(shown)
        student.eval()
        schedule.step()
        if not all(is_finite(tensor) for tensor in student.parameters()):
            raise ArithmeticError(f"the student diverged in epoch {epoch + 1}; allowed: a lower learning_rate")
        details = {"synthesis_loss": made.loss, "distillation_loss": total / len(inputs)}
    shares = weights / weights.sum()
    return Aggregate.of(
        parameters_of(student), smallest_share=float(shares.min()), largest_share=float(shares.max()), **details
    )
