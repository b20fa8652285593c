import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfisher_core.communication.wire import spectra, spectral
from fedfisher_core.communication.wire.codec import BitReader, BitWriter, Codec, TensorSpec
from fedfisher_core.communication.wire.low_rank import LowRank
from fedfisher_core.communication.wire.spectra import from_reflectors, to_reflectors
from fedfisher_core.communication.wire.spectral import Spectral, minimum_bits
from fedfisher_core.engine.errors import CorruptArtifactError, InputError

from .samples import psd


def through(codec: Codec, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    specs = [TensorSpec(name, tuple(tensor.shape)) for name, tensor in tensors.items()]
    writer = BitWriter()
    codec.encode({name: tensor.numpy() for name, tensor in tensors.items()}, writer)
    assert writer.bits <= codec.bits(specs)
    reader = BitReader(writer.to_bytes())
    decoded = codec.decode(specs, reader)
    reader.finish()
    return {name: torch.from_numpy(array) for name, array in decoded.items()}, writer.bits


def relative_error(decoded: Tensor, tensor: Tensor) -> float:
    return float((decoded - tensor).norm() / tensor.norm())


def assert_symmetric_and_psd(matrix: Tensor) -> None:
    assert torch.equal(matrix, matrix.T)
    values = torch.linalg.eigvalsh(matrix.double())
    assert values.min() >= -1e-6 * values.max().clamp(min=1e-30)


@pytest.mark.parametrize(("size", "rank"), [(1, 1), (7, 7), (20, 6)])
def test_reflectors_return_the_columns_up_to_sign(size: int, rank: int) -> None:
    columns, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(size, rank)))
    returned = from_reflectors(to_reflectors(columns))
    np.testing.assert_allclose(np.abs((returned * columns).sum(axis=0)), 1, atol=1e-12)
    np.testing.assert_allclose(np.abs(returned), np.abs(columns), atol=1e-12)


@given(
    size=st.integers(1, 24),
    decay=st.floats(0, 4),
    rank=st.integers(0, 24),
    spare=st.integers(0, 6000),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_what_comes_back_is_psd_within_budget_and_no_farther_than_nothing(
    size: int, decay: float, rank: int, spare: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = {"a": psd(size, decay=decay, rank=min(rank, size), generator=generator), "g": torch.eye(3)}
    decoded, _ = through(Spectral(minimum_bits(size) + minimum_bits(3) + spare), tensors)
    for name, tensor in tensors.items():
        assert_symmetric_and_psd(decoded[name])
        assert (decoded[name] - tensor).norm() <= tensor.norm() * 1.0001


@pytest.mark.parametrize("decay", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("rank", [6, 25])
def test_error_is_below_the_papers_format_at_the_same_bits(decay: float, rank: int) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {str(size): psd(size, decay=decay, generator=generator) for size in (90, 40, 10)}
    theirs, bits = through(LowRank(rank), tensors)
    ours, our_bits = through(Spectral(bits), tensors)
    assert our_bits <= bits
    for name in ("90", "40"):
        assert relative_error(ours[name], tensors[name]) < 0.7 * relative_error(theirs[name], tensors[name])


def test_the_papers_format_is_not_symmetric_where_ours_is() -> None:
    matrix = psd(40, decay=1.5, generator=torch.Generator().manual_seed(1))
    theirs, bits = through(LowRank(20), {"x": matrix})
    assert not torch.equal(theirs["x"], theirs["x"].T)
    ours, _ = through(Spectral(bits), {"x": matrix})
    assert_symmetric_and_psd(ours["x"])


def test_more_bits_never_hurt_much_and_enough_are_nearly_exact() -> None:
    matrix = psd(50, decay=1.0, generator=torch.Generator().manual_seed(2))
    errors = [
        relative_error(through(Spectral(bits), {"x": matrix})[0]["x"], matrix) for bits in range(500, 25_000, 2_000)
    ]
    assert all(later <= earlier * 1.02 for earlier, later in itertools.pairwise(errors))
    assert errors[-1] < 1e-4


def test_eigenvalues_left_out_are_replaced_by_their_mean() -> None:
    generator = torch.Generator().manual_seed(3)
    matrix = psd(30, decay=3.0, generator=generator) + torch.eye(30)
    decoded, _ = through(Spectral(minimum_bits(30)), {"x": matrix})
    np.testing.assert_allclose(decoded["x"], torch.eye(30) * matrix.trace() / 30, rtol=1e-4)


def test_a_projection_is_sent_as_what_it_leaves_out() -> None:
    basis, _ = torch.linalg.qr(torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4)))
    projection = (torch.eye(60, dtype=torch.float64) - basis @ basis.T).float()
    # Three vectors of 60 entries at 12 bits each, where the other 57 would take 20 times that.
    decoded, _ = through(Spectral(minimum_bits(60) + 3 * (44 + 12 * 60)), {"x": projection})
    assert relative_error(decoded["x"], projection) < 1e-3


def test_two_equal_clusters_of_eigenvalues_fit_any_budget() -> None:
    basis, _ = torch.linalg.qr(torch.randn(60, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(8)))
    projection = (basis @ basis.T).float()
    errors = []
    for spare in (0, 100, 1_000, 10_000, 30_000):
        decoded, _ = through(Spectral(minimum_bits(60) + spare), {"x": projection})
        errors.append(relative_error(decoded["x"], projection))
    assert errors[0] == pytest.approx(0.5**0.5, rel=1e-4)
    assert errors[2] < 0.99 * errors[0]
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("spare", [400, 2_000, 20_000])
def test_a_matrix_of_few_directions_is_sent_as_well_as_one_that_has_all_of_them(spare: int) -> None:
    rows = torch.randn(6, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    few = rows.T @ torch.diag(torch.logspace(0, -3, 6, dtype=torch.float64)) @ rows
    # Full rank, but for the budget the same.
    whole = few + 2e-5 * few.diagonal().max() * torch.eye(60, dtype=torch.float64)
    errors = []
    for matrix in (few.float(), whole.float()):
        decoded, _ = through(Spectral(minimum_bits(60) + spare), {"x": matrix})
        assert_symmetric_and_psd(decoded["x"])
        errors.append(relative_error(decoded["x"], matrix))
    assert errors[0] == pytest.approx(errors[1], rel=0.05, abs=1e-5)


def test_few_directions_are_found_among_rounding_that_their_factor_would_magnify(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(10)
    basis, _ = torch.linalg.qr(torch.randn(200, 60, dtype=torch.float64, generator=generator))
    few = basis @ torch.diag(torch.logspace(0, -5, 60, dtype=torch.float64)) @ basis.T
    rounding = 1e-5 * few.diagonal().max() * torch.randn(200, 200, dtype=torch.float64, generator=generator)
    matrix = (few + (rounding + rounding.T) / 2).float()
    decomposed, eigh = [], spectra._eigh

    def counting(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        decomposed.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(spectra, "_eigh", counting)
    decoded, _ = through(Spectral(minimum_bits(200) + 200_000), {"x": matrix})
    assert max(decomposed) < 80
    assert_symmetric_and_psd(decoded["x"])
    assert relative_error(decoded["x"], matrix) < 1e-3


def test_eigenvectors_of_a_factor_are_orthonormal_unless_its_columns_almost_depend_on_each_other() -> None:
    # Kahan's matrix: no pivot is small, and yet it is nearly singular.
    for size, is_found in ((20, True), (90, False)):
        scales = torch.tensor(0.96, dtype=torch.float64) ** (torch.arange(size) / 2)
        upper = torch.eye(size, dtype=torch.float64) - 0.2 * torch.ones(size, size, dtype=torch.float64).triu(1)
        factor = torch.cat([(scales[:, None] * upper).T, torch.zeros(size, size, dtype=torch.float64)])
        found = spectra._of_product(factor @ factor.T, factor, error=1e-3)
        assert (found is not None) == is_found
        if found is not None:
            np.testing.assert_allclose(found[1].T @ found[1], np.eye(size), atol=1e-6)


def test_dead_units_cost_next_to_nothing_and_stay_dead() -> None:
    generator = torch.Generator().manual_seed(5)
    small, alive = psd(20, decay=1.0, generator=generator), torch.randperm(80, generator=generator)[:20]
    large = torch.zeros(80, 80)
    large[alive[:, None], alive[None, :]] = small
    decoded, _ = through(Spectral(4000 + 60), {"x": large})
    alone, _ = through(Spectral(4000), {"x": small})
    assert relative_error(decoded["x"], large) == pytest.approx(relative_error(alone["x"], small), rel=0.2)
    dead = torch.ones(80, dtype=torch.bool)
    dead[alive] = False
    assert not decoded["x"][dead].any()


def mixed(seed: int) -> dict[str, Tensor]:
    """Matrices of few sizes in any order, some of low rank, some with dead rows, some of one number or of none."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for place in range(40):
        size, rank = ((9, 9), (9, 3), (4, 4), (1, 1), (30, 30))[place % 5]
        matrix = psd(size, decay=1.0, rank=rank, generator=generator) * 10.0 ** (place % 7 - 3)
        dead = place % 3 if size > 1 else 0
        matrix[:dead] = 0
        matrix[:, :dead] = 0
        tensors[str(place)] = matrix
    return tensors | {"nothing": torch.zeros(4, 4)}


def test_each_of_many_matrices_comes_back_as_itself() -> None:
    tensors = mixed(11)
    decoded, _ = through(Spectral(400_000), tensors)
    for name, tensor in tensors.items():
        assert_symmetric_and_psd(decoded[name])
        assert torch.equal(decoded[name].any(1), tensor.any(1))
        assert (decoded[name] - tensor).norm() <= 1e-3 * tensor.norm()


@pytest.mark.parametrize("budget", [12_000, 40_000])
def test_it_does_not_matter_how_many_matrices_are_looked_at_together(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = mixed(12)
    together, bits = through(Spectral(budget), tensors)
    monkeypatch.setattr(spectral, "_TOGETHER", 1)
    alone, alone_bits = through(Spectral(budget), tensors)
    assert alone_bits == bits
    for name, matrix in together.items():
        torch.testing.assert_close(alone[name], matrix, rtol=0, atol=1e-6 * float(matrix.abs().max()))


def test_scales_of_matrices_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(6)
    a, g = psd(30, decay=1.0, generator=generator), psd(20, decay=1.0, generator=generator)
    plain, _ = through(Spectral(6000), {"a": a, "g": g})
    scaled, _ = through(Spectral(6000), {"a": a * 2.0**40, "g": g * 2.0**-60})
    torch.testing.assert_close(scaled["a"] / 2.0**40, plain["a"], rtol=0, atol=1e-5)
    torch.testing.assert_close(scaled["g"] * 2.0**60, plain["g"], rtol=0, atol=1e-5)


def test_the_same_matrices_make_the_same_bytes() -> None:
    matrix = psd(40, decay=1.0, generator=torch.Generator().manual_seed(7)).numpy()
    streams = []
    for _ in range(2):
        writer = BitWriter()
        Spectral(9000).encode({"x": matrix.copy()}, writer)
        streams.append(writer.to_bytes())
    assert streams[0] == streams[1]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "'x' differs from its transpose by 0.5"),
        (torch.tensor([[1.0, 0.0], [0.0, -1.0]]), "'x' has the eigenvalue -1"),
        # Its diagonal says nothing of its eigenvalues.
        (torch.tensor([[0.0, 1.0], [1.0, 0.0]]), "'x' has the eigenvalue -1"),
        (torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, 1.0], [0.0, 1.0, 0.0]]), "'x' has the eigenvalue -0.76"),
        (torch.eye(2) * 3e38, "'x' has the trace 6e"),
        (torch.ones(2, 3), r"'x' has shape \(2, 3\)"),
    ],
)
def test_other_matrices_are_refused_by_name(matrix: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Spectral(1000).encode({"x": matrix.numpy()}, BitWriter())


def test_a_budget_below_the_side_information_is_refused() -> None:
    with pytest.raises(InputError, match="budget is 42 bits; allowed: at least 43"):
        Spectral(minimum_bits(3) - 1).encode({"x": np.eye(3, dtype=np.float32)}, BitWriter())


def test_more_eigenvectors_than_rows_are_refused() -> None:
    writer = BitWriter()
    writer.write(np.ones(3, dtype=np.uint32), 1)
    writer.write(np.array([4], dtype=np.uint32), 16)
    with pytest.raises(CorruptArtifactError, match="announces 4 eigenvectors of 3 entries"):
        Spectral(1000).decode([TensorSpec("x", (3, 3))], BitReader(writer.to_bytes()))
