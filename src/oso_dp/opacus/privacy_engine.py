"""Opacus's `PrivacyEngine` with adaptive clipping: Online, FixedQuantile and AUTO-S."""

from __future__ import annotations

import copy
import warnings
from typing import Any, ClassVar

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader

from oso_dp.accounting.accountants import compute_epsilon_of_releases
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method
from oso_dp.methods.online import is_plain_sgd
from oso_dp.methods.option_checks import make_options
from oso_dp.opacus.accountant_steps import (
    calibrate_noise_multiplier,
    check_history,
    check_target,
    convert_history,
)
from oso_dp.opacus.ghost_criterion import GhostCriterion
from oso_dp.opacus.mechanism import derived_generator, seeded_generator
from oso_dp.opacus.model_checks import check_independence
from oso_dp.opacus.model_hooks import wrap_model
from oso_dp.opacus.optimizer import AdaptiveDPOptimizer
from oso_dp.opacus.sampler import install_sampler, learn_empty_batch
from oso_dp.opacus.validation import (
    check_criterion,
    check_engine,
    check_examples,
    check_loader,
    check_modes,
    check_module,
    check_optimizer,
)
from oso_dp.privacy.ledger import SumQuery
from oso_dp.privacy.noise_range import TORCH_NORMAL, check_moves
from oso_dp.privacy.repeated_examples import check_no_repeats
from oso_dp.value_checks import as_plain, check_number

NO_QUANTILE = float("nan")
MSG_NOT_CHECKED = (
    "module: not checked whether it mixes the examples of a batch, which would void the guarantee: "
)
# Opacus's further arguments of `make_private`, with its defaults.
DEFAULTS: dict[str, Any] = {
    "batch_first": True,
    "loss_reduction": "mean",
    "poisson_sampling": True,
    "clipping": "flat",
    "noise_generator": None,
    "grad_sample_mode": "hooks",
    "wrap_model": True,
    "rand_on_empty": False,
}


class AdaptivePrivacyEngine(PrivacyEngine):
    """Opacus's `PrivacyEngine` whose optimizer clips and adapts by a `Method` of `oso_dp.methods`.

    Use a subclass, such as `OnlinePrivacyEngine`.

    Args:
        accountant: "prv" (default) or "rdp".
        secure_mode: Whether noise and batches come from a cryptographically secure generator;
            needs the package torchcsprng.

    Raises:
        OsoError: For an unknown accountant, or if torchcsprng is missing.
    """

    method_name: ClassVar[str]
    extra: ClassVar[set[str]] = set()  # arguments of make_private beside the method's options

    def __init__(self, *, accountant: str = "prv", secure_mode: bool = False) -> None:
        check_engine(accountant, secure_mode)
        super().__init__(accountant=accountant, secure_mode=secure_mode)
        self.optimizers: list[AdaptiveDPOptimizer] = []
        self.accountant.load_state_dict = self._load_history

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any = None,
        data_loader: DataLoader,
        noise_multiplier: float,
        max_grad_norm: float,
        **arguments: Any,
    ) -> Any:
        """Make a model, an optimizer and a loader private, as Opacus's `make_private` does.

        Args:
            module: The model, not yet wrapped.
            optimizer: A torch optimizer over all trainable parameters of the model.
            criterion: The loss function; needed in ghost mode only, and checked if given.
                Default: cross entropy.
            data_loader: A plain `DataLoader`; replaced by one with Poisson sampling at rate
                1 / len(data_loader).
            noise_multiplier: nu of a whole step, all queries of the method together.
            max_grad_norm: Initial clipping threshold C_0.
            **arguments: Opacus's further arguments (`batch_first`, `loss_reduction`,
                `poisson_sampling`, `clipping`, `noise_generator`, `grad_sample_mode`, `wrap_model`,
                `rand_on_empty`) and the method's options by name.

        Returns:
            (model, optimizer, loader); in ghost mode (model, optimizer, criterion, loader).

        Raises:
            OsoError: For an argument, model, optimizer or loader that is not supported.

        Warns:
            UserWarning: If it cannot be checked whether the model mixes examples.
        """
        explicit_options = {
            name: value for name, value in arguments.items() if name not in DEFAULTS
        }
        shared = DEFAULTS | {name: arguments[name] for name in arguments.keys() & DEFAULTS.keys()}
        numbers = {"noise_multiplier": noise_multiplier, "max_grad_norm": max_grad_norm}
        check_modes({**shared, **numbers}, self.secure_mode)
        mode, reduction = shared["grad_sample_mode"], shared["loss_reduction"]
        check_module(module, mode)
        check_optimizer(optimizer, module)
        check_loader(data_loader, module)
        check_no_repeats(data_loader.dataset, "data_loader")
        check_examples(data_loader.dataset)
        check_criterion(criterion, mode, reduction, module)
        method, quantile = self._method(explicit_options, optimizer)
        # OsoError if the method's second query alone costs more than the whole step.
        method.split_noise(noise_multiplier, expected_size(data_loader))
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        reason = check_independence(module, data_loader, mode, shared["batch_first"], trained)
        if reason:
            warnings.warn(MSG_NOT_CHECKED + reason, stacklevel=2)
        result = super().make_private(
            module=module,
            optimizer=optimizer,
            criterion=nn.CrossEntropyLoss(reduction=reduction) if criterion is None else criterion,
            data_loader=data_loader,
            **numbers,
            **shared,
            method=method,
            quantile=quantile,
            sample_rate=1 / len(data_loader),
            expected_batch=expected_size(data_loader),
        )
        model, private_optimizer, loader = result[0], result[1], result[-1]
        if not reason:
            model.expand_position_ids()
        loader.batch_sampler.is_reproducible = shared["noise_generator"] is not None
        if shared["noise_generator"] is None:
            loader.generator = seeded_generator(torch.device("cpu"))  # of worker processes' seeds
            if not self.secure_mode:
                loader.batch_sampler.reseed()  # epsilon is that of independent batches
        private_optimizer.watch(model, loader)
        self.optimizers.append(private_optimizer)
        model.allow_grad_accumulation()  # the optimizer rejects it, in all modes by one message
        return result

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        criterion: Any = None,
        data_loader: DataLoader,
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        max_grad_norm: float,
        epsilon_tolerance: float = 0.01,
        **arguments: Any,
    ) -> Any:
        """Call `make_private` with the noise at which training costs at most `target_epsilon`.

        Args:
            module: See `make_private`.
            optimizer: See `make_private`.
            criterion: See `make_private`.
            data_loader: See `make_private`.
            target_epsilon: The privacy budget, > 0 (and <= 100 with accountant "prv").
            target_delta: delta of the budget, between 0 and 1.
            epochs: Number of loops over the loader, >= 1.
            max_grad_norm: Initial clipping threshold C_0.
            epsilon_tolerance: How far below the budget epsilon may be; at most a tenth of the
                budget counts.
            **arguments: See `make_private`.

        Returns:
            As `make_private`.

        Raises:
            OsoError: As `make_private`; also for a budget that no noise meets, and if this engine
                has released steps before, since the budget covers all of its steps.
        """
        if "noise_multiplier" in arguments:
            raise OsoError(
                "make_private_with_epsilon: noise_multiplier follows from target_epsilon; leave it "
                "out, or call make_private"
            )
        target_epsilon, target_delta = as_plain(target_epsilon), as_plain(target_delta)
        epochs, epsilon_tolerance = as_plain(epochs), as_plain(epsilon_tolerance)
        check_number("target_epsilon", target_epsilon, gt=0)
        check_number("target_delta", target_delta, gt=0, lt=1)
        check_number("epochs", epochs, ge=1)
        check_number("epsilon_tolerance", epsilon_tolerance, gt=0)
        check_loader(data_loader, module)
        if len(self.accountant) > 0:
            spent = self.get_epsilon(target_delta)
            raise OsoError(
                f"target_epsilon: {target_epsilon:g}; this engine has already spent epsilon "
                f"{format_spent_epsilon(spent)}; make a new engine for each training"
            )
        if self.optimizers:
            raise OsoError(
                f"target_epsilon: {target_epsilon:g}; this engine has made another training "
                "private; make a new engine for each training"
            )
        steps = int(epochs * len(data_loader))
        check_target(target_epsilon, target_delta, len(data_loader), steps, self.accountant)
        noise_multiplier = calibrate_noise_multiplier(
            self.accountant.mechanism(),
            float(target_epsilon),
            float(target_delta),
            len(data_loader),
            steps,
            min(epsilon_tolerance, target_epsilon / 10),
        )
        return self.make_private(
            module=module,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=data_loader,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            **arguments,
        )

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon of all steps so far; 0 before the first.

        With accountant "prv", the result is at most that of "rdp" and at least that of a PLD
        accountant.

        Args:
            delta: delta, between 0 and 1.

        Raises:
            OsoError: For a delta outside of (0, 1) or below what the prv accountant resolves, and
                if the accountant lacks steps of the optimizers' ledgers, and if another optimizer
                took the last step.

        Warns if the noise is so small that delta does not cover its range.
        """
        check_number("delta", delta, gt=0, lt=1)
        for optimizer in self.optimizers:
            if optimizer.hooks is not None:
                optimizer.hooks.compare()
        check_history(self.accountant, [optimizer.ledger for optimizer in self.optimizers])
        if not self.accountant.history:
            return 0.0
        moves = [
            (SumQuery("step", nu), rate * steps) for nu, rate, steps in self.accountant.history
        ]
        try:
            check_moves(delta, moves, TORCH_NORMAL)
        except OsoError as problem:
            warnings.warn(f"get_epsilon: {problem}", stacklevel=2)
        if self.accountant.mechanism() == "prv":
            return compute_epsilon_of_releases(convert_history(self.accountant), delta, "prv")
        with np.errstate(over="ignore"):  # infinity is a valid bound
            return max(0.0, float(super().get_epsilon(delta)))

    def load_checkpoint(
        self,
        *,
        path: Any,
        module: nn.Module,
        optimizer: Any = None,
        torch_load_kwargs: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Any:
        """Load model, accountant and optimizer as Opacus does.

        Raises:
            OsoError: If the optimizer must not resume from the state; then nothing is changed.
        """
        before = copy.deepcopy((module.state_dict(), self.accountant.state_dict()))
        try:
            return super().load_checkpoint(
                path=path,
                module=module,
                optimizer=optimizer,
                torch_load_kwargs=torch_load_kwargs,
                **arguments,
            )
        except OsoError:  # from the optimizer, which is loaded last
            module.load_state_dict(before[0])
            self.accountant.load_state_dict(before[1])
            raise

    def _load_history(self, state_dict: Any) -> None:
        """As Opacus's accountant; OsoError if steps that were released would be forgotten."""
        before = self.accountant.state_dict()
        type(self.accountant).load_state_dict(self.accountant, state_dict)
        released = sum(optimizer.released for optimizer in self.optimizers)
        if released and self.accountant.history != before["history"]:
            steps = sum(count for _, _, count in self.accountant.history)
            type(self.accountant).load_state_dict(self.accountant, before)
            raise OsoError(
                f"accountant: this engine has released {released} steps since it was made or "
                f"resumed, and the state of other training has {steps}; released steps count "
                "towards epsilon: load the state into a new engine, and add both epsilons"
            )

    def _method(
        self, explicit_options: dict[str, Any], optimizer: torch.optim.Optimizer
    ) -> tuple[Method, float]:
        """The method with its options, and gamma (NaN if it has none)."""
        method_class = find_method(self.method_name)
        # max_grad_norm is the initial threshold.
        without = ("initial_threshold",)
        options = make_options(
            method_class.Options, explicit_options, "make_private", self.extra, without
        )
        return method_class(options, 0.0), NO_QUANTILE

    def _prepare_model(self, module: nn.Module, **arguments: Any) -> Any:
        return wrap_model(
            module,
            arguments["grad_sample_mode"],
            arguments["batch_first"],
            arguments["loss_reduction"],
            arguments["wrap_model"],
        )

    def _prepare_data_loader(self, data_loader: DataLoader, **arguments: Any) -> DataLoader:
        loader = super()._prepare_data_loader(data_loader, **arguments)
        install_sampler(loader, len(data_loader), self.secure_mode)
        learn_empty_batch(loader)
        return loader

    def _prepare_optimizer(
        self,
        *,
        optimizer: torch.optim.Optimizer,
        noise_generator: torch.Generator | None = None,
        clipping: str = "flat",
        grad_sample_mode: str = "hooks",
        expected_batch: int,
        **arguments: Any,
    ) -> AdaptiveDPOptimizer:
        # Opacus rounds n / L down, which is one too few for some L: 0 for batches of one.
        workers = torch.distributed.get_world_size() if arguments["distributed"] else 1
        arguments["expected_batch_size"] = expected_batch / workers
        if self.secure_mode:
            generator = self.secure_rng
        elif noise_generator is not None:
            generator = derived_generator(noise_generator)
        else:
            first = next(p for g in optimizer.param_groups for p in g["params"] if p.requires_grad)
            generator = seeded_generator(first.device)
        return AdaptiveDPOptimizer(
            optimizer, generator=generator, secure_mode=self.secure_mode, **arguments
        )

    def _prepare_criterion(
        self, *, module: Any, optimizer: Any, criterion: Any, loss_reduction: str, **rest: Any
    ) -> GhostCriterion:
        return GhostCriterion(module, optimizer, criterion, loss_reduction)


class OnlinePrivacyEngine(AdaptivePrivacyEngine):
    """Online sensitivity optimization (Galli et al. 2024): adapts C and, with SGD, learning rates.

    Further arguments of `make_private`: `threshold_rate` (rho_c), `learning_rate_rate` (rho_r) and
    `query_noise_ratio` (nu_q / nu). Equation (21) is derived for SGD: with another optimizer, or
    with weight decay, dampening or Nesterov momentum, only C is adapted.

    Example:
        >>> engine = OnlinePrivacyEngine()
        >>> model, optimizer, loader = engine.make_private_with_epsilon(
        ...     module=model,
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...     data_loader=loader,
        ...     target_epsilon=2.0,
        ...     target_delta=1e-5,
        ...     epochs=10,
        ...     max_grad_norm=0.1,
        ... )
    """

    method_name = "online"

    def _method(
        self, explicit_options: dict[str, Any], optimizer: torch.optim.Optimizer
    ) -> tuple[Method, float]:
        if not is_plain_sgd(optimizer):
            if explicit_options.get("learning_rate_rate", 0.0) != 0.0:
                raise OsoError(
                    f"learning_rate_rate: not supported for this {type(optimizer).__name__}, since "
                    "equation (21) is derived for plain SGD; leave it out to adapt C only"
                )
            explicit_options = {**explicit_options, "learning_rate_rate": 0.0}
        return super()._method(explicit_options, optimizer)


class FixedQuantilePrivacyEngine(AdaptivePrivacyEngine):
    """Adaptive clipping (Andrew et al. 2021): C tracks a quantile of the gradient norms.

    Further arguments of `make_private`: `quantile` (gamma, default 0.5), `quantile_rate` (eta_C)
    and `count_noise` (sigma_b as a fraction of the expected batch size).
    """

    method_name = "fixed_quantile"
    extra: ClassVar[set[str]] = {"quantile"}

    def _method(
        self, explicit_options: dict[str, Any], optimizer: torch.optim.Optimizer
    ) -> tuple[Method, float]:
        explicit_options = dict(explicit_options)
        quantile = explicit_options.pop("quantile", 0.5)
        check_number("quantile", quantile, gt=0, lt=1)
        method, _ = super()._method(explicit_options, optimizer)
        return method, float(quantile)


class AutoSPrivacyEngine(AdaptivePrivacyEngine):
    """Automatic clipping, AUTO-S (Bu et al. 2023): C g / (|g| + stabiliser) for each gradient g.

    Further argument of `make_private`: `stabiliser`.
    """

    method_name = "auto_s"


def expected_size(loader: DataLoader) -> int:
    """Expected batch size over all workers."""
    examples: Any = loader.dataset
    return int(len(examples) / len(loader))
