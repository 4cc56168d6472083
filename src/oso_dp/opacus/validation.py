"""What `make_private` refuses, each by one line, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import AbstractGradSampleModule, GradSampleHooks
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from opacus.validators.module_validator import ModuleValidator
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from oso_dp.errors import OsoError
from oso_dp.methods.option_checks import check_number
from oso_dp.opacus.model_hooks import FUNCTORCH, GHOST, MODES, WRAPPERS, count_writes
from oso_dp.opacus.sampler import CountedLoader, PoissonSampler

ACCOUNTANTS = ("prv", "rdp")
MAX_EXAMPLES_CHECKED = 3  # examples
Array = Tensor | np.ndarray


def check_engine(accountant: Any, secure_mode: bool) -> None:
    if accountant not in ACCOUNTANTS:
        raise OsoError(
            f"accountant {accountant!r}: not known, or no bound on epsilon; allowed are "
            f"{', '.join(ACCOUNTANTS)}"
        )
    if secure_mode and find_spec("torchcsprng") is None:
        raise OsoError("secure_mode: needs the package torchcsprng, which is not installed")


def check_modes(arguments: Mapping[str, Any], secure_mode: bool) -> None:
    """How `make_private` is asked to work, all but the objects."""
    mode = arguments["grad_sample_mode"]
    if mode not in MODES:
        raise OsoError(f"grad_sample_mode {mode!r}: not possible; allowed are {', '.join(MODES)}")
    if arguments["clipping"] != "flat":
        raise OsoError(
            f"clipping {arguments['clipping']!r}: not possible; the gradient is clipped as one "
            "vector (flat)"
        )
    if arguments["loss_reduction"] not in ("mean", "sum"):
        raise OsoError(
            f"loss_reduction {arguments['loss_reduction']!r}: not known; allowed are mean, sum"
        )
    if arguments["poisson_sampling"] is not True:
        raise OsoError(
            "poisson_sampling=False: no epsilon is known for such batches; to accumulate gradients,"
            " give the loader the whole batch size, and split batches with BatchMemoryManager"
        )
    if arguments["rand_on_empty"] is not False:
        raise OsoError(
            "rand_on_empty=True: an invented example would double the sensitivity; empty batches "
            "need none"
        )
    generator = arguments["noise_generator"]
    if not isinstance(generator, torch.Generator | None):
        raise OsoError(f"noise_generator {generator!r}: must be a torch.Generator, or None")
    if generator is not None and secure_mode:
        raise OsoError("noise_generator: not together with secure_mode, whose noise has no seed")
    check_number("max_grad_norm", arguments["max_grad_norm"], gt=0)
    check_number("noise_multiplier", arguments["noise_multiplier"], ge=1e-20, le=1e20)


def check_module(module: Any, mode: str) -> None:
    if isinstance(module, AbstractGradSampleModule | GradSampleHooks):
        raise OsoError("module: is wrapped by Opacus already; give the model itself")
    if not isinstance(module, nn.Module):
        raise OsoError(f"module: must be a torch.nn.Module, not {type(module).__name__}")
    if isinstance(module, FSDPModule | FullyShardedDataParallel):
        raise OsoError("module: fully sharded models are not possible; allowed are both DDP")
    if hasattr(module, "autograd_grad_sample_hooks"):
        raise OsoError("module: has Opacus's hooks already; call cleanup() of the earlier ones")
    for name, layer in module.named_modules():
        if problem := _problem(layer, mode):
            raise OsoError(f"module: layer {name!r} ({type(layer).__name__}): {problem}")
    errors = [*ModuleValidator.validate(module), *GradSampleHooks.validate(module)]
    if errors:
        raise OsoError(f"module: {' '.join(str(errors[0]).split())}")


def _problem(layer: nn.Module, mode: str) -> str:
    if isinstance(layer, _BatchNorm):  # Opacus lets those without weights pass
        return "mixes the examples of a batch; use GroupNorm"
    if getattr(layer, "track_running_stats", False):
        return "keeps statistics of the examples; use track_running_stats=False"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        return "max_norm rewrites the rows of a batch's words without noise"
    if getattr(layer, "padding_mode", "zeros") != "zeros" and mode != FUNCTORCH:
        return f"padding_mode {layer.padding_mode!r} is taken for zeros; use functorch mode"
    return ""


def check_optimizer(optimizer: Any, module: nn.Module) -> None:
    if isinstance(optimizer, DPOptimizer):
        raise OsoError("optimizer: is Opacus's already; give the torch optimizer")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise OsoError(f"optimizer: must be a torch optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise OsoError("optimizer LBFGS: needs closures, which would see a batch more than once")
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if not {id(p) for p in held} <= {id(p) for p in module.parameters()}:
        raise OsoError("optimizer: has parameters that are not the module's")
    trained = [p for p in held if p.requires_grad]
    if not trained:
        raise OsoError("optimizer: has no parameter that requires a gradient")
    if len({p.device for p in trained}) > 1:
        raise OsoError("optimizer: its parameters lie on several devices; allowed is one")
    if not all(p.is_floating_point() for p in trained):
        raise OsoError("optimizer: has parameters that are not real numbers")
    if len(types := {str(p.dtype).removeprefix("torch.") for p in trained}) > 1:
        raise OsoError(
            f"optimizer: its parameters are of {' and '.join(sorted(types))}; allowed is one"
        )
    check_all_private(module, trained)


def check_all_private(model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
    """OsoError if a parameter of the model learns, but by another optimizer."""
    private = {id(parameter) for parameter in trained}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in private:
            raise OsoError(
                f"optimizer: has no parameter {name!r}, which requires a gradient and would learn "
                "without noise; add it to a parameter group, or freeze it by requires_grad_(False)"
            )


def check_loader(loader: Any, module: nn.Module) -> None:
    """OsoError unless Poisson batches of all examples are what the loader's own stand for.

    The loader is replaced, and whatever it does otherwise would be lost.
    """
    if not isinstance(loader, DataLoader):
        raise OsoError(f"data_loader: must be a DataLoader, not {type(loader).__name__}")
    if isinstance(loader.dataset, IterableDataset):
        raise OsoError("data_loader: an IterableDataset cannot be sampled; use one with an index")
    for name in ("__iter__", "__len__", "_get_iterator"):
        method = getattr(type(loader), name)
        if not any(method is getattr(kind, name) for kind in (DataLoader, CountedLoader)):
            raise OsoError(
                f"data_loader: {type(loader).__name__} has {name} of its own, which Poisson "
                "sampling would replace; give a plain DataLoader"
            )
    batches = loader.batch_sampler
    examples: Any = loader.dataset
    if isinstance(batches, UniformWithReplacementSampler):  # Poisson already
        _check_sampler(batches, (UniformWithReplacementSampler, PoissonSampler), len(examples))
        if abs(batches.steps * batches.sample_rate - 1) > batches.sample_rate:
            raise OsoError(
                f"data_loader: {batches.steps} batches at sampling rate {batches.sample_rate:g}; "
                f"the rate is 1 / batches, so allowed is {round(1 / batches.sample_rate)}"
            )
        return
    if type(batches) is not BatchSampler:
        raise OsoError(
            "data_loader: must have a batch size, and no batch sampler of its own, which Poisson "
            "sampling would replace"
        )
    if len(loader) == 0:
        raise OsoError("data_loader: has no batches")
    sampler = batches.sampler
    _check_sampler(sampler, (SequentialSampler, RandomSampler, DistributedSampler), len(examples))
    if isinstance(sampler, DistributedSampler):
        workers = torch.distributed.get_world_size() if isinstance(module, WRAPPERS) else 1
        if sampler.num_replicas != workers:
            raise OsoError(
                f"data_loader: a DistributedSampler of {sampler.num_replicas} replicas, of a "
                f"module in {workers}; wrap the module with DistributedDataParallel, or leave the "
                "sampler out"
            )


def _check_sampler(sampler: Any, kinds: tuple[type, ...], examples: int) -> None:
    """OsoError unless the sampler is exactly of one of these types, and of so many examples."""
    if type(sampler) not in kinds or getattr(sampler, "replacement", False):
        raise OsoError(
            f"data_loader: {type(sampler).__name__} would be replaced by Poisson sampling, which "
            "draws every example with the same probability"
        )
    whole: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
    poisson = isinstance(sampler, UniformWithReplacementSampler)
    sampled = sampler.num_samples if poisson else len(whole)
    if sampled != examples:
        raise OsoError(
            f"data_loader: {type(sampler).__name__} of {sampled} examples would be replaced by "
            f"Poisson sampling of all {examples}; give a Subset as the data set"
        )


def check_examples(data: Any) -> None:
    """OsoError if fetching an example writes over those that were fetched before it.

    Each row of a batch would then be the last one's, and a sum would move by as many C as it has
    rows. Whether an example changed after it was fetched is all that is looked at.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            overwritten = _is_overwritten(data)
        except Exception:  # of whatever kind a data set's own are: the loader will meet it, too
            return
    if overwritten:
        raise OsoError(
            "data_loader: its data set fills one tensor or array with every example, so that all "
            "rows of a batch would be the last one's; return a copy of it (clone)"
        )


def _is_overwritten(data: Any) -> bool:
    """Whether one of the first examples changes, or is written again, as others are fetched."""
    kept: list[list[tuple[Array, bytes, int]]] = []
    for place in range(min(MAX_EXAMPLES_CHECKED, len(data))):
        arrays = _arrays(data[place])
        for past in kept:
            for array, (before, _, writes) in zip(arrays, past, strict=False):
                if _address(array) == _address(before) and _writes(array) > writes:
                    return True  # also with what stood there before
        kept.append([(array, _bytes(array), _writes(array)) for array in arrays])
    return any(_bytes(array) != value for past in kept for array, value, _ in past)


def _arrays(example: Any) -> list[Array]:
    """An example's tensors and numpy arrays, not copies of them."""
    if torch.is_tensor(example):
        return [example.detach()] if example.numel() else []
    if isinstance(example, np.ndarray):
        return [] if example.dtype.hasobject else [example]
    if isinstance(example, Mapping):
        example = list(example.values())
    if not isinstance(example, list | tuple):
        return []
    return [array for part in example for array in _arrays(part)]


def _address(array: Array) -> int:
    return array.data_ptr() if torch.is_tensor(array) else array.ctypes.data


def _writes(array: Array) -> int:
    """How often torch wrote to its memory; numpy does not count."""
    return count_writes(array) if torch.is_tensor(array) else 0


def _bytes(array: Array) -> bytes:
    if torch.is_tensor(array):
        array = array.cpu().contiguous().flatten().view(torch.uint8).numpy()
    return array.tobytes()


def check_criterion(criterion: Any, mode: str, loss_reduction: str, module: nn.Module) -> None:
    """OsoError if the criterion sums where means are said to be, or the other way around.

    Also if it has parameters of its own that learn: no example's gradient has them.
    """
    if criterion is None:
        return
    if not callable(criterion):
        raise OsoError(f"criterion: must be callable, not {type(criterion).__name__}")
    private = {id(parameter) for parameter in module.parameters()}
    for name, own in criterion.named_parameters() if isinstance(criterion, nn.Module) else ():
        if own.requires_grad and id(own) not in private:
            raise OsoError(
                f"criterion: its parameter {name!r} requires a gradient and would learn without "
                "noise; make it part of the module, or freeze it by requires_grad_(False)"
            )
    reduction = getattr(criterion, "reduction", None)
    if reduction is None and mode == GHOST:
        raise OsoError(
            "criterion: has no attribute reduction; ghost mode sets that to 'none', for a loss of "
            "each example"
        )
    if reduction is not None and reduction != loss_reduction:
        raise OsoError(
            f"criterion: its reduction {reduction!r} is not loss_reduction {loss_reduction!r}"
        )
    if (
        mode != GHOST
        and loss_reduction == "mean"
        and getattr(criterion, "weight", None) is not None
    ):
        raise OsoError(
            "criterion: a mean weighted by class divides by the other examples' weights; use "
            "reduction 'sum', or ghost mode"
        )
