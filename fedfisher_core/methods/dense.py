"""DENSE: distillation of the clients' ensemble on images that a generator makes up."""

import logging
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from fedfisher_core.client.statistics.weights import Weights
from fedfisher_core.client.uploads import Upload
from fedfisher_core.data.layouts import require_images
from fedfisher_core.data.tensors import augment, normalise
from fedfisher_core.engine.arithmetic import is_finite
from fedfisher_core.engine.progress import track
from fedfisher_core.methods.distillation.generator import draw_generator, require_room
from fedfisher_core.methods.distillation.student import Pool, Teacher, train_on_pool
from fedfisher_core.methods.distillation.synthesis import Objective, synthesise
from fedfisher_core.methods.method import method
from fedfisher_core.methods.server import Aggregate, Server
from fedfisher_core.methods.shared.averaging import mean_parameters, proportions
from fedfisher_core.models.evaluation import accuracy
from fedfisher_core.models.spec import parameters_of

_log = logging.getLogger("fedfisher.dense")

Factor = Annotated[float, Field(ge=0)]


@method(
    "dense",
    uploads=(Weights,),
    reference="https://arxiv.org/abs/2112.12371",
    supports=require_room,
    validates=lambda settings: settings.select,
)
def dense(
    server: Server,
    uploads: Sequence[Upload],
    *,
    epochs: PositiveInt = 20,
    start: Annotated[Literal["fedavg", "initial"], Field(description="weights of the student at first")] = "fedavg",
    select: Annotated[bool, Field(description="return the best epoch on the validation set, else the last")] = True,
    learning_rate: Annotated[PositiveFloat, Field(description="of the student's SGD")] = 0.01,
    momentum: Annotated[float, Field(ge=0, lt=1, description="of the student's SGD")] = 0.9,
    batch_size: Annotated[PositiveInt, Field(description="images a step of the student")] = 256,
    temperature: Annotated[PositiveFloat, Field(description="of the distillation")] = 20.0,
    teacher_weights: Annotated[
        Literal["examples", "uniform"], Field(description="of the clients' logits in the teacher's")
    ] = "examples",
    images: Annotated[int, Field(ge=2, description="synthesised every epoch")] = 256,
    latent: Annotated[PositiveInt, Field(description="numbers of noise an image")] = 256,
    generator_steps: Annotated[PositiveInt, Field(description="of the generator's Adam every epoch")] = 30,
    generator_learning_rate: Annotated[PositiveFloat, Field(description="of the generator's Adam")] = 1e-3,
    class_loss: Annotated[Factor, Field(description="factor of the cross-entropy (oh)")] = 1.0,
    batch_norm_loss: Annotated[Factor, Field(description="factor of the distance of statistics (bn)")] = 1.0,
    adversarial_loss: Annotated[Factor, Field(description="factor of the disagreement (adv)")] = 0.5,
    augmentation: Annotated[
        Literal["as_clients", "official", "never"],
        Field(description="whether networks see random crops and flips; official: of all that the generator makes"),
    ] = "as_clients",
    space: Annotated[
        Literal["pixels", "official"],
        Field(description="pixels: images are normalised as the clients' are; official: taken as they are"),
    ] = "pixels",
    official_8bit: Annotated[bool, Field(description="round the pool down to 8 bits, as PNG files do")] = False,
) -> Aggregate:
    """Distil the clients' ensemble into one network on synthesised images (Zhang et al. 2022, algorithm 1).

    Every epoch a new generator is trained to make a batch of images that the clients' mean logits are sure of and the
    student gets wrong; the student then learns from those logits on all batches so far. The defaults are FedFisher's;
    the authors' own are epochs=200, learning_rate=0.005, adversarial_loss=1, start=initial, teacher_weights=uniform,
    select=false, and their code has augmentation=official, space=official and official_8bit=true.

    Crops and flips harm digits, so by default images are augmented only where the clients' were. The authors' code
    crops and flips all images of the generator, and flips what the student learns from; it crops that as well where
    clients' images are cropped. A student whose weights are no longer finite is given up: the epochs before it count,
    or else its first weights.

    Args:
        epochs: batches of images, and passes of the student over all batches so far.
    """
    score = server.scorer() if select else None
    shares = proportions(uploads) if teacher_weights == "examples" else [1 / len(uploads)] * len(uploads)
    teacher = Teacher([server.network(upload[Weights].tensors) for upload in uploads], shares)
    best = mean_parameters(uploads) if start == "fedavg" else server.initial
    student = server.network(best)
    optimiser = torch.optim.SGD(student.parameters(), lr=learning_rate, momentum=momentum)
    objective = Objective(classes=class_loss, batch_norm=batch_norm_loss, adversarial=adversarial_loss)
    augmented = augmentation == "official" or (augmentation == "as_clients" and server.dataset.augment)

    def enter(pixels: Tensor) -> Tensor:
        return normalise(pixels, server.dataset) if space == "pixels" else pixels

    def view(pixels: Tensor) -> Tensor:
        return augment(enter(pixels), server.generator) if augmented else enter(pixels)

    def vary(inputs: Tensor) -> Tensor:
        if server.dataset.augment:
            return augment(inputs, server.generator)
        # Without padding there is nothing to crop, and images are only mirrored.
        return augment(inputs, server.generator, padding=0)

    shown = require_images(server.spec.inputs, "the generator")
    pool = Pool(teacher, vary if augmented else None)
    details = {"selected_epoch": 0.0}
    if score is not None:
        details["teacher_validation_accuracy"] = accuracy(teacher, server.validation)
    highest = -1.0
    for epoch in track(range(1, epochs + 1), what="epoch"):
        made = synthesise(
            draw_generator(
                images=shown,
                latent=latent,
                generator=server.generator,
                device=server.device,
            ),
            teacher,
            student,
            torch.randn(images, latent, generator=server.generator).to(server.device),
            torch.randint(server.spec.classes, (images,), generator=server.generator).sort().values.to(server.device),
            view=view,
            objective=objective,
            steps=generator_steps,
            learning_rate=generator_learning_rate,
        )
        pool.add(enter((255 * made.pixels).floor() / 255 if official_8bit else made.pixels))
        loss = train_on_pool(
            student,
            optimiser,
            pool,
            temperature=temperature,
            batch_size=batch_size,
            generator=server.generator,
        )
        if not all(is_finite(tensor) for tensor in student.parameters()):
            _log.warning("the student diverged in epoch %d; learning_rate=%g is too large", epoch, learning_rate)
            break
        reached = 0.0 if score is None else score(parameters_of(student))
        if score is None or reached > highest:
            best, highest = parameters_of(student), reached
            details |= {"selected_epoch": float(epoch), "synthesis_loss": made.loss, "distillation_loss": loss}
    if score is not None:
        details["validation_accuracy"] = score(best)
    return Aggregate.of(best, **details)
