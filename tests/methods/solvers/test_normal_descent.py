import pytest
import torch
from torch import Tensor

from fedfisher_core.engine.errors import InputError
from fedfisher_core.methods.solvers.first_order import normal_descent


def system(*, null: bool = False, size: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """A symmetric operator with eigenvalues over four orders of magnitude, a start and a target."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator).double()).Q
    values = torch.logspace(1, -3, size).double()
    if null:
        values[-4:] = 0
    operator = basis * values @ basis.T
    start, target = (torch.randn(size, generator=generator).double() for _ in range(2))
    return operator, start, target


def descended(operator: Tensor, start: Tensor, target: Tensor, *, steps: int, rate: float) -> Tensor:
    for _ in range(steps):
        start = start.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((operator @ start - target).square().mean(), start)
        start = (start - rate * gradient).detach()
    return start


@pytest.mark.parametrize("null", [False, True], ids=["regular", "singular"])
@pytest.mark.parametrize("steps", [1, 2, 30, 2000])
@pytest.mark.parametrize("rate", [0.01, 0.11])
def test_it_ends_where_the_steps_end(steps: int, rate: float, null: bool) -> None:
    operator, start, target = system(null=null)
    # The larger rate is close to the largest at which the descent does not diverge, 0.12.
    end = normal_descent(operator.mv, start, target, steps=steps, rate=rate)
    assert torch.allclose(end, descended(operator, start, target, steps=steps, rate=rate), rtol=1e-8, atol=1e-8)


def test_few_products_do_for_many_steps() -> None:
    operator, start, target = system(size=300)
    calls = 0

    def product(vector: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return operator @ vector

    end = normal_descent(product, start, target, steps=1000, rate=0.3)
    assert calls < 120
    assert torch.allclose(end, descended(operator, start, target, steps=1000, rate=0.3), atol=1e-7)


def test_a_start_that_solves_the_system_stays() -> None:
    operator, start, _ = system()
    assert torch.equal(normal_descent(operator.mv, start, operator.mv(start), steps=50, rate=0.1), start)


def test_too_large_a_rate_diverges_as_the_steps_do() -> None:
    operator, start, target = system()
    end = normal_descent(operator.mv, start, target, steps=20, rate=0.2)
    assert torch.allclose(end, descended(operator, start, target, steps=20, rate=0.2), rtol=1e-5)
    assert end.abs().max() > 1e3


def test_a_descent_that_diverges_beyond_all_numbers_ends_at_once() -> None:
    operator, start, target = system(size=2000)
    calls = 0

    def product(vector: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return operator @ vector

    end = normal_descent(product, start, target, steps=10_000, rate=1e20)
    assert not torch.isfinite(end).all()
    assert calls < 5


@pytest.mark.parametrize("setting", ["steps", "rate"])
def test_settings_must_be_positive(setting: str) -> None:
    operator, start, target = system()
    settings = {"steps": 3, "rate": 0.1, setting: 0}
    with pytest.raises(InputError, match=f"{setting} is 0; allowed: a positive number"):
        normal_descent(operator.mv, start, target, **settings)
