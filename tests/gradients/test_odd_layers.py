"""Layers with every option at once, and few channels: each example's gradient is autograd's."""

from itertools import product

import pytest
import torch
from tests.gradients.one_run import OneRun
from tests.gradients.test_against_loop import oracle
from torch import Tensor, nn

from oso_dp.gradients import GradientEngine
from oso_dp.gradients.forward_backward import find_rule
from oso_dp.models.losses import cross_entropy


def check(layer: nn.Module, inputs: Tensor) -> None:
    """Norms and sums, in float64, against one example at a time."""
    layer, inputs = layer.double(), inputs.double()
    outputs = layer(inputs)
    errors = torch.randn_like(outputs)
    rule = find_rule(layer, inputs)(layer, inputs, errors)
    norms, sums = rule.norms(), rule.weighted_sums(torch.eye(len(inputs)).double()[None])
    for place in range(len(inputs)):
        layer.zero_grad()
        layer(inputs[place : place + 1]).backward(errors[place : place + 1])
        own = dict(layer.named_parameters())
        for name, parameter in own.items():
            torch.testing.assert_close(sums[name][0, place], parameter.grad)
        whole = torch.cat([parameter.grad.flatten() for parameter in own.values()])
        torch.testing.assert_close(norms[place], whole.norm())


CHANNELS = [(1, 1), (1, 3), (3, 1)]
OPTIONS = [
    {"kernel_size": (2, 3)},
    {"kernel_size": (3, 2), "stride": (2, 1)},
    {"kernel_size": (3, 2), "stride": (1, 2), "padding": (2, 1)},
    {"kernel_size": (2, 3), "stride": (3, 2), "padding": (1, 2), "dilation": (2, 1)},
    {"kernel_size": (2, 3), "stride": (2, 3), "padding": (0, 1), "dilation": (1, 2)},
    {"kernel_size": (3, 2), "padding": (2, 1), "dilation": (1, 3)},
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_may_be_another_across_than_down(kind, options, bias) -> None:
    torch.manual_seed(0)
    for channels in CHANNELS:
        check(kind(*channels, **options, bias=bias), torch.randn(2, channels[0], 8, 9))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_convolution_over_time_may_have_all_options(kind, bias) -> None:
    torch.manual_seed(0)
    over_time = [(1, 1, 0, 1), (3, 1, 2, 2), (3, 2, 0, 1), (2, 3, 2, 3), (3, 2, 1, 2)]
    for channels, (size, stride, padding, dilation) in product(CHANNELS, over_time):
        layer = kind(*channels, size, stride, padding, dilation=dilation, bias=bias)
        check(layer, torch.randn(2, channels[0], 11))


@pytest.mark.parametrize("options", [{"output_padding": 1}, {"output_padding": 2, "padding": 1}])
@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d])
def test_what_a_transposed_convolution_adds_at_the_end_counts(kind, options) -> None:
    torch.manual_seed(0)
    places = (7,) if kind is nn.ConvTranspose1d else (7, 5)
    check(kind(2, 3, 3, 3, **options), torch.randn(3, 2, *places))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "of"), [((5,), (5,)), ((4, 5), (5,)), ((4, 5), (4, 5)), ((3, 4, 5), (4, 5))]
)
def test_layer_norm_is_over_as_many_dimensions_as_it_has(shape, of, bias) -> None:
    torch.manual_seed(0)
    check(nn.LayerNorm(of, bias=bias), torch.randn(3, *shape))


@pytest.mark.parametrize("places", [(), (4,), (4, 3), (2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_group_norm_has_any_number_of_places_and_groups(groups, places) -> None:
    torch.manual_seed(0)
    check(nn.GroupNorm(groups, 6), torch.randn(3, 6, *places))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 50])
def test_plain_sums_are_of_those_present_however_a_batch_is_cut(size, monkeypatch) -> None:
    """Also where the chunks after the first hold what pads a batch."""
    monkeypatch.setattr(GradientEngine, "chunk_size", lambda self, inputs: size)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    code = GradientEngine(model, cross_entropy)
    flat, inputs = torch.randn(code.size).double(), torch.randn(7, 4).double()
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    gradients = oracle(code, flat, inputs, targets)
    one = OneRun(code, flat, inputs, targets)
    for last in range(8):
        present = torch.arange(7) < last
        torch.testing.assert_close(one.plain_sums(present), gradients[present].sum(dim=0))
    present = torch.arange(7) % 3 == 1
    torch.testing.assert_close(one.plain_sums(present), gradients[present].sum(dim=0))
