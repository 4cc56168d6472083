"""Validation of `make_private`'s arguments: engine, modes, model, optimizer, loader, criterion."""

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
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from oso_dp.errors import OsoError
from oso_dp.opacus.model_hooks import FUNCTORCH, GHOST, MODES, WRAPPERS, count_writes
from oso_dp.opacus.sampler import CountedLoader, PoissonSampler
from oso_dp.value_checks import check_number

ACCOUNTANTS = ("prv", "rdp")
NOISE_LIMITS = {"ge": 1e-20, "le": 1e20}
MAX_EXAMPLES_CHECKED = 3
Array = Tensor | np.ndarray


def check_engine(accountant: Any, secure_mode: bool) -> None:
    if accountant not in ACCOUNTANTS:
        raise OsoError(f"accountant: {accountant!r}; must be one of {', '.join(ACCOUNTANTS)}")
    if secure_mode and find_spec("torchcsprng") is None:
        raise OsoError(
            "secure_mode: needs the package torchcsprng, built for this version of torch"
        )


def check_modes(arguments: Mapping[str, Any], secure_mode: bool) -> None:
    """Check the arguments of `make_private` that are not objects."""
    mode = arguments["grad_sample_mode"]
    if mode not in MODES:
        raise OsoError(f"grad_sample_mode: {mode!r}; must be one of {', '.join(MODES)}")
    if arguments["clipping"] != "flat":
        raise OsoError(
            f"clipping: {arguments['clipping']!r}; must be flat (the gradient is clipped as one "
            "vector)"
        )
    if arguments["loss_reduction"] not in ("mean", "sum"):
        raise OsoError(f"loss_reduction: {arguments['loss_reduction']!r}; must be one of mean, sum")
    if arguments["poisson_sampling"] is not True:
        raise OsoError(
            "poisson_sampling: False; must be True, since epsilon is computed for Poisson "
            "sampling; to accumulate gradients, set the loader's batch size to the logical batch "
            "size and use BatchMemoryManager"
        )
    if arguments["rand_on_empty"] is not False:
        raise OsoError(
            "rand_on_empty: True; must be False, since a random example would double the "
            "sensitivity; empty batches are supported"
        )
    generator = arguments["noise_generator"]
    if not isinstance(generator, torch.Generator | None):
        raise OsoError(f"noise_generator: {generator!r}; must be a torch.Generator or None")
    if generator is not None and secure_mode:
        raise OsoError("noise_generator: must be None with secure_mode, whose noise has no seed")
    check_number("max_grad_norm", arguments["max_grad_norm"], gt=0)
    check_number("noise_multiplier", arguments["noise_multiplier"], **NOISE_LIMITS)


def check_module(module: Any, mode: str) -> None:
    if isinstance(module, AbstractGradSampleModule | GradSampleHooks):
        raise OsoError("module: already wrapped by Opacus; pass module.to_standard_module()")
    if not isinstance(module, nn.Module):
        raise OsoError(f"module: {type(module).__name__}; must be a torch.nn.Module")
    if isinstance(module, FSDPModule | FullyShardedDataParallel):
        raise OsoError(
            "module: fully sharded models are not supported; use DistributedDataParallel or "
            "DifferentiallyPrivateDistributedDataParallel"
        )
    if type(module).__name__ == "OptimizedModule":  # its class is not imported before it is used
        raise OsoError("module: compiled; call torch.compile on what make_private returns")
    if hasattr(module, "autograd_grad_sample_hooks"):
        raise OsoError(
            "module: already has Opacus's hooks; pass to_standard_module() of the wrapped model, "
            "or after wrap_model=False call cleanup() of what make_private returned"
        )
    for name, layer in module.named_modules():
        if problem := _problem(layer, mode):
            raise OsoError(f"module: layer {name!r} ({type(layer).__name__}): {problem}")
    errors = [*ModuleValidator.validate(module), *_hook_errors(module)]
    if errors:
        raise OsoError(f"module: {' '.join(str(errors[0]).split())}")


def _problem(layer: nn.Module, mode: str) -> str:
    for name, value in vars(layer).items():
        if torch.is_tensor(value) and value.requires_grad and value.is_leaf:
            return f"{name!r} requires a gradient but is no parameter; make it an nn.Parameter"
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "has no shape yet; call the model on an example before make_private"
    if any(isinstance(hook, WeightNorm) for hook in layer._forward_pre_hooks.values()):
        return "computes its weight before its call; use torch.nn.utils.parametrizations"
    if reads_statistics(layer):
        return ""
    if isinstance(layer, _BatchNorm):  # Opacus accepts those without weights
        return "mixes the examples of a batch; use GroupNorm, or freeze it and call eval() on it"
    if getattr(layer, "track_running_stats", False):
        return "stores statistics of the examples; use track_running_stats=False"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        return "max_norm changes the embeddings of a batch without noise; use max_norm=None"
    if getattr(layer, "padding_mode", "zeros") != "zeros" and mode != FUNCTORCH:
        return f"padding_mode {layer.padding_mode!r} needs grad_sample_mode functorch"
    return ""


def reads_statistics(layer: nn.Module) -> bool:
    """Whether it normalises by its running statistics, as frozen BatchNorm in eval mode does."""
    frozen = not any(p.requires_grad for p in layer.parameters())
    return frozen and not layer.training and getattr(layer, "track_running_stats", False)


def _hook_errors(module: nn.Module) -> list[Exception]:
    """What Opacus's hooks refuse, but for buffers of layers that do not change them."""
    kept = [layer for layer in module.modules() if reads_statistics(layer)]
    try:
        for layer in kept:
            layer.track_running_stats = False  # type: ignore[assignment]
        return list(GradSampleHooks.validate(module))
    finally:
        for layer in kept:
            layer.track_running_stats = True  # type: ignore[assignment]


def check_optimizer(optimizer: Any, module: nn.Module) -> None:
    if isinstance(optimizer, DPOptimizer):
        raise OsoError("optimizer: already an Opacus optimizer; pass the torch optimizer")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise OsoError(f"optimizer: {type(optimizer).__name__}; must be a torch optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise OsoError("optimizer: LBFGS; its closures would use a batch more than once")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not {id(p) for p in parameters} <= {id(p) for p in module.parameters()}:
        raise OsoError("optimizer: has parameters that do not belong to the module")
    trained = [p for p in parameters if p.requires_grad]
    if not trained:
        raise OsoError("optimizer: has no parameter that requires a gradient")
    if len({p.device for p in trained}) > 1:
        raise OsoError("optimizer: parameters are on several devices; must be on one")
    if not all(p.is_floating_point() for p in trained):
        raise OsoError("optimizer: has parameters that are not floating point; must be real")
    if len(types := {str(p.dtype).removeprefix("torch.") for p in trained}) > 1:
        raise OsoError(
            f"optimizer: parameters have types {' and '.join(sorted(types))}; must have one"
        )
    check_all_private(module, trained)


def check_all_private(model: nn.Module, trained: Sequence[nn.Parameter]) -> None:
    """OsoError if a parameter requires a gradient but is not in the private optimizer."""
    private = {id(parameter) for parameter in trained}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in private:
            raise OsoError(
                f"optimizer: lacks parameter {name!r}, which requires a gradient and would be "
                "trained without noise; add it to a parameter group, or freeze it with "
                "requires_grad_(False)"
            )


def check_loader(loader: Any, module: nn.Module) -> None:
    """OsoError unless the loader can be replaced by Poisson sampling over all its examples.

    Other sampling (weighted, with replacement, custom batches) would silently be lost.
    """
    if not isinstance(loader, DataLoader):
        raise OsoError(f"data_loader: {type(loader).__name__}; must be a DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        raise OsoError("data_loader: IterableDataset; must be a data set with an index")
    for name in ("__iter__", "__len__", "_get_iterator"):
        method = getattr(type(loader), name)
        if not any(method is getattr(base, name) for base in (DataLoader, CountedLoader)):
            raise OsoError(
                f"data_loader: {type(loader).__name__} overrides {name}, which Poisson sampling "
                "would replace; use a plain DataLoader"
            )
    batches = loader.batch_sampler
    examples: Any = loader.dataset
    if isinstance(batches, UniformWithReplacementSampler):  # already Poisson
        _check_sampler(batches, (UniformWithReplacementSampler, PoissonSampler), len(examples))
        if abs(batches.steps * batches.sample_rate - 1) > batches.sample_rate:
            raise OsoError(
                f"data_loader: {batches.steps} batches at sampling rate {batches.sample_rate:g}; "
                f"must be {round(1 / batches.sample_rate)} batches, 1 / rate"
            )
        return
    if type(batches) is not BatchSampler:
        raise OsoError(
            "data_loader: must have a batch size and no user-defined batch sampler, which Poisson "
            "sampling would replace"
        )
    if len(loader) == 0:
        raise OsoError("data_loader: 0 batches; must have at least one")
    sampler = batches.sampler
    _check_sampler(sampler, (SequentialSampler, RandomSampler, DistributedSampler), len(examples))
    if isinstance(sampler, DistributedSampler):
        workers = torch.distributed.get_world_size() if isinstance(module, WRAPPERS) else 1
        if sampler.num_replicas != workers:
            raise OsoError(
                f"data_loader: DistributedSampler for {sampler.num_replicas} replicas, but the "
                f"module has {workers}; wrap the module with DistributedDataParallel, or remove "
                "the sampler"
            )


def _check_sampler(sampler: Any, types: tuple[type, ...], examples: int) -> None:
    """OsoError unless the sampler has exactly one of these types and this number of examples."""
    if type(sampler) not in types or getattr(sampler, "replacement", False):
        raise OsoError(
            f"data_loader: {type(sampler).__name__} would be replaced by Poisson sampling, which "
            "draws each example with the same probability; remove the sampler"
        )
    source: Any = sampler.dataset if isinstance(sampler, DistributedSampler) else sampler
    is_poisson = isinstance(sampler, UniformWithReplacementSampler)
    sampled = sampler.num_samples if is_poisson else len(source)
    if sampled != examples:
        raise OsoError(
            f"data_loader: {type(sampler).__name__} of {sampled} examples would be replaced by "
            f"Poisson sampling of all {examples}; use a Subset as the data set"
        )


def check_examples(data: Any) -> None:
    """OsoError if fetching an example overwrites those fetched before it.

    All rows of a batch would then be copies of the last example, and the sensitivity would be the
    batch size times C. Only whether an example changes after it is fetched is checked.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            overwritten = _is_overwritten(data)
        except Exception:  # a user's data set may raise anything; the loader will raise it, too
            return
    if overwritten:
        raise OsoError(
            "data_loader: the data set returns each example in the same tensor or array, so that "
            "all rows of a batch would be copies of the last example; return a clone"
        )


def _is_overwritten(data: Any) -> bool:
    """Whether one of the first examples changes, or is written to, when others are fetched."""
    fetched: list[list[tuple[Array, bytes, int]]] = []
    for index in range(min(MAX_EXAMPLES_CHECKED, len(data))):
        arrays = _arrays(data[index])
        for earlier in fetched:
            for array, (before, _, writes) in zip(arrays, earlier, strict=False):
                if _address(array) == _address(before) and _writes(array) > writes:
                    return True  # also if equal values were written
        fetched.append([(array, _bytes(array), _writes(array)) for array in arrays])
    return any(_bytes(array) != value for earlier in fetched for array, value, _ in earlier)


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
    """How often torch wrote to it; 0 for numpy, which does not count."""
    return count_writes(array) if torch.is_tensor(array) else 0


def _bytes(array: Array) -> bytes:
    if torch.is_tensor(array):
        array = array.cpu().contiguous().flatten().view(torch.uint8).numpy()
    return array.tobytes()


def check_criterion(criterion: Any, mode: str, loss_reduction: str, module: nn.Module) -> None:
    """OsoError if the criterion's reduction is not `loss_reduction`, or it trains parameters.

    Parameters of the criterion have no per-sample gradients.
    """
    if criterion is None:
        return
    if not callable(criterion):
        raise OsoError(f"criterion: {type(criterion).__name__}; must be callable")
    private = {id(parameter) for parameter in module.parameters()}
    named = criterion.named_parameters() if isinstance(criterion, nn.Module) else ()
    for name, parameter in named:
        if parameter.requires_grad and id(parameter) not in private:
            raise OsoError(
                f"criterion: parameter {name!r} requires a gradient and would be trained without "
                "noise; make it part of the module, or freeze it with requires_grad_(False)"
            )
    reduction = getattr(criterion, "reduction", None)
    if reduction is None and mode == GHOST:
        raise OsoError(
            "criterion: has no attribute reduction, which ghost mode sets to 'none' to get one "
            "loss per example; use a torch.nn loss"
        )
    if reduction is not None and reduction != loss_reduction:
        raise OsoError(
            f"criterion: reduction {reduction!r}; must equal loss_reduction, {loss_reduction!r}"
        )
    if (
        mode != GHOST
        and loss_reduction == "mean"
        and getattr(criterion, "weight", None) is not None
    ):
        raise OsoError(
            "criterion: a class-weighted mean divides by the weights of other examples; use "
            "reduction 'sum' or ghost mode"
        )
