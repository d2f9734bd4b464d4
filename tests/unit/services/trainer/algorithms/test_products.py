"""The faster products give what torch's own give, forward and backward."""

import pytest
import torch
from torch import nn

from headrace.services.trainer.algorithms.products import product, slow_down, speed_up


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(40, 24), (4, 10, 24), (3, 24)])
def test_a_model_that_was_sped_up_computes_the_same(bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 16, bias=bias), nn.Tanh(), nn.Linear(16, 8, bias=bias))
    x = torch.randn(shape, requires_grad=True)

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        x.grad = None
        out = model(x)
        out.square().sum().backward()
        assert x.grad is not None
        return [out.detach(), x.grad.clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    plain = run()
    speed_up(model)
    fast = run()
    slow_down(model)
    assert all("forward" not in vars(module) for module in model.modules())
    assert len(plain) == len(fast) == (6 if bias else 4)
    for one, other in zip(plain, fast, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_product_is_x_times_the_transposed_weight_in_every_dtype(dtype: torch.dtype) -> None:
    x, weight = torch.randn(9, 5, dtype=dtype), torch.randn(5, 7, dtype=dtype).T
    made = product(x, weight)
    assert made.dtype == dtype
    torch.testing.assert_close(made, x @ weight.T)


def test_two_products_of_the_same_numbers_are_bit_equal() -> None:
    x, weight = torch.randn(33, 20), torch.randn(17, 20)
    assert torch.equal(product(x, weight), product(x, weight))
