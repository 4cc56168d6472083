"""Opacus's `DPOptimizer` with adaptive clipping.

A step computes the sums that the method queries over the logical batch (all of its physical
batches, see `signal_skip_step`), sanitizes them, updates the parameters by the torch optimizer with
the sanitized gradient at its learning rate times the method's factor, and lets the method update C
and that factor.
"""

from __future__ import annotations

import copy
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.weak import WeakIdKeyDictionary

from oso_dp.errors import OsoError
from oso_dp.gradients.precision import use_float32
from oso_dp.methods import Method
from oso_dp.opacus.layer_rules import accumulation_dtype
from oso_dp.opacus.mechanism import ONE_RUN, Noise, sanitize
from oso_dp.opacus.method_adapter import MethodAdapter
from oso_dp.opacus.model_hooks import (
    PerExampleHooks,
    count_writes,
    per_sample_gradient,
)
from oso_dp.opacus.per_sample_gradients import PerSampleGradients
from oso_dp.opacus.sampler import TrackedSampler, check_process
from oso_dp.opacus.validation import NOISE_LIMITS, check_all_private
from oso_dp.privacy.ledger import Ledger
from oso_dp.privacy.sampling import PoissonSampling
from oso_dp.privacy.unnoised_sums import unnoised_sums
from oso_dp.value_checks import check_number

if TYPE_CHECKING:
    from oso_dp.privacy.queries import Answers

KEY = "oso_dp"  # in a state_dict
# Inputs of steps: their write counts, the optimizer's run, whether its loader has yielded a batch.
_USED: WeakIdKeyDictionary = WeakIdKeyDictionary()
MSG_OTHER_BATCHES = (
    "optimizer.step: the loader that make_private returned has not been iterated over; epsilon is "
    "valid for its Poisson batches only"
)
MSG_FEWER_ROWS = (
    "optimizer.step: {} rows; no unused batch has so many examples, the largest has {}; epsilon is "
    "valid only if row i of the model's input is an example (see batch_first) or if examples are "
    "left out by themselves alone"
)
MSG_SCALED = (
    "GradScaler: not supported, since scaled gradients exceed the clipping threshold; use bfloat16 "
    "autocast, which needs no scaler"
)


class AdaptiveDPOptimizer(DPOptimizer):
    """A torch optimizer with clipping, noise and adaptation of C by a `Method`.

    Attributes:
        noise_multiplier: nu of a whole step, all queries together; the accountant reads it, and a
            noise scheduler may change it.
        max_grad_norm: C of the next step; read-only, since the method updates it.
        learning_rate_factor: Factor of each parameter group's learning rate. The groups' `lr` stay
            as a learning rate scheduler sets them.
        ledger: The steps released so far.
        batch_size: Expected batch size over all workers.
    """

    _step_supports_amp_scaling = True  # so that a GradScaler sets `grad_scale`, which is rejected

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        method: Method,
        quantile: float,
        noise_multiplier: float,
        max_grad_norm: float,
        expected_batch_size: float,
        sample_rate: float,
        distributed: bool,
        loss_reduction: str = "mean",
        generator: torch.Generator | None = None,
        secure_mode: bool = False,
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
            generator=generator,
            secure_mode=secure_mode,
        )
        self.distributed = distributed
        workers = torch.distributed.get_world_size() if distributed else 1
        self.batch_size = round(expected_batch_size * workers)
        self.trained = self.params  # in the order of the parameter vector [P]
        self._private = {id(parameter) for parameter in self.trained}
        first = self.trained[0]
        self.dtype, self.device = accumulation_dtype(first.dtype), first.device
        self.sizes = [parameter.numel() for parameter in self.trained]
        self.noise = Noise(generator, secure_mode)
        self.ledger = Ledger(PoissonSampling(sample_rate))
        self.hooks: PerExampleHooks | None = None
        self.batches: TrackedSampler | None = None
        self.account: Callable[[DPOptimizer], None] | None = None
        self.process = os.getpid()
        # Physical batches that have no step yet, with the present one: how many the loader may have
        # fetched, and how many there were in the step before, None in a loop's first.
        self._ahead, self._pending = 1, cast("int | None", None)
        self._totals: list[Tensor] | None = None
        self._has_warned = False
        self._rows = 0  # of the logical batch, so far
        self._inputs: list[Tensor] = []  # of the logical batch, so far
        self._run = secrets.token_hex()  # distinguishes its states from other optimizers'
        self.released = 0  # steps since construction, or since a state was loaded
        self._answers: Answers = {}
        self.driver = MethodAdapter(
            method,
            max_grad_norm,
            quantile,
            self.batch_size,
            sum(self.sizes),
            self.dtype,
            self.device,
        )

    def watch(self, hooks: PerExampleHooks, loader: DataLoader) -> None:
        """Set the model's hooks and the loader of its batches."""
        self.hooks, self.batches = hooks, cast("TrackedSampler", loader.batch_sampler)
        self.batches.begin = self.start_over
        self._ahead = 1 + loader.num_workers * (loader.prefetch_factor or 0)

    def start_over(self) -> None:
        """Drop an unfinished logical batch: with the next one, examples could count twice."""
        self._clear_logical_batch()
        self._step_skip_queue.clear()
        self._pending = None
        self._is_last_step_skipped = False
        if self.hooks is not None:
            self.hooks.check_unchanged()
            self.hooks.forget_batch()

    def attach_step_hook(self, fn: Callable[[DPOptimizer], None]) -> None:
        """Set the accountant's hook (first call) or one that runs after sanitizing (later)."""
        if self.account is None:
            self.account = fn
        else:
            self.step_hook = fn

    @property
    def max_grad_norm(self) -> float:
        return self.driver.threshold

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        if hasattr(self, "driver"):
            raise OsoError(
                "max_grad_norm: cannot be set; the method adapts it; remove the scheduler"
            )

    @property
    def learning_rate_factor(self) -> float:
        return self.driver.factor

    @property
    def accumulated_iterations(self) -> int:
        """Always 1: a step is one Poisson batch, however many physical batches it has."""
        return 1

    def signal_skip_step(self, do_skip: bool = True) -> None:
        if do_skip and self.hooks is not None and _reduces_in_backward(self.hooks._module):
            raise OsoError(
                "DistributedDataParallel: not supported with BatchMemoryManager, since its workers "
                "would wait for each other in each physical batch; wrap the model with Opacus's "
                "DifferentiallyPrivateDistributedDataParallel"
            )
        super().signal_skip_step(do_skip)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Drop the last backward pass's gradients; the sums of skipped steps stay."""
        for parameter in self.trained:
            parameter.held = None
        super().zero_grad(set_to_none)

    def clip_and_accumulate(self) -> None:
        """Add this physical batch's sums to those of the logical batch."""
        if [id(p) for p in self.params] != [id(p) for p in self.trained]:
            raise OsoError(
                "optimizer: the trained parameters have changed since make_private; freeze and "
                "unfreeze parameters before make_private"
            )
        if self.hooks is not None and any(id(p) not in self._private for p in self.hooks.learning):
            check_all_private(self.hooks._module, self.trained)
        if self.hooks is not None:
            self.hooks.check_unchanged()
        held = [per_sample_gradient(parameter) for parameter in self.trained]
        if all(gradient is None for gradient in held):
            raise OsoError(
                "optimizer.step: no backward pass since the last step; call loss.backward() for "
                "each batch, also for an empty one"
            )
        # Reduced precision (TF32) rounds clipping weights, so an example could exceed C.
        with torch.no_grad(), use_float32(self.device):
            gradients = PerSampleGradients(held, self.sizes, self.dtype, self.device)
            if self.hooks is not None:
                self.hooks.check_count(gradients.size)
                self.hooks.check_gradients()
            rows = self._rows + gradients.size
            self._check_rows(rows)
            self._check_inputs(None if self.hooks is None else self.hooks.batch_inputs)
            queries = self.driver.queries(self.noise_multiplier)
            present = torch.ones(1, gradients.size, dtype=torch.bool, device=self.device)
            sums = unnoised_sums(queries, ONE_RUN, gradients, present)
        past = self._totals
        self._totals = sums if past is None else [a + b for a, b in zip(past, sums, strict=True)]
        self._rows = rows
        if self.hooks is not None:
            self.hooks.forget_batch()

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Set the parameters' `grad` to the sanitized gradient; False if the step is skipped."""
        check_process(self.process, "optimizer.step")
        check_number("noise_multiplier", self.noise_multiplier, **NOISE_LIMITS)
        self.clip_and_accumulate()
        self._check_pending()
        self._is_last_step_skipped = self._check_skip_next_step()
        if self._is_last_step_skipped:
            for parameter in self.trained:  # not sanitized, and no other optimizer's
                parameter.grad = None
            return False
        totals = self._totals
        assert totals is not None
        if self.batches is not None and self.batches.begun:
            if self._rows not in self.batches.sizes and not self._has_warned:
                warnings.warn(
                    MSG_FEWER_ROWS.format(self._rows, self.batches.sizes[-1]), stacklevel=2
                )
                self._has_warned = True
            self.batches.use(self._rows)
        for inputs in self._inputs:
            begun = self.batches is not None and self.batches.begun
            _USED[inputs] = (count_writes(inputs), self._run, begun)
        self._clear_logical_batch()
        queries = self.driver.queries(self.noise_multiplier)
        with torch.no_grad():
            self._answers = sanitize(
                queries,
                totals,
                self.noise_multiplier,
                self.batch_size,
                [parameter.shape for parameter in self.trained],
                self.noise,
                self.ledger,
                self._record,
                self.distributed,
            )
            (gradient,) = self._answers[queries[0].key]
            # A copy: in-place changes of p.grad must not change the method's buffers.
            scale = self.batch_size if self.loss_reduction == "sum" else 1
            gradients = (gradient * scale).split(self.sizes)
            for parameter, grad in zip(self.trained, gradients, strict=True):
                parameter.grad = grad.view_as(parameter).to(parameter.dtype)
            self._clear_others()
        if self.step_hook is not None:
            self.step_hook(self)
        return True

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Take a step, or only add a physical batch's sums if the step is to be skipped."""
        loss = None
        if closure is not None:  # once: LBFGS, which calls it again, is refused
            with torch.enable_grad():
                loss = closure()
        if hasattr(self, "grad_scale"):
            raise OsoError(MSG_SCALED)
        if not (self.batches is None or self.batches.begun):
            warnings.warn(MSG_OTHER_BATCHES, stacklevel=2)
        if not self.pre_step():
            return loss
        with self._adapted_rates(), torch.no_grad():
            outcome = self.original_optimizer.step()
        with torch.no_grad():
            self.driver.adapt_hyperparameters(self._answers)
            if self.distributed:
                self.driver.synchronize()
        return outcome if loss is None else loss

    def state_dict(self) -> dict[str, Any]:
        """The torch optimizer's state; key `oso_dp` has the method's state and the ledger."""
        content = {**self.driver.content(), "ledger": self.ledger.to_json(), "run": self._run}
        return {**self.original_optimizer.state_dict(), KEY: content}

    def ledger_of(self, state_dict: Mapping[str, Any]) -> Ledger:
        """A state's ledger; OsoError if this optimizer must not resume from it."""
        if not isinstance(state_dict, Mapping) or not isinstance(state_dict.get(KEY), Mapping):
            raise OsoError(
                f"state_dict: has no key {KEY!r}; it belongs to another optimizer, whose state is "
                "loaded before make_private"
            )
        ledger = Ledger.from_json(str(state_dict[KEY].get("ledger")))
        if ledger.sampling != self.ledger.sampling:
            raise OsoError(
                f"state_dict: sampling rate {ledger.sampling.rate:g}; must be "
                f"{self.ledger.sampling.rate:g}, as of the loader; resume with the same batch size"
            )
        is_same_run = state_dict[KEY].get("run") == self._run
        if self.ledger.step_count > ledger.step_count or (self.released and not is_same_run):
            owner = "the state" if is_same_run else "the state of another run"
            raise OsoError(
                f"state_dict: this optimizer has released {self.ledger.step_count} steps, {owner} "
                f"{ledger.step_count}; released steps count towards epsilon: load the state into a "
                "new engine, and add both epsilons"
            )
        return ledger

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a `state_dict`, with fresh noise.

        Raises:
            OsoError: If the state does not fit, or lacks steps that this optimizer has released
                (it has fewer steps, or belongs to another run).
        """
        ledger = self.ledger_of(state_dict)
        content = state_dict[KEY]
        rest = {name: value for name, value in state_dict.items() if name != KEY}
        before = copy.deepcopy(self.original_optimizer.state_dict())
        try:
            self.original_optimizer.load_state_dict(rest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OsoError(f"state_dict: {type(error).__name__}: {error}") from error
        try:
            self.driver.restore(content)
        except OsoError:
            self.original_optimizer.load_state_dict(before)
            raise
        self.ledger = ledger
        if content.get("run") != self._run:
            self.released = 0
        self._clear_logical_batch()
        self.noise.reseed(self.device)
        if self.batches is not None and not self.secure_mode:
            self.batches.reseed()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise OsoError(
            "optimizer: cannot be copied or pickled, since the copy would draw the same noise; use "
            "state_dict, or call make_private for each training"
        )

    def _check_pending(self) -> None:
        """OsoError if a physical batch had no step: the next would count towards another batch.

        Their number then increases, also where the script has fetched all of them before.
        """
        now, before = len(self._step_skip_queue), self._pending
        if before is not None and now > max(self._ahead, before - 1):
            raise OsoError(
                "optimizer.step: no step was taken for an earlier physical batch; take a step for "
                "each physical batch, or leave the loop"
            )
        self._pending = now

    def _check_rows(self, rows: int) -> None:
        """OsoError if no unused batch can have this number of rows."""
        if self.batches is None or not self.batches.begun:
            return
        sizes, count = self.batches.sizes, self.batches.handed_out
        if not sizes:
            raise OsoError(
                f"optimizer.step: step {count + 1}, but the loader has yielded {count} batches; "
                "take a new batch from the loader for each step"
            )
        if rows > sizes[-1]:
            raise OsoError(
                f"optimizer.step: {rows} rows; the largest unused batch has {sizes[-1]} examples; "
                "an example must have one row, and a step one batch"
            )

    def _check_inputs(self, inputs: Tensor | None) -> None:
        """OsoError for the tensor of an earlier step, unless it has been written to since.

        Epsilon is that of independent batches, also between two private optimizers.
        """
        if inputs is None or self.batches is None:
            return
        writes, run, begun = _USED.get(inputs, (None, "", False))
        if writes == count_writes(inputs) and (begun or self.batches.begun):
            raise OsoError(
                "optimizer.step: the model's input is that of an earlier step"
                f"{' of another private optimizer' if run != self._run else ''}; take a new batch "
                "from the loader of make_private for each step"
            )
        self._inputs.append(inputs)

    def _clear_logical_batch(self) -> None:
        self._totals, self._rows, self._inputs = None, 0, []

    def _record(self) -> None:
        self.released += 1
        if self.account is not None:
            self.account(self)

    def _clear_others(self) -> None:
        """Clear unsanitized gradients at parameters that are frozen now."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._private:
                    parameter.grad = None

    @contextmanager
    def _adapted_rates(self) -> Iterator[None]:
        factor = self.driver.factor
        rates = [group["lr"] for group in self.param_groups]
        try:
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            yield
        finally:
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate


def _reduces_in_backward(model: nn.Module) -> bool:
    return any(isinstance(module, DistributedDataParallel) for module in model.modules())
