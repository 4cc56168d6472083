"""Layers beyond the study's: each rule against one-at-a-time differentiation."""

import math
from itertools import product

import pytest
import torch
from tests.gradients.layer_cases import CASES, WORDS, Given, alone, prepare
from tests.gradients.one_run import BOUND, OneRun, check_contributions
from tests.gradients.test_against_torch_func import oracle
from torch import Tensor, nn

from oso_dp.gradients import GradientEngine, check_independence
from oso_dp.gradients.conv import ConvGradients
from oso_dp.gradients.forward_backward import find_rule
from oso_dp.gradients.layer_gradients import CHUNK_BYTES, MaterializedGradients
from oso_dp.gradients.linear import LinearGradients, SequenceFactors, SequenceKernels
from oso_dp.gradients.other_layers import (
    EmbeddingGradients,
    FunctionalGradients,
    GroupNormGradients,
    LayerNormGradients,
)
from oso_dp.gradients.precision import restore_switches
from oso_dp.models.losses import cross_entropy

TYPES = {torch.float64: 1e-9, torch.float32: 2e-4}


@pytest.mark.parametrize(
    ("layer", "shape", "rule"),
    [
        (nn.Linear(3, 2), (4, 3), LinearGradients),
        (nn.Linear(3, 2), (4, 5, 3), SequenceKernels),
        (nn.Conv2d(1, 2, 3), (4, 1, 5, 5), ConvGradients),
        (nn.Conv2d(2, 2, 3, groups=2), (4, 2, 5, 5), FunctionalGradients),
        (nn.ConvTranspose2d(1, 2, 3), (4, 1, 5, 5), ConvGradients),
        (nn.Conv2d(1, 2, 3, padding="same"), (4, 1, 5, 5), FunctionalGradients),
        (nn.Linear(30, 20), (4, 5, 30), SequenceFactors),
        (nn.Linear(30, 20), (4, 2, 6, 30), SequenceKernels),
        (nn.Embedding(3, 2), (4, 5), EmbeddingGradients),
        (nn.LayerNorm(3), (4, 5, 3), LayerNormGradients),
        (nn.LayerNorm((5, 3)), (5, 3), FunctionalGradients),
        (nn.GroupNorm(1, 5), (4, 5, 3), GroupNormGradients),
        (nn.Conv1d(5, 2, 1), (4, 5, 3), ConvGradients),
        (nn.Conv1d(4, 2, 1, groups=2), (4, 4, 3), FunctionalGradients),
        (nn.Conv1d(4, 2, 1, padding="same"), (4, 4, 3), FunctionalGradients),
        (nn.ConvTranspose1d(5, 2, 1), (4, 5, 3), ConvGradients),
        (nn.MultiheadAttention(4, 2, batch_first=True), (4, 5, 4), FunctionalGradients),
    ],
)
def test_find_rule_expected_rule_chosen(layer, shape, rule) -> None:
    assert find_rule(layer, torch.zeros(shape)) is rule


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("runs", "length", "chunk"), [(1, 1, None), (3, 7, None), (3, 7, 1)])
@pytest.mark.parametrize("name", CASES)
def test_engine_layers_match_single_examples(name, runs, length, chunk, dtype, monkeypatch) -> None:
    if chunk is not None:
        monkeypatch.setitem(CHUNK_BYTES, "cpu", chunk)
    given = prepare(name, dtype, runs, length=length)
    mine = given.engine(*given[1:])
    norms, layer_norms = mine.norms(), mine.layer_norms()
    weights = torch.rand(runs, 2, 4, dtype=dtype)
    sums = mine.weighted_sums(weights)
    right = alone(given)
    within = {"rtol": TYPES[dtype], "atol": TYPES[dtype] * float(right.norm(dim=2).max())}
    torch.testing.assert_close(norms.double(), right.norm(dim=2), **within)
    torch.testing.assert_close(sums.double(), weights.double() @ right, **within)
    parts = right.split(list(given.engine.layer_sizes.values()), dim=2)
    for of_layer, part in zip(layer_norms.values(), parts, strict=True):
        torch.testing.assert_close(of_layer.double(), part.norm(dim=2), **within)


@pytest.mark.parametrize("name", CASES)
def test_check_independence_layer_cases_accepted(name) -> None:
    given = prepare(name)
    check_independence(given.engine, given.flats[0], given.inputs[0][:0], given.targets[0][:0])


def endless(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss whose gradient is not finite where the target is 2."""
    return cross_entropy(outputs, targets) * torch.where(targets == 2, math.inf, 1.0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_engine_contribution_within_sensitivity(name, precision) -> None:
    given = prepare(name, torch.float32, runs=3, batch=3, precision=precision)
    check_contributions(given.engine(*given[1:]), 3)


@pytest.mark.parametrize("name", CASES)
def test_engine_bfloat16_gradient_batch_independent(name) -> None:
    """A kept gradient is bitwise equal in each batch; a sum of factors is rounded as float32."""
    engine, flats, inputs, targets = prepare(name, torch.float32, precision="bfloat16")

    def second(order: list[int]) -> Tensor:
        weights = torch.eye(len(order))[None, order.index(2)][:, None]
        return engine(flats, inputs[:, order], targets[:, order]).weighted_sums(weights)[0, 0]

    right = second([2])
    assert right.abs().max() > 0
    for order in ([3, 2, 1, 0], [0, 0, 2]):
        if CASES[name].kept:
            assert torch.equal(second(order), right)
        else:
            torch.testing.assert_close(second(order), right, rtol=1e-5, atol=1e-7)


def by_kernels(*given) -> SequenceFactors:
    made = SequenceFactors(*given)
    assert made.forms_kernels  # the layers here are small
    return made


def by_gram(*given) -> SequenceFactors:
    made = SequenceFactors(*given)
    made.forms_kernels = False
    return made


FORMS = [by_kernels, by_gram]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sequence_factors_norms_match_exact(form, bias: bool, dtype) -> None:
    """Norms over several chunks are accurate, whatever the precision switches are."""
    layer = nn.Linear(120, 130, bias=bias)
    inputs, errors = torch.randn(150, 70, 120).to(dtype), torch.randn(150, 70, 130).to(dtype)
    kernels = torch.bmm(errors.double().mT, inputs.double()).flatten(1)
    exact = torch.cat([kernels, errors.double().sum(dim=1)] if bias else [kernels], dim=1).norm(
        dim=1
    )
    with restore_switches(), torch.autocast("cpu"):
        torch.set_float32_matmul_precision("medium")
        norms = form(layer, inputs, errors).norms()
    assert norms.dtype == torch.float64
    assert (norms >= exact * (1 - 1e-7)).all()
    torch.testing.assert_close(norms, exact, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize(
    ("shape", "size", "kernels"),
    [((4, 16, 300), 300, False), ((4, 64, 300), 300, True), ((4, 2, 20, 300), 300, True)],
)
def test_sequence_factors_cheaper_form_chosen(shape, size, kernels) -> None:
    made = SequenceFactors(nn.Linear(300, size), torch.zeros(shape), torch.zeros(*shape[:-1], size))
    assert made.forms_kernels == kernels


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rule", [SequenceKernels, *FORMS])
@pytest.mark.parametrize("left", [1e-3, 1e-7, 0.0])
@pytest.mark.parametrize(("examples", "length", "width"), [(20, 9, 6), (300, 3, 1)])
def test_sequence_factors_cancelling_rows_clipped(
    examples, length, width, left, rule, bias
) -> None:
    """The sum of cancelling rows may be rounding alone; a norm of zero would pass unclipped."""
    torch.manual_seed(0)
    inputs = torch.randn(examples, 1, width).expand(-1, length, -1).contiguous()
    errors = torch.randn(examples, length, width)
    rest = left * (1 + torch.rand(examples, 1, width))
    errors += (rest - errors.double().mean(dim=1, keepdim=True)).float()
    mine = rule(nn.Linear(width, width, bias=bias), inputs, errors)
    weights = 0.3 / mine.norms().clamp(min=1e-12)
    sums = mine.weighted_sums(torch.diag(weights.float())[None])
    lengths = torch.cat([part[0].flatten(1) for part in sums.values()], dim=1).double().norm(dim=1)
    assert lengths.max() <= 0.3 * (1 + BOUND)
    if left == 1e-3:
        assert lengths.min() > 0.29  # the bound on rounding is no more than that


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("inputs", "outputs"), [(1e33, 1e-20), (1e-40, 1e30), (1e20, 1e20)])
def test_sequence_factors_huge_factor_dropped(inputs: float, outputs: float, form) -> None:
    given = torch.ones(2, 3, 4), torch.ones(2, 3, 5)
    given[0][1, 2], given[1][1, 2] = inputs, outputs
    norms = form(nn.Linear(4, 5, bias=False), *given).norms()
    assert norms.tolist() == [pytest.approx(3 * math.sqrt(20)), math.inf]


@pytest.mark.parametrize("form", FORMS)
def test_sequence_factors_tiny_sequence_measured(form) -> None:
    given = torch.full((2, 3, 4), 1e-25), torch.full((2, 3, 5), 1e-9)
    norms = form(nn.Linear(4, 5, bias=False), *given).norms()
    assert norms.tolist() == pytest.approx([3e-34 * math.sqrt(20)] * 2, rel=1e-5, abs=0.0)


def test_embedding_gradients_repeated_word_summed() -> None:
    layer, words = nn.Embedding(WORDS, 2), torch.tensor([[3, 1, 3], [0, 1, 2], [4, 4, 4]])
    errors = torch.tensor([[[3.0, 0.0], [0.0, 8.0], [3.0, 0.0]]]).expand(3, -1, -1)
    rule = EmbeddingGradients(layer, words, errors)
    assert rule.norms().tolist() == pytest.approx([10.0, math.sqrt(9 + 64 + 9), 10.0])
    sums = rule.weighted_sums(torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]]))["weight"][0]
    assert sums[0].tolist() == [[0, 0], [0, 8], [0, 0], [6, 0], [0, 0]]
    assert sums[1].tolist() == [[3, 0], [0, 8], [3, 0], [0, 0], [12, 16]]


def test_embedding_gradients_large_table_fits() -> None:
    """Per-sample tables of a million words for ten thousand examples would not fit in memory."""
    words = torch.randint(1_000_000, (10_000, 2))
    rule = EmbeddingGradients(nn.Embedding(1_000_000, 1), words, torch.ones(10_000, 2, 1))
    assert rule.norms().shape == (10_000,)
    assert rule.weighted_sums(torch.ones(1, 1, 10_000))["weight"].sum() == 20_000


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.3])
@pytest.mark.parametrize(
    "layer", [lambda eps: nn.LayerNorm(4, eps=eps), lambda eps: nn.GroupNorm(2, 4, eps=eps)]
)
def test_find_rule_normalisation_eps_kept(layer, eps: float) -> None:
    torch.manual_seed(0)
    one, inputs, errors = layer(eps), 0.3 * torch.randn(5, 4), torch.randn(5, 4)
    rule = find_rule(one, inputs)(one, inputs, errors)
    for place in range(5):
        one.zero_grad()
        one(inputs[place : place + 1]).backward(errors[place : place + 1])
        sums = rule.weighted_sums(torch.eye(5)[place].view(1, 1, 5))
        torch.testing.assert_close(sums["weight"][0, 0], one.weight.grad)
        torch.testing.assert_close(sums["bias"][0, 0], one.bias.grad)


EXAMPLES = 6


@pytest.mark.parametrize("count", [1, 8, 9, 40])
def test_materialized_gradients_all_parameters_summed(count: int) -> None:
    """A recurrent layer has four parameters for each of its layers and directions."""
    torch.manual_seed(0)
    parts = {f"part {k}": torch.randn(EXAMPLES, 3, dtype=torch.double) for k in range(count)}
    whole = torch.cat(list(parts.values()), dim=1)
    kept = MaterializedGradients(parts)
    torch.testing.assert_close(kept.norms(), whole.norm(dim=1))
    bad = torch.arange(EXAMPLES) == 4
    kept.drop(bad)
    torch.testing.assert_close(kept.norms(), whole.norm(dim=1) * ~bad)
    weights = torch.rand(1, 2, EXAMPLES, dtype=torch.double)
    sums = torch.cat(list(kept.weighted_sums(weights).values()), dim=2)
    torch.testing.assert_close(sums, weights @ (whole * ~bad[:, None]))


@pytest.mark.parametrize("count", [2, 17, 70])
def test_engine_all_layers_measured(count: int) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 2) for _ in range(count)]
    engine = GradientEngine(nn.Sequential(*layers).double(), cross_entropy)
    flats = torch.randn(1, engine.size, dtype=torch.double)
    inputs = torch.randn(1, 3, 2, dtype=torch.double)
    given = Given(engine, flats, inputs, torch.tensor([[0, 1, 0]]))
    mine, right = engine(*given[1:]), alone(given)
    torch.testing.assert_close(mine.norms(), right.norm(dim=2))
    assert len(mine.layer_norms()) == count


RUNS, BATCH = 2, 3


class Twice:
    """Of what the layer would give."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def twice(kind: type[nn.Module], *arguments: object) -> nn.Module:
    return type("Twice", (Twice, kind), {})(*arguments)


SUBCLASSES = {
    "linear": (twice(nn.Linear, 4, 5), (4,)),
    "linear on a sequence": (twice(nn.Linear, 4, 5), (6, 4)),
    "long linear on a sequence": (twice(nn.Linear, 40, 50), (3, 40)),
    "conv1d": (twice(nn.Conv1d, 2, 3, 2), (2, 5)),
    "transposed conv1d": (twice(nn.ConvTranspose1d, 2, 3, 2), (2, 5)),
    "conv2d": (twice(nn.Conv2d, 2, 3, 2), (2, 4, 4)),
    "transposed conv2d": (twice(nn.ConvTranspose2d, 2, 3, 2), (2, 4, 4)),
    "embedding": (twice(nn.Embedding, 7, 4), (5,)),
    "layer norm": (twice(nn.LayerNorm, 4), (3, 4)),
    "group norm": (twice(nn.GroupNorm, 2, 4), (4, 3)),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_engine_subclass_gradient_matches_alone(name: str) -> None:
    torch.manual_seed(2)
    layer, shape = SUBCLASSES[name]
    words = isinstance(layer, nn.Embedding)
    shape = (RUNS, BATCH, *shape)
    inputs = torch.randint(7, shape) if words else torch.randn(shape, dtype=torch.double)
    size = layer.double()(inputs[0]).flatten(1).shape[1]
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(size, 3)).double()
    engine = GradientEngine(model, cross_entropy)
    flats = torch.randn(RUNS, engine.size, dtype=torch.double)
    given = Given(engine, flats, inputs, torch.randint(3, (RUNS, BATCH)))
    mine, right = engine(*given[1:]), alone(given)
    weights = torch.rand(RUNS, 1, BATCH, dtype=torch.double)
    torch.testing.assert_close(mine.norms(), right.norm(dim=2))
    torch.testing.assert_close(mine.weighted_sums(weights), weights @ right)


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
def test_conv_gradients_asymmetric_options_match_alone(kind, options, bias) -> None:
    torch.manual_seed(0)
    for channels in CHANNELS:
        check(kind(*channels, **options, bias=bias), torch.randn(2, channels[0], 8, 9))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_conv_gradients_1d_options_match_alone(kind, bias) -> None:
    torch.manual_seed(0)
    over_time = [(1, 1, 0, 1), (3, 1, 2, 2), (3, 2, 0, 1), (2, 3, 2, 3), (3, 2, 1, 2)]
    for channels, (size, stride, padding, dilation) in product(CHANNELS, over_time):
        layer = kind(*channels, size, stride, padding, dilation=dilation, bias=bias)
        check(layer, torch.randn(2, channels[0], 11))


@pytest.mark.parametrize("options", [{"output_padding": 1}, {"output_padding": 2, "padding": 1}])
@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d])
def test_conv_gradients_output_padding_counted(kind, options) -> None:
    torch.manual_seed(0)
    places = (7,) if kind is nn.ConvTranspose1d else (7, 5)
    check(kind(2, 3, 3, 3, **options), torch.randn(3, 2, *places))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "of"), [((5,), (5,)), ((4, 5), (5,)), ((4, 5), (4, 5)), ((3, 4, 5), (4, 5))]
)
def test_layer_norm_gradients_dimensions_match_alone(shape, of, bias) -> None:
    torch.manual_seed(0)
    check(nn.LayerNorm(of, bias=bias), torch.randn(3, *shape))


@pytest.mark.parametrize("places", [(), (4,), (4, 3), (2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_group_norm_gradients_shapes_match_alone(groups, places) -> None:
    torch.manual_seed(0)
    check(nn.GroupNorm(groups, 6), torch.randn(3, 6, *places))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 50])
def test_engine_chunked_plain_sums_skip_absent(size, monkeypatch) -> None:
    monkeypatch.setattr(GradientEngine, "chunk_size", lambda self, inputs, views=1: size)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    engine = GradientEngine(model, cross_entropy)
    flat, inputs = torch.randn(engine.size).double(), torch.randn(7, 4).double()
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    gradients = oracle(engine, flat, inputs, targets)
    one = OneRun(engine, flat, inputs, targets)
    for last in range(8):
        present = torch.arange(7) < last
        torch.testing.assert_close(one.plain_sums(present), gradients[present].sum(dim=0))
    present = torch.arange(7) % 3 == 1
    torch.testing.assert_close(one.plain_sums(present), gradients[present].sum(dim=0))
