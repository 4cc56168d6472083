"""Training of models as people write them: dropout, BatchNorm, views of examples, and `check`."""

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.api.conftest import flat
from tests.gradients.everyday_models import MODELS, WIDTH, Net, head, rows
from torch import Tensor, nn

import oso_dp
from oso_dp import OsoError
from oso_dp.api.model_check import without_batch_norm
from oso_dp.gradients import GradientEngine
from oso_dp.gradients.structured import map_tensors
from oso_dp.privacy.batch_rng import BatchRNG
from oso_dp.privacy.rng_sources import Seeded
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.training.augmentation import make_views

CE = nn.CrossEntropyLoss(reduction="none")
COUNT = 30


def trained(model: nn.Module, data, loss=CE, **options):
    options = {"seed": 1, "randomness": "seeded", "method": "online", **options}
    return oso_dp.train_private(
        model, loss, data, epsilon=3, delta=1e-3, epochs=1, batch_size=6, progress=False, **options
    )


@pytest.mark.parametrize("name", MODELS)
def test_train_private_everyday_model_keeps_sharing(name: str) -> None:
    case = MODELS[name]
    torch.manual_seed(1)
    model, inputs = case.build(), case.inputs(COUNT)
    targets = torch.randint(2, (COUNT, *case.targets))
    before = copy.deepcopy(model)
    result = trained(model, (inputs, targets), case.loss)
    assert result.status == "finished"
    assert not torch.equal(flat(result), flat(before))
    for one, other in zip(model.state_dict().values(), before.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    shared = [len(list(m.parameters())) for m in (model, result.model)]
    assert shared[0] == shared[1]


def dropping(share: float) -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(share), nn.ReLU(), nn.Linear(8, 3))


DATA = torch.randn(COUNT, 4), torch.randint(3, (COUNT,))


def test_dropout_seed_differs_per_microbatch(monkeypatch) -> None:
    seeds = []
    real = GradientEngine.__call__

    def recorded(self, flat, inputs, targets, absent=None, seed=None, views=1):
        seeds.extend([] if seed is None else [seed])  # none in the check before training
        return real(self, flat, inputs, targets, absent, seed, views)

    monkeypatch.setattr(GradientEngine, "__call__", recorded)
    first = trained(dropping(0.5), DATA, microbatch_size=4)
    assert len(set(seeds)) == len(seeds) > 5
    assert torch.equal(flat(first), flat(trained(dropping(0.5), DATA, microbatch_size=4)))
    assert not torch.equal(flat(first), flat(trained(dropping(0.5), DATA, seed=2)))
    assert not torch.equal(flat(first), flat(trained(dropping(0.1), DATA)))


def test_train_private_keeps_torch_generator() -> None:
    model = dropping(0.5)
    before = torch.get_rng_state()
    trained(model, DATA, augment=lambda one: one + torch.rand(()), augmentations=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_zero_has_no_effect() -> None:
    assert torch.equal(
        flat(trained(dropping(0.0), DATA)), flat(trained(dropping(0.0).eval(), DATA))
    )


def identity(example: Tensor) -> Tensor:
    return example


def test_augment_identity_has_no_effect() -> None:
    plain = flat(trained(dropping(0.0), DATA))
    assert torch.equal(flat(trained(dropping(0.0), DATA, augment=identity)), plain)
    several = flat(trained(dropping(0.0), DATA, augment=identity, augmentations=4))
    torch.testing.assert_close(several, plain, rtol=1e-4, atol=1e-5)


def test_augment_draws_differ_per_view() -> None:
    seen = []

    def augment(example: Tensor) -> Tensor:
        assert example.shape == (4,)
        seen.append(float(torch.rand(())))
        return example + seen[-1]

    first = flat(trained(dropping(0.0), DATA, augment=augment, augmentations=3))
    drawn = seen[1:]  # without the trial on zeros
    assert len(set(drawn)) == len(drawn) > 3 * 5 * 4
    assert torch.equal(first, flat(trained(dropping(0.0), DATA, augment=augment, augmentations=3)))


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("size", [0, 2])
def test_make_views_structured_inputs_keep_places(views: int, size: int) -> None:
    inputs = {"a": torch.arange(2 * size * 3).view(2, size, 3), "b": torch.randn(2, size)}
    made = make_views(lambda one: map_tensors(lambda part: part + 1, one), inputs, views)
    for key, values in inputs.items():
        wanted = values[:, :, None].expand(2, size, views, *values.shape[2:]) + 1
        assert torch.equal(made[key], wanted if views > 1 else wanted[:, :, 0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"augmentations": 2}, "augmentations: 2; has no effect without augment"),
        ({"augmentations": 0, "augment": identity}, "augmentations: 0; must be an integer >= 1"),
        ({"augment": "flip"}, "augment: str; must be callable"),
        ({"augment": lambda one: one[:2]}, "augment: makes"),
        ({"augment": lambda one: 1 / 0}, "augment: fails on an example of zeros: division"),
    ],
)
def test_augment_invalid_options_rejected(options, said: str) -> None:
    with pytest.raises(OsoError, match=said):
        trained(dropping(0.0), DATA, **options)


def batch_normed() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(6, 48, 3, padding=1),
        nn.Sequential(nn.BatchNorm1d(48), nn.ReLU(inplace=True)),
        nn.Conv1d(48, 8, 1),
        nn.InstanceNorm1d(8, track_running_stats=True, affine=True),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


def test_fix_batch_norm_replaced_and_stated() -> None:
    data = rows(COUNT), torch.randint(3, (COUNT,))
    with pytest.raises(OsoError, match="is a BatchNorm1d, which mixes examples"):
        trained(batch_normed(), data)
    model = batch_normed()
    with torch.no_grad():
        model[1][0].weight += 3
    result = trained(model, data, fix=True)
    assert "Model: GroupNorm in place of BatchNorm in 1.0, 3." in str(result.statement)
    assert isinstance(model[1][0], nn.BatchNorm1d)
    norm = result.model[1][0]
    assert (type(norm), norm.num_groups) == (nn.GroupNorm, 4)
    assert norm.weight.mean() > 3
    assert result.model[3].num_groups == 8
    assert "Model:" not in str(trained(dropping(0.0), DATA).statement)
    assert "Model:" not in str(trained(dropping(0.0), DATA, fix=True).statement)


@pytest.mark.parametrize(
    ("norm", "groups"),
    [
        (nn.BatchNorm2d(64), 32),
        (nn.BatchNorm2d(48), 16),
        (nn.BatchNorm2d(7), 1),
        (nn.SyncBatchNorm(64), 32),
        (nn.BatchNorm1d(64), 16),
        (nn.BatchNorm1d(2), 1),
        (nn.BatchNorm1d(6), 1),
    ],
)
def test_without_batch_norm_groups_divide_channels(norm: nn.Module, groups: int) -> None:
    made, names = without_batch_norm(nn.Sequential(norm))
    assert (made[0].num_groups, names) == (groups, ("0",))
    assert without_batch_norm(norm)[1] == ("",)
    assert without_batch_norm(nn.Sequential(norm).eval())[1] == ()


def outcomes(model: nn.Module, example) -> dict[str, str]:
    return {one.name: one.outcome for one in oso_dp.check(model, example).layers}


def test_check_lists_layer_outcomes() -> None:
    found = oso_dp.check(batch_normed(), rows(2))
    assert found.ok
    assert [(one.name, one.outcome) for one in found.layers] == [
        ("0", "trained"),
        ("1.0", "replaced"),
        ("2", "trained"),
        ("3", "replaced"),
        ("5", "trained"),
    ]
    assert "pass fix=True: GroupNorm in place of BatchNorm in 1.0, 3" in str(found)
    assert "outputs that are changed in place" in str(found)
    drops = nn.Sequential(
        nn.Conv2d(4, 4, 1, groups=2), nn.Dropout(), nn.Flatten(), nn.Linear(16, 2)
    )
    drops[3].requires_grad_(False)
    text = str(oso_dp.check(drops, torch.zeros(1, 4, 2, 2)))
    assert outcomes(drops, torch.zeros(1, 4, 2, 2)) == {"0": "slow", "3": "frozen"}
    assert "each example has its own" in text
    assert text.endswith("can be trained")


def test_check_dropout_beside_layer_of_two_tensors_accepted() -> None:
    net = Net(
        lambda n, x: n.last(n.drop(n.a(x[:, 0], x[:, 1]))),
        a=nn.Bilinear(WIDTH, WIDTH, WIDTH),
        drop=nn.Dropout(),
        last=head(),
    )
    text = str(oso_dp.check(net, rows(2)))
    assert "torch.func computes" in text
    assert "each example has its own" in text


@pytest.mark.parametrize("name", MODELS)
def test_check_everyday_model_accepted(name: str) -> None:
    case = MODELS[name]
    found = oso_dp.check(case.build(), case.inputs(2))
    assert found.ok, str(found)
    assert ("torch.func computes" in str(found)) == case.is_whole_model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(nn.Embedding(3, 4, max_norm=1.0), nn.Linear(4, 2)), "with max_norm"),
        (Net(lambda n, x: n.last((x + x.mean(0)).mean(1)), last=head()), "mixes examples"),
    ],
)
def test_check_rejected_model_gives_reason(model: nn.Module, said: str) -> None:
    example = torch.zeros(1, 3, dtype=torch.int64) if said == "with max_norm" else rows(1)
    found = oso_dp.check(model, example)
    assert not found.ok
    assert said in found.refused
    assert found.refused in str(found)


class Two(nn.Module):
    """Outputs of two and of no dimensions for an example."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.second(x).squeeze(-1)


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs[1], targets.float(), reduction="none")


CLASSES = torch.randint(2, (COUNT,))
PROBABLE = torch.rand(COUNT, 1) * 0.8 + 0.1
LOSSES = {
    "one number for an example": (Two, logistic, CLASSES),
    "two outputs": (Two, lambda o, t: F.cross_entropy(o[0], t, reduction="none"), CLASSES),
    "probabilities": (
        lambda: nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()),
        nn.BCELoss(reduction="none"),
        PROBABLE,
    ),
    "probabilities after dropout": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1), nn.Sigmoid()),
        nn.BCELoss(reduction="none"),
        PROBABLE,
    ),
    "divergence": (
        lambda: nn.Sequential(nn.Linear(4, 2), nn.LogSoftmax(1)),
        nn.KLDivLoss(reduction="none"),
        torch.cat([PROBABLE, 1 - PROBABLE], 1),
    ),
    "a logarithm": (lambda: nn.Linear(4, 1), lambda o, t: (o - t.log()).square()[:, 0], PROBABLE),
    "a class among the floats": (
        lambda: nn.Linear(4, 2),
        lambda o, t: F.cross_entropy(o, t[:, 0].long(), reduction="none"),
        torch.cat([CLASSES[:, None].float(), PROBABLE], 1),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_everyday_accepted(name: str) -> None:
    make, loss, targets = LOSSES[name]
    inputs = torch.randn(COUNT, 4)
    assert oso_dp.check(make(), inputs[:1], loss, targets[:1]).ok
    assert oso_dp.check(make(), inputs[:1].double().numpy(), loss, targets[:2].numpy()).ok
    assert trained(make(), (inputs, targets), loss).status == "finished"


class Positions(nn.Module):
    """Adds its own parameter to each example."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.places, self.last = nn.Parameter(torch.zeros(*shape)), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.dropout(x[:, None] + self.places)).mean(dim=1)


@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4)])
def test_dropout_on_own_parameter_trained(shape) -> None:
    data = torch.randn(COUNT, 4), CLASSES
    assert trained(Positions(*shape), data).status == "finished"


class Frozen(nn.Module):
    """Asks its frozen part for the device and type of its parameters, as transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = nn.Sequential(nn.Linear(4, 4), nn.Dropout()), nn.Linear(4, 2)
        self.body.requires_grad_(False)
        self.body[0].register_buffer("counted", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        first = next(self.body.parameters())
        assert len(list(self.body[0].parameters())) == 2
        assert not list(self.body.parameters(recurse=False))
        return self.last(self.body(x.to(first.device, first.dtype)))


def test_frozen_part_has_parameters() -> None:
    data = torch.randn(COUNT, 4), CLASSES
    assert oso_dp.check(Frozen(), data[0][:1]).ok
    assert trained(Frozen(), data).status == "finished"


class Blank(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError


def test_failure_without_message_named() -> None:
    with pytest.raises(OsoError, match=r"^model: fails on three examples .*: AssertionError$"):
        trained(Blank(4, 2), (torch.randn(COUNT, 4), CLASSES))


@pytest.mark.parametrize("share", [1e-3, 1.0])
def test_loss_mixing_probabilities_rejected(share: float) -> None:
    """The loss fails on normal targets, so the check for mixing uses targets in [0, 1]."""

    def mixing(outputs: Tensor, targets: Tensor) -> Tensor:
        alone = F.binary_cross_entropy(outputs, targets, reduction="none")[:, 0]
        return alone * (1 + share * targets.mean())

    model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    found = oso_dp.check(model, torch.zeros(1, 4), mixing, PROBABLE)
    assert "must depend on that example's output and target only" in found.refused
    with pytest.raises(OsoError, match="must depend on that example's output and target only"):
        trained(model, (torch.randn(COUNT, 4), PROBABLE), mixing)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": logistic}, "targets: missing; loss and an example's targets go together"),
        ({"targets": CLASSES}, "loss: missing; loss and an example's targets go together"),
    ],
)
def test_check_loss_or_targets_missing_rejected(given, said: str) -> None:
    with pytest.raises(OsoError, match=said):
        oso_dp.check(head(), rows(1), **given)


def test_check_invalid_arguments_rejected() -> None:
    with pytest.raises(OsoError, match="model: str; must be a torch"):
        oso_dp.check("model", rows(1))
    assert "example: str; must be a tensor" in oso_dp.check(head(), "rows").refused


def test_loss_several_numbers_averaged() -> None:
    inputs, targets = torch.randn(COUNT, 4), torch.rand(COUNT, 3)
    by_mean = trained(dropping(0.0), (inputs, targets), lambda o, t: (o - t).square().mean(1))
    each = trained(dropping(0.0), (inputs, targets), nn.MSELoss(reduction="none"))
    torch.testing.assert_close(flat(each), flat(by_mean))
    one, data = nn.Linear(4, 1), (inputs, targets[:, 0])
    with pytest.raises(OsoError, match=r"give targets the shape \[n, 1\]"):
        trained(one, data, lambda outputs, y: (outputs - y).square())


def test_train_private_dictionary_forms_match() -> None:
    case = MODELS["a dictionary in and out"]
    torch.manual_seed(2)
    inputs, targets = case.inputs(COUNT), torch.randint(2, (COUNT,))
    model = case.build()
    by_rows = [
        {**{key: values[row] for key, values in inputs.items()}, "labels": targets[row]}
        for row in range(COUNT)
    ]
    results = [
        trained(model, data, case.loss)
        for data in (
            (inputs, targets),
            {**inputs, "labels": targets},
            by_rows,
        )
    ]
    for other in results[1:]:
        assert torch.equal(flat(results[0]), flat(other))
    assert "inputs['mask'] bool [6]" in results[0].statement.types


def test_model_seed_differs_per_pass() -> None:
    drawn = BatchRNG(Seeded(), PoissonSampling.of(2, 4), 4, torch.device("cpu"))
    seeds = {drawn.model_seed(run, step, n) for run in "ab" for step in (1, 2) for n in (1, 2)}
    assert len(seeds) == 8
