"""Whether Opacus's hooks are right about a model: tried on made-up examples, before training.

The counterpart of `oso_dp.gradients.independence_checks`. The clip bounds one example in a sum only
if what the hooks take for its gradient is all of it, and nobody else's. So each example's gradient
by plain differentiation, alone, is held against what the hooks leave of a batch of three.

Nor may a forward pass change the model (`oso_dp.gradients.pure_forward`).

Of the real examples only the first one's shape and type are looked at. Where they do not say how
the model is called (a collate function of its own, examples that are no pairs, inputs that are no
numbers, the batch in the second dimension), or the model does not run on random numbers, nothing is
tried, and a warning says so. Of a model that draws random numbers the gradients are not tried, only
whether an example's outputs depend on the others.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import DataLoader, default_collate

from oso_dp.errors import OsoError
from oso_dp.gradients import check_forward_is_pure
from oso_dp.opacus.model_hooks import WRAPPERS, per_sample_gradient, wrap_model
from oso_dp.opacus.per_sample_gradients import PerSampleGradients

EXAMPLES, TOLERANCE, LARGEST = 3, 1e-6, 20_000_000


def check_independence(
    module: nn.Module, loader: DataLoader, mode: str, batch_first: bool, trained: set[int]
) -> bool:
    """OsoError if an example's gradient in a batch is another than alone; False: not tried.

    `trained`: identities of the parameters that the optimizer moves.
    """
    if isinstance(module, WRAPPERS):
        module = module.module
    if sum(p.numel() for p in module.parameters()) > LARGEST:
        return False
    names = {name for name, p in module.named_parameters() if id(p) in trained}
    devices = [p.device for p in module.parameters() if p.device.type == "cuda"]
    with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on hooks of a model without inputs that need gradients
        torch.manual_seed(0)
        attempt = _reference_gradients(module, loader, batch_first, names)
        if attempt is None:
            return False
        model, inputs, directions, alone = attempt
        _compare(model, inputs, directions, alone, mode, batch_first, names)
    return True


def _reference_gradients(
    module: nn.Module, loader: DataLoader, batch_first: bool, names: set[str]
) -> tuple[nn.Module, Tensor, Tensor, Tensor] | None:
    """A copy of the model, a batch, what its outputs are multiplied by, gradients alone [B, P]."""
    dim = 0 if batch_first else 1
    try:
        example = _example(loader) if dim == 0 else None
        if example is None:
            return None
        first = next(p for p in module.parameters() if p.is_floating_point())
        example = example.to(first if example.is_floating_point() else first.device)
        check_forward_is_pure(module, example, argument="module")
        inputs = _made_up(example)
        model = copy.deepcopy(module).double()
        _perturb(model)
        for layer in model.modules():
            if isinstance(layer, _DropoutNd):
                layer.eval()
        outputs, again = model(inputs), model(inputs)
        if not torch.is_tensor(outputs) or outputs.shape[dim] != EXAMPLES:
            return None
        if not torch.equal(outputs, again):  # it draws random numbers
            _check_mixing(model, inputs, dim)
            return None
        directions = torch.randn_like(outputs)
        rows = []
        for place in range(EXAMPLES):
            one, direction = inputs.narrow(dim, place, 1), directions.narrow(dim, place, 1)
            model.zero_grad()
            (model(one) * direction).sum().backward()
            rows.append(_flat(model, names))
        model.zero_grad()
        return model, inputs, directions, torch.stack(rows)
    except OsoError:
        raise
    except Exception:  # whatever a model may do with numbers that mean nothing
        return None


def _perturb(model: nn.Module) -> None:
    """Away from where it starts: a layer of zeros would hide all that stands before it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
                parameter.add_((spread or 0.05) * torch.randn_like(parameter))


def _check_mixing(model: nn.Module, inputs: Tensor, dim: int) -> None:
    """OsoError if the first or last example's outputs, of equal draws, depend on the others.

    The last one's, too: they may lean on the examples before it.
    """

    def outputs(of: Tensor) -> Tensor:
        torch.manual_seed(1)
        made: Tensor = model(of)
        return made

    once, again = outputs(inputs), outputs(inputs)
    if not torch.equal(once, again):
        raise OsoError(
            "module: equal inputs give other outputs, also after torch.manual_seed; draw random "
            "numbers by torch alone, so that the model can be tried"
        )
    for place in (0, EXAMPLES - 1):
        in_batch, alone = once.narrow(dim, place, 1), inputs.narrow(dim, place, 1)
        alike = outputs(torch.cat([alone] * EXAMPLES, dim=dim)).narrow(dim, place, 1)
        size = float(in_batch.abs().max())
        if not torch.allclose(in_batch, alike, rtol=TOLERANCE, atol=TOLERANCE * size):
            raise OsoError(
                "module: an example's outputs depend on the other examples of its batch; the model "
                "mixes examples"
            )


def _example(loader: DataLoader) -> Tensor | None:
    """The first example's input, as a batch of one; None where nothing says how it is called.

    Opacus's loader always stacks along the first dimension.
    """
    collate = loader.collate_fn
    while hasattr(collate, "wrapped_collator_fn"):  # once for each make_private
        collate = collate.wrapped_collator_fn
    first = loader.dataset[0]
    if collate is not default_collate or not isinstance(first, tuple | list) or not first:
        return None
    example = default_collate([first])[0]  # numpy's arrays become tensors
    return example if torch.is_tensor(example) else None


def _made_up(example: Tensor) -> Tensor:
    shape = (EXAMPLES, *example.shape[1:])
    if example.is_floating_point():
        return torch.randn(shape, dtype=torch.double).to(example.device)
    return torch.randint(0, 2, shape).to(example)


def _flat(model: nn.Module, names: set[str]) -> Tensor:
    return torch.cat(
        [
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
            for name, p in model.named_parameters()
            if name in names
        ]
    )


def _compare(
    model: nn.Module,
    inputs: Tensor,
    directions: Tensor,
    alone: Tensor,
    mode: str,
    batch_first: bool,
    names: set[str],
) -> None:
    trained = [p for name, p in model.named_parameters() if name in names]
    try:
        hooked: Any = wrap_model(model, mode, batch_first, "sum", wrap_model=False)
        (model(inputs) * directions).sum().backward()
        held = [per_sample_gradient(p) for p in trained]
    except OsoError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        raise OsoError(f"module: grad_sample_mode {mode!r} fails on it: {line}") from error
    sizes = [p.numel() for p in trained]
    together = PerSampleGradients(held, sizes, torch.double, alone.device)
    if together.size != EXAMPLES:
        raise OsoError(
            f"module: its layers see {together.size} examples where a batch has {EXAMPLES}; row i "
            "of each layer's input must be example i's"
        )
    weights = torch.eye(EXAMPLES, dtype=torch.double, device=alone.device)[None]
    with torch.no_grad():
        rows = together.weighted_sums(weights)[0]
        norms = together.norms()[0]
    scale = float(alone.abs().max())
    same = torch.allclose(rows, alone, rtol=TOLERANCE, atol=TOLERANCE * scale)
    lengths = alone.norm(dim=1)
    if not same or not torch.allclose(norms, lengths, rtol=TOLERANCE, atol=TOLERANCE * scale):
        raise OsoError(
            f"module: in grad_sample_mode {mode!r}, an example's gradient in a batch is another "
            "than alone; the model mixes examples, or a layer of it is not supported"
        )
    hooked.cleanup()
