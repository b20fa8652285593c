"""Which level each client of a federation has, and what it sees under it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfisher_core.data.layouts import Images, Layout, Tokens, Vectors
from fedfisher_core.data.shifts import Shifts, blur, draw_shifts, flatten_contrast, require_shift, rotate
from fedfisher_core.data.specs import DatasetSpec
from fedfisher_core.data.tensors import Split, select
from fedfisher_core.engine.errors import InputError
from fedfisher_core.experiments.benchmark.settings import BenchmarkSettings
from fedfisher_core.settings import NO_SHIFT, SeededSetting, Shift, ShiftKind
from fedfisher_core.settings.reading import validate

IMAGES = Images(1, 6, 6)
KINDS: tuple[ShiftKind, ...] = ("rotation", "blur", "contrast", "noise")
CLASSES = 10


def setting(
    kind: ShiftKind, strength: float, *, clients: int = 5, seed: int = 0, classes: int | None = None
) -> SeededSetting:
    shift = Shift(kind=kind, strength=strength, classes=classes)
    return SeededSetting(dataset="a", model="b", scheme="iid", alpha=None, clients=clients, shift=shift, seed=seed)


def draw(kind: ShiftKind, strength: float, **changes: int) -> Shifts:
    found = draw_shifts(setting(kind, strength, **changes), CLASSES)
    assert found is not None
    return found


def pixels(count: int = 4) -> Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(1))


def test_without_a_shift_there_are_no_views() -> None:
    assert draw_shifts(setting("none", 0.0), CLASSES) is None


@pytest.mark.parametrize("clients", [2, 5, 6, 51])
@pytest.mark.parametrize("kind", KINDS)
def test_levels_are_spread_evenly_and_differ(kind: ShiftKind, clients: int) -> None:
    levels = draw(kind, 0.7, clients=clients).levels
    assert len(set(levels)) == len(levels) == clients
    assert np.allclose(np.diff(levels), np.diff(levels)[0])
    assert (levels[0], levels[-1]) == (-0.7 if kind == "rotation" else 0.0, 0.7)


@pytest.mark.parametrize("clients", [3, 7, 31])
def test_the_client_in_the_middle_turns_nothing(clients: int) -> None:
    assert draw("rotation", 0.3, clients=clients).levels[clients // 2] == 0.0


def test_a_client_sees_the_images_under_its_level() -> None:
    images = pixels()
    expected = {
        "rotation": rotate(images, -22.5),
        "blur": blur(images, 0.25),
        "contrast": flatten_contrast(images, 0.2),
    }
    strengths = {"rotation": 45.0, "blur": 1.0, "contrast": 0.8}
    for kind, strength in strengths.items():
        found = draw(kind, strength).of(1)  # type: ignore[arg-type]
        assert torch.allclose(found.images(images), expected[kind]), kind
        assert found.labels(torch.tensor([3, 1])).tolist() == [3, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_of_level_0_sees_images_as_they_are(kind: ShiftKind) -> None:
    view = draw(kind, 0.5).of(2 if kind == "rotation" else 0)
    assert view.plain
    assert view.described() == {}
    assert torch.equal(view.images(pixels()), pixels())


def test_noise_is_drawn_from_the_seed_for_each_client_and_for_test_images() -> None:
    images = torch.zeros(2, 1, 6, 6)

    def noise(seed: int, client: int, *, test: bool = False) -> Tensor:
        shifts = draw("noise", 0.4, seed=seed)
        return shifts.of(client, test=test).images(images) / shifts.levels[client]

    base = noise(0, 2)
    assert torch.equal(base, noise(0, 2))
    for other in (noise(1, 2), noise(0, 3), noise(0, 2, test=True), noise(0, 1, test=True)):
        assert abs(float(torch.corrcoef(torch.stack([base.flatten(), other.flatten()]))[0, 1])) < 0.5


def test_many_images_have_noise_of_the_client_s_level() -> None:
    shifts = draw("noise", 0.4)
    images = torch.zeros(2500, 1, 6, 6)
    seen = shifts.of(3).images(images)
    assert float(seen.std()) == pytest.approx(0.3, rel=0.02)
    # No two images have the same noise.
    assert len(seen.flatten(1).unique(dim=0)) == 2500


@pytest.mark.parametrize("seed", range(5))
def test_exchanged_labels_are_a_permutation_that_leaves_no_class_its_name(seed: int) -> None:
    names = draw("labels", 0.4, seed=seed).names
    assert sorted(names) == list(range(CLASSES))
    assert all(name != true for true, name in enumerate(names))


@pytest.mark.parametrize("seed", range(5))
def test_some_classes_exchange_their_names_and_the_others_keep_theirs(seed: int) -> None:
    names = draw("labels", 0.4, seed=seed, classes=3).names
    assert sorted(names) == list(range(CLASSES))
    assert sum(name != true for true, name in enumerate(names)) == 3


def test_a_shift_of_all_classes_is_the_one_without_a_number() -> None:
    assert draw("labels", 0.4, classes=CLASSES) == draw("labels", 0.4)
    shift = Shift(kind="labels", strength=0.4)
    assert shift.model_dump(mode="json") == {"kind": "labels", "strength": 0.4}
    assert str(Shift(kind="labels", strength=0.4, classes=3)) == "labels 0.4 of 3 classes"


@pytest.mark.parametrize(
    ("strength", "clients", "changed"),
    [(0.4, 5, 2), (0.1, 10, 1), (1.0, 7, 7), (0.3, 5, 2), (0.25, 50, 13), (0.1, 5, 1)],
)
def test_the_fraction_of_the_clients_has_other_labels(strength: float, clients: int, changed: int) -> None:
    labels = torch.arange(CLASSES)
    for seed in range(3):
        shifts = draw("labels", strength, clients=clients, seed=seed)
        seen = [shifts.of(client).labels(labels) for client in range(clients)]
        other = [one for one in seen if not torch.equal(one, labels)]
        assert len(other) == changed
        assert all(one.tolist() == list(shifts.names) for one in other)
        assert torch.equal(shifts.of(0).images(pixels()), pixels())


def test_the_seed_decides_whose_labels_are_exchanged_and_how() -> None:
    assert draw("labels", 0.4, seed=1) == draw("labels", 0.4, seed=1)
    drawn = [draw("labels", 0.4, clients=10, seed=seed) for seed in range(6)]
    assert len({one.names for one in drawn}) == len({one.levels for one in drawn}) == 6


def test_examples_are_selected_as_a_client_sees_them() -> None:
    split = Split(torch.randint(0, 256, (5, 1, 6, 6)).to(torch.uint8), torch.tensor([0, 1, 2, 1, 0]))
    spec = DatasetSpec("a", None, 3, IMAGES, mean=(0.4,), std=(0.2,))
    before = split.inputs.clone()
    chosen = torch.tensor([3, 0, 2])
    view = draw("rotation", 60.0).of(3)
    seen = select(split, spec, chosen, view=view)
    expected = (rotate(split.inputs[chosen] / 255, 30.0) - 0.4) / 0.2
    assert torch.allclose(seen.inputs, expected, atol=1e-6)
    assert torch.equal(split.inputs, before)
    plain = select(split, spec, chosen, view=draw("rotation", 60.0).of(2))
    assert torch.equal(plain.inputs, select(split, spec, chosen).inputs)

    exchanged = draw_shifts(setting("labels", 1.0), 3)
    assert exchanged is not None
    seen = select(split, spec, chosen, view=exchanged.of(0))
    assert seen.labels.tolist() == [exchanged.names[true] for true in (1, 0, 2)]
    assert torch.equal(seen.inputs, select(split, spec, chosen).inputs)


@pytest.mark.parametrize(
    ("shift", "layout", "clients", "message"),
    [
        (("rotation", 45), Vectors(4), 5, "partition.shift=rotation 45: names has 4 numbers, not images; allowed: "),
        (("noise", 0.1), Tokens(5, 9), 5, "partition.shift=noise 0.1: names has 5 tokens of 9, not images; allowed: "),
        (("blur", 2), IMAGES, 1, "partition.clients=1 with partition.shift=blur 2; allowed: at least 2"),
        (("labels", 0.05), IMAGES, 5, "partition.shift=labels 0.05 changes none of partition.clients=5; allowed: a "),
    ],
)
def test_what_can_not_be_shifted_is_refused(shift: Any, layout: Layout, clients: int, message: str) -> None:
    kind, strength = shift
    with pytest.raises(InputError) as caught:
        require_shift(Shift(kind=kind, strength=strength), "names", layout, 3, clients)
    assert message in str(caught.value)


def test_labels_of_anything_can_be_exchanged() -> None:
    shift = Shift(kind="labels", strength=0.5)
    for layout in (IMAGES, Vectors(4), Tokens(5, 9)):
        require_shift(shift, "names", layout, 3, 5)
        require_shift(NO_SHIFT, "names", layout, 3, 1)
    with pytest.raises(InputError, match="names has 1 class; allowed: with 2 classes or more"):
        require_shift(shift, "names", IMAGES, 1, 5)
    with pytest.raises(InputError, match="names has 3 classes; allowed: 2 to 3 of them"):
        require_shift(Shift(kind="labels", strength=0.5, classes=4), "names", IMAGES, 3, 5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("rotation", "partition.shift.0='rotation': allowed: none, or {kind, strength} with the kinds rotation, blur"),
        ({"kind": "rotation"}, "strength=0 with kind=rotation; allowed: above 0, below 180 degrees"),
        ({"kind": "rotation", "strength": 180}, "strength=180 with kind=rotation; allowed: above 0, below 180 degrees"),
        ({"kind": "blur", "strength": 101}, "strength=101 with kind=blur; allowed: above 0, up to 100 pixels"),
        ({"kind": "contrast", "strength": 1}, "strength=1 with kind=contrast; allowed: above 0, below 1"),
        ({"kind": "labels", "strength": 1.5}, "strength=1.5 with kind=labels; allowed: above 0, up to 1"),
        (
            {"kind": "blur", "strength": 1, "classes": 3},
            "classes=3 with kind=blur; allowed: with kind=labels alone",
        ),
        ({"kind": "none", "strength": 1}, "strength=1 with kind=none; allowed: 0"),
        (
            {"kind": "noise", "strength": -1},
            "partition.shift.0.strength=-1: Input should be greater than or equal to 0",
        ),
        ({"kind": "turn", "strength": 3}, "partition.shift.0.kind='turn': Input should be 'none', 'rotation', 'blur'"),
        ({"kind": "blur", "degree": 3}, "unknown setting 'partition.shift.0.degree'; allowed: classes, kind, strength"),
        (["none", "none"], "partition.shift=[none, none]: values must differ from each other"),
        ([], "partition.shift=[]"),
    ],
)
def test_an_impossible_shift_is_refused_with_its_key(given: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        validate(BenchmarkSettings, {"partition": {"shift": given}})
    assert message in str(caught.value)


def test_shifts_are_points_of_a_benchmark() -> None:
    shifts = ["none", {"kind": "rotation", "strength": 45}]
    settings = validate(BenchmarkSettings, {"seeds": 0, "partition": {"scheme": "iid", "shift": shifts}})
    plain, turned = settings.seeded_settings()
    assert plain.label == "mnist5k lenet iid clients=5 seed=0"
    assert turned.label == "mnist5k lenet iid rotation=45 clients=5 seed=0"
    assert settings.partition.model_dump(mode="json")["shift"] == ["none", {"kind": "rotation", "strength": 45.0}]
    assert validate(BenchmarkSettings, settings.model_dump(mode="json")) == settings
    for skipped, left in (("none", turned), (shifts[1], plain)):
        changed = {**settings.model_dump(mode="json"), "skip": [{"shift": skipped}]}
        assert validate(BenchmarkSettings, changed).seeded_settings() == (left,)
