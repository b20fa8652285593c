"""How examples are cut into chunks changes the memory and nothing else."""

import gc
import weakref
from collections.abc import Callable, Set
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedfisher_core.data.layouts import Images, Tokens
from fedfisher_core.engine.errors import InputError
from fedfisher_core.fisher.blocks import Approximation, Portions
from fedfisher_core.fisher.capture import evaluation_mode
from fedfisher_core.fisher.engine import DIAGONAL_AND_KFAC, EXACT, compute_fisher
from fedfisher_core.fisher.estimators import Estimator, Exact, MonteCarlo
from fedfisher_core.fisher.single_pass import FisherPass
from fedfisher_core.models.spec import ModelSpec

from .reference import GROUPED, NORMALISED, SEQUENCES, UNFACTORED, flat, make, relative_error

MEBIBYTE = 2**20


def smallest_limit(
    model: nn.Module, inputs: Tensor, approximations: Set[Approximation] = frozenset(Approximation)
) -> int:
    with pytest.raises(InputError, match=r"memory_limit=1 bytes .* at least") as error:
        compute_fisher(model, inputs, approximations=approximations, memory_limit=1)
    return int(str(error.value).split()[-1])


def examples_per_chunk(
    model: nn.Module,
    inputs: Tensor,
    memory_limit: int,
    approximations: Set[Approximation] = DIAGONAL_AND_KFAC,
) -> int:
    with evaluation_mode(model):
        return FisherPass(
            model,
            inputs[:1],
            approximations=approximations,
            estimator=EXACT,
            memory_limit=memory_limit,
        ).examples_per_chunk


def cut_as_on(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on, there = Portions.on, torch.device(device)
    monkeypatch.setattr(Portions, "on", lambda device, memory: on(there, memory=memory))


def take_at_a_time(monkeypatch: pytest.MonkeyPatch, *, workspace: int) -> None:
    monkeypatch.setattr(Portions, "on", lambda device, memory: Portions(6 * MEBIBYTE, workspace))


@pytest.fixture(params=["cpu", "cuda"])
def portions_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut as on a device, which need not be there."""
    cut_as_on(request.param, monkeypatch)


@pytest.mark.usefixtures("portions_of")
@pytest.mark.parametrize("network", ["all three, bias", "grouped, bias", "running statistics, bias", "images, bias"])
def test_a_fisher_does_not_depend_on_its_company_to_the_last_bit(network: str) -> None:
    torch.manual_seed(0)
    model, inputs = make(network, examples=40, dtype=torch.float32)
    limit = smallest_limit(model, inputs, DIAGONAL_AND_KFAC) + 30_000
    sizes = [examples_per_chunk(model, inputs, limit, {one}) for one in DIAGONAL_AND_KFAC]
    assert sizes == [examples_per_chunk(model, inputs, limit)] * 2
    assert sizes[0] < len(inputs)
    both = compute_fisher(model, inputs, memory_limit=limit)
    diagonal = compute_fisher(model, inputs, approximations={Approximation.DIAGONAL}, memory_limit=limit).diagonal
    kfac = compute_fisher(model, inputs, approximations={Approximation.KFAC}, memory_limit=limit).kfac
    assert all(torch.equal(diagonal[name], tensor) for name, tensor in both.diagonal.items())
    assert all(torch.equal(kfac[name].outputs, block.outputs) for name, block in both.kfac.items())
    assert all(torch.equal(kfac[name].inputs, block.inputs) for name, block in both.kfac.items())


def test_a_memory_that_holds_a_diagonal_alone_is_enough_for_it() -> None:
    model, inputs = make("all three, bias", examples=9)
    limit = smallest_limit(model, inputs, {Approximation.DIAGONAL})
    assert limit < smallest_limit(model, inputs, DIAGONAL_AND_KFAC)
    found = compute_fisher(model, inputs, approximations={Approximation.DIAGONAL}, memory_limit=limit).diagonal
    assert relative_error(flat(found), flat(compute_fisher(model, inputs).diagonal)) < 1e-12


@pytest.mark.usefixtures("portions_of")
@pytest.mark.parametrize("estimator", [Exact(), MonteCarlo(2)])
@pytest.mark.parametrize("network", ["linear, bias", "all three, bias", "plain, no bias"])
def test_chunks_of_one_and_of_all_give_the_same(network: str, estimator: Estimator) -> None:
    model, inputs = make(network, examples=23)
    limit = smallest_limit(model, inputs)
    fishers = [
        compute_fisher(
            model,
            inputs,
            approximations=set(Approximation),
            estimator=estimator,
            memory_limit=memory_limit,
            generator=torch.Generator().manual_seed(0),
        )
        for memory_limit in (limit, limit + MEBIBYTE)
    ]
    one, all_ = fishers
    assert relative_error(one.dense, all_.dense) < 1e-13
    assert relative_error(flat(one.diagonal), flat(all_.diagonal)) < 1e-13
    for name, block in one.kfac.items():
        assert relative_error(block.inputs, all_.kfac[name].inputs) < 1e-13
        assert relative_error(block.outputs, all_.kfac[name].outputs) < 1e-13


def test_more_memory_takes_more_examples_at_a_time() -> None:
    model, inputs = make("padding, bias", examples=1)
    few, many = (examples_per_chunk(model, inputs, limit * MEBIBYTE) for limit in (16, 64))
    assert 1 <= few < many


def test_a_gpu_takes_as_many_examples_at_a_time_as_its_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = make("padding, bias", examples=1)
    limits = [limit * MEBIBYTE for limit in (256, 1024)]
    # A cache sets the number on a processor, however much memory there is.
    of_a_cache, as_many = (examples_per_chunk(model, inputs, limit) for limit in limits)
    assert of_a_cache == as_many
    cut_as_on("cuda", monkeypatch)
    some, more = (examples_per_chunk(model, inputs, limit) for limit in limits)
    assert of_a_cache < some < more


def test_examples_cut_from_a_large_set_count_no_more_than_themselves() -> None:
    model, inputs = make("padding, bias", examples=2000)
    assert examples_per_chunk(model, inputs, 16 * MEBIBYTE) == examples_per_chunk(model, inputs[:1], 16 * MEBIBYTE)


DRIFTING: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "linear": lambda: (nn.Sequential(nn.Linear(5, 3)), (5,)),
    "groups": lambda: (nn.Sequential(nn.Conv2d(2, 4, 2, groups=2), nn.Flatten()), (2, 2, 2)),
    "normalisation": lambda: (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), (4,)),
}


@pytest.mark.parametrize("network", DRIFTING)
def test_sixty_thousand_examples_do_not_drift(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs' mean is far from zero, so that a single-precision sum would grow and lose its digits."""
    torch.manual_seed(0)
    model, shape = DRIFTING[network]()
    inputs = torch.randn(60_000, *shape) + 10
    # Many small chunks, which is where a running sum in single precision drifts.
    take_at_a_time(monkeypatch, workspace=4096)
    limit = 64 * 1024
    assert examples_per_chunk(model, inputs, limit) < 600
    found = compute_fisher(model, inputs, memory_limit=limit)
    expected = compute_fisher(model.double(), inputs.double())
    assert relative_error(flat(found.diagonal).double(), flat(expected.diagonal)) < 1e-6
    for name, block in expected.kfac.items():
        assert relative_error(found.kfac[name].inputs.double(), block.inputs) < 1e-6
        assert relative_error(found.kfac[name].outputs.double(), block.outputs) < 1e-6


@pytest.mark.parametrize("network", [*UNFACTORED, *GROUPED, *NORMALISED, *SEQUENCES])
def test_chunks_of_places_and_groups_give_the_same(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = make(network, examples=23)
    approximations = set(Approximation) - ({Approximation.KFAC} if network in UNFACTORED else set())
    limit = smallest_limit(model, inputs, approximations)
    whole = compute_fisher(model, inputs, approximations=approximations)
    one = compute_fisher(model, inputs, approximations=approximations, memory_limit=limit)
    # Two examples of the widest layer at a time, and an odd one at the end: of the layers on places, then convolutions.
    parts = []
    for workspace in (2 * 8 * (2 * 24 + 6 * 10), 2 * 8 * 2000):
        take_at_a_time(monkeypatch, workspace=workspace)
        parts.append(compute_fisher(model, inputs, approximations=approximations))
    for other in (one, *parts):
        assert relative_error(other.dense, whole.dense) < 1e-13
        assert relative_error(flat(other.diagonal), flat(whole.diagonal)) < 1e-13
        for name, block in (whole.kfac or {}).items():
            assert relative_error(other.kfac[name].inputs, block.inputs) < 1e-13
            assert relative_error(other.kfac[name].outputs, block.outputs) < 1e-13


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of the tensors that live, and their peak; those that are given don't count."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known = {tensor.untyped_storage().data_ptr() for tensor in given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or address in self._known or storage.device.type == "meta":
            return
        self._known.add(address)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, address, size)

    def _forget(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.live -= size


class Convolutions(nn.Sequential):
    def __init__(self, stride: int) -> None:
        super().__init__(
            *(nn.Conv2d(3, 8, 3, padding=1, stride=stride), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(40), nn.ReLU(), nn.Linear(40, 10)),
        )
        self(torch.zeros(1, 3, 16, 16))


@pytest.mark.usefixtures("portions_of")
@pytest.mark.parametrize(
    ("mebibytes", "stride", "approximations"),
    [
        (24, 1, DIAGONAL_AND_KFAC),
        (48, 2, DIAGONAL_AND_KFAC),
        (48, 1, {Approximation.DIAGONAL}),
        (48, 2, {Approximation.KFAC}),
    ],
)
def test_working_memory_stays_below_its_limit(mebibytes: int, stride: int, approximations: set[Approximation]) -> None:
    torch.manual_seed(0)
    model = Convolutions(stride)
    inputs = torch.randn(600, 3, 16, 16)
    with PeakMemory(inputs, *model.parameters()) as memory:
        compute_fisher(model, inputs, approximations=approximations, memory_limit=mebibytes * MEBIBYTE)
    assert 0.2 * mebibytes * MEBIBYTE < memory.peak < mebibytes * MEBIBYTE


@pytest.mark.usefixtures("portions_of")
@pytest.mark.parametrize("example_alone", [False, True])
def test_working_memory_of_groups_and_normalisations_stays_below_its_limit(example_alone: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(
            nn.Conv2d(3, 32, 3, groups=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 7, padding=3, groups=32),
            nn.ReLU(),
        ),
        *(nn.Conv2d(32, 64, 3, stride=2, groups=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LayerNorm(256)),
        nn.Linear(256, 2),
    )
    inputs = torch.randn(3 if example_alone else 300, 3, 16, 16)
    limit = smallest_limit(model, inputs, DIAGONAL_AND_KFAC) + (0 if example_alone else 48 * MEBIBYTE)
    with PeakMemory(inputs, *model.parameters()) as memory:
        compute_fisher(model, inputs, approximations=DIAGONAL_AND_KFAC, memory_limit=limit)
    assert 0.15 * limit < memory.peak < limit


@pytest.mark.usefixtures("portions_of")
def test_working_memory_of_a_transformer_stays_below_its_limit() -> None:
    spec = ModelSpec("transformer", Tokens(12, 9), classes=6, bias=True, widths=(16, 24))
    model = spec.load(spec.initialise(torch.Generator().manual_seed(0)))
    inputs = spec.inputs.drawn(300, torch.Generator().manual_seed(1))
    limit = 16 * MEBIBYTE
    with PeakMemory(inputs, *model.parameters()) as memory:
        compute_fisher(model, inputs, approximations={Approximation.DIAGONAL}, memory_limit=limit)
    assert 0.1 * limit < memory.peak < limit


def test_the_smallest_limit_is_the_same_whatever_else_lies_in_memory() -> None:
    model, inputs = make("groups, bias", examples=1)
    generator = torch.Generator().manual_seed(0)
    limits = set()
    for _ in range(100):
        sizes = torch.randint(1, 3000, (30,), generator=generator).tolist()
        # Of every two, one goes, so that what is taken next lies in other holes each time.
        holes = [torch.zeros(size) for size in sizes][::2]
        limits.add(smallest_limit(model, inputs, DIAGONAL_AND_KFAC))
        del holes
    assert len(limits) == 1


@pytest.mark.usefixtures("portions_of")
def test_the_smallest_limit_covers_an_example_of_a_wide_convolution() -> None:
    """The gradients of one example alone take more than what a convolution otherwise holds at a time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 256, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))
    inputs = torch.randn(3, 64, 4, 4)
    limit = smallest_limit(model, inputs, DIAGONAL_AND_KFAC)
    with PeakMemory(inputs, *model.parameters()) as memory:
        compute_fisher(model, inputs, approximations=DIAGONAL_AND_KFAC, memory_limit=limit)
    assert 0.5 * limit < memory.peak < limit


@pytest.mark.drawn(6)
@pytest.mark.usefixtures("portions_of")
@pytest.mark.parametrize("approximations", [{Approximation.DIAGONAL}, {Approximation.KFAC}, DIAGONAL_AND_KFAC])
@pytest.mark.parametrize("name", ["mlp", "lenet", "cnn"])
def test_the_smallest_limit_covers_the_results(name: str, approximations: set[Approximation]) -> None:
    """Of networks whose sums take far more than one example."""
    spec = ModelSpec(name, Images(3, 32, 32), classes=10)
    model = spec.load(spec.initialise(torch.Generator().manual_seed(0)))
    inputs = spec.inputs.drawn(2, torch.Generator().manual_seed(1))
    limit = smallest_limit(model, inputs, approximations)
    with PeakMemory(inputs, *model.parameters()) as memory:
        compute_fisher(model, inputs, approximations=approximations, memory_limit=limit)
    assert memory.peak < limit


@pytest.mark.parametrize("network", ["linear, bias", "all three, bias"])
def test_a_finished_pass_keeps_no_network_alive(network: str) -> None:
    model, inputs = make(network, examples=5)
    weights = [weakref.ref(parameter) for parameter in model.parameters()]
    compute_fisher(model, inputs, approximations=DIAGONAL_AND_KFAC)
    del model
    gc.collect()
    assert not [weight for weight in weights if weight() is not None]
