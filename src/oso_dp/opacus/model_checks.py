"""Checks before training that a model keeps examples apart, on random inputs.

Clipping bounds an example's contribution only if its per-sample gradient is complete and depends on
no other example. So each example's gradient, computed alone by autograd, is compared with the
per-sample gradients that Opacus's hooks compute in a batch of three. A forward pass must not change
the model either (`oso_dp.gradients.pure_forward`).

Only the first real example is read, for its shape and type. The check is skipped, with a warning,
if these do not say how the model is called (custom collate function, examples that are not tuples,
non-tensor inputs, batch_first=False), if the model does not run on random inputs, or if it is
large. For a model that draws random numbers, only its outputs are checked.
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

EXAMPLES, TOLERANCE, MAX_PARAMETERS = 3, 1e-6, 20_000_000


def check_independence(
    module: nn.Module, loader: DataLoader, mode: str, batch_first: bool, trained: set[int]
) -> bool:
    """OsoError if an example's gradient differs between a batch and alone; False if not checked.

    `trained`: `id`s of the parameters that the optimizer updates.
    """
    if isinstance(module, WRAPPERS):
        module = module.module
    if sum(p.numel() for p in module.parameters()) > MAX_PARAMETERS:
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
    """A copy of the model, a batch, output weights, and gradients computed alone [B, P]."""
    dim = 0 if batch_first else 1
    try:
        example = _example(loader) if dim == 0 else None
        if example is None:
            return None
        first = next(p for p in module.parameters() if p.is_floating_point())
        example = example.to(first if example.is_floating_point() else first.device)
        check_forward_is_pure(module, example, argument="module")
        inputs = _random_batch(example)
        model = copy.deepcopy(module).double()
        _perturb(model)
        for layer in model.modules():
            if isinstance(layer, _DropoutNd):
                layer.eval()
        outputs, again = model(inputs), model(inputs)
        if not torch.is_tensor(outputs) or outputs.shape[dim] != EXAMPLES:
            return None
        if not torch.equal(outputs, again):  # the model draws random numbers
            _check_mixing(model, inputs, dim)
            return None
        directions = torch.randn_like(outputs)
        rows = []
        for index in range(EXAMPLES):
            one, direction = inputs.narrow(dim, index, 1), directions.narrow(dim, index, 1)
            model.zero_grad()
            (model(one) * direction).sum().backward()
            rows.append(_flat(model, names))
        model.zero_grad()
        return model, inputs, directions, torch.stack(rows)
    except OsoError:
        raise
    except Exception:  # a user's model may raise anything on random inputs
        return None


def _perturb(model: nn.Module) -> None:
    """Move the parameters off their initial values: a layer of zeros hides those before it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
                parameter.add_((spread or 0.05) * torch.randn_like(parameter))


def _check_mixing(model: nn.Module, inputs: Tensor, dim: int) -> None:
    """OsoError if, with one seed, the first or last example's outputs depend on the others.

    The last example is checked because outputs may depend on earlier examples only.
    """

    def outputs(batch: Tensor) -> Tensor:
        torch.manual_seed(1)
        result: Tensor = model(batch)
        return result

    once, again = outputs(inputs), outputs(inputs)
    if not torch.equal(once, again):
        raise OsoError(
            "module: outputs for equal inputs differ after torch.manual_seed; draw random numbers "
            "with torch only, so that the model can be checked"
        )
    for index in (0, EXAMPLES - 1):
        in_batch, example = once.narrow(dim, index, 1), inputs.narrow(dim, index, 1)
        alone = outputs(torch.cat([example] * EXAMPLES, dim=dim)).narrow(dim, index, 1)
        scale = float(in_batch.abs().max())
        if not torch.allclose(in_batch, alone, rtol=TOLERANCE, atol=TOLERANCE * scale):
            raise OsoError(
                "module: an example's outputs depend on other examples of its batch; the model "
                "mixes examples"
            )


def _example(loader: DataLoader) -> Tensor | None:
    """The first example's input, as a batch of one; None if it is unclear how to call the model.

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


def _random_batch(example: Tensor) -> Tensor:
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
        if "inplace" in line:
            line = "it changes a layer's output in place; use inplace=False, x = x + y for x += y"
        raise OsoError(f"module: fails in grad_sample_mode {mode!r}: {line}") from error
    sizes = [p.numel() for p in trained]
    together = PerSampleGradients(held, sizes, torch.double, alone.device)
    if together.size != EXAMPLES:
        raise OsoError(
            f"module: layers see {together.size} examples in a batch of {EXAMPLES}; row i of each "
            "layer's input must belong to example i"
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
            f"module: in grad_sample_mode {mode!r}, an example's gradient in a batch differs from "
            "its gradient alone; the model mixes examples, or has an unsupported layer"
        )
    hooked.cleanup()
