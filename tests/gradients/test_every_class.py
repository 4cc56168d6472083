"""A model and a loss are tried with each number of classes that was said, and with every class."""

import pytest
import torch
from torch import Tensor, nn

from oso_dp.errors import OsoError
from oso_dp.gradients import GradientEngine, check_independence, check_model
from oso_dp.models.losses import cross_entropy

CLASSES = 6
INPUTS, LABELS = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)


class Mixing:
    """A loss that takes the batch's mean along where the target is this one."""

    def __init__(self, target: int) -> None:
        self.target = target

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(outputs, targets)
        return losses + (targets == self.target) * 0.1 * outputs.square().mean()


def code(loss, dtype: torch.dtype = torch.float64) -> tuple[GradientEngine, Tensor]:
    torch.manual_seed(0)
    made = GradientEngine(nn.Linear(4, CLASSES).to(dtype), loss)
    return made, torch.randn(made.size, dtype=dtype)


@pytest.mark.parametrize("target", range(CLASSES))
def test_a_loss_that_mixes_at_one_target_is_refused(target: int) -> None:
    made, flat = code(Mixing(target))

    def draws() -> None:
        for draw in range(5):  # of seven examples a class may be missing
            check_independence(made, flat, INPUTS, LABELS, classes=CLASSES, draw=draw)

    with pytest.raises(OsoError, match=r"^(loss|model): "):
        draws()
    if target > 1:
        check_independence(made, flat, INPUTS, LABELS)


@pytest.mark.parametrize("classes", [(2, CLASSES), (CLASSES, 2), (2, 3, CLASSES), (CLASSES,)])
@pytest.mark.parametrize("float32", [False, True])
def test_each_number_of_classes_is_tried(classes: tuple[int, ...], float32: bool) -> None:
    """Also of a model that nothing but float32 fits."""
    constant = torch.ones(CLASSES)  # float32

    class Late(Mixing):
        def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
            weights = constant if float32 else constant.to(outputs.dtype)
            losses = nn.functional.cross_entropy(outputs, targets, weight=weights, reduction="none")
            return losses + (targets > 1) * 0.1 * outputs.square().mean()

    made, flat = code(Late(0), torch.float32)
    with pytest.raises(OsoError, match=r"^(loss|model): "):
        check_model(made, flat, INPUTS, LABELS, classes)
    check_model(made, flat, INPUTS, LABELS)
