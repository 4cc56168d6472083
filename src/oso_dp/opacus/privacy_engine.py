"""`make_private` with a method of the study: Opacus's PrivacyEngine, and what it returns."""

from __future__ import annotations

import copy
import math
import warnings
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import IAccountant
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader

from oso_dp.accounting.accountants import check_prv, compute_epsilon_of_releases
from oso_dp.accounting.calibration import SMALLEST_NOISE
from oso_dp.accounting.formatting import format_spent_epsilon
from oso_dp.accounting.tuning_cost import Search
from oso_dp.errors import OsoError
from oso_dp.methods import Method, find_method
from oso_dp.methods.option_checks import check_number, make_options
from oso_dp.opacus.ghost_criterion import GhostCriterion
from oso_dp.opacus.mechanism import seeded_generator
from oso_dp.opacus.model_checks import check_independence
from oso_dp.opacus.model_hooks import wrap_model
from oso_dp.opacus.optimizer import AdaptiveDPOptimizer
from oso_dp.opacus.sampler import install_sampler
from oso_dp.opacus.validation import (
    check_criterion,
    check_engine,
    check_examples,
    check_loader,
    check_modes,
    check_module,
    check_optimizer,
)
from oso_dp.privacy.repeated_examples import check_no_repeats
from oso_dp.privacy.sampling import PoissonSampling

_MAX_STEPS_FOR_PRV = 100.0  # epsilon
NO_QUANTILE = float("nan")
NOT_TRIED = (
    "module: nobody could try whether it keeps the examples of a batch apart, as the guarantee "
    "needs; docs/user/opacus.md says for which models and loaders that is so"
)
# What `make_private` takes as Opacus's does, beside the objects and the noise; with its defaults.
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
    """A PrivacyEngine whose optimizer clips, noises and adapts as a method of the study does.

    `accountant`: prv or rdp. OsoError, one line, for whatever Opacus or the method cannot do.
    """

    method_name: ClassVar[str]
    extra: ClassVar[set[str]] = set()  # arguments of make_private beside the method's settings

    def __init__(self, *, accountant: str = "prv", secure_mode: bool = False) -> None:
        check_engine(accountant, secure_mode)
        super().__init__(accountant=accountant, secure_mode=secure_mode)
        self.optimizers: list[AdaptiveDPOptimizer] = []

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
        """Opacus's make_private, with the same arguments and results.

        `noise_multiplier`: nu, of a whole step, all its sums together. `max_grad_norm`: C_0.
        `arguments`: those of DEFAULTS, and the method's own settings by name.
        Returns (model, optimizer, loader), in ghost mode (model, optimizer, criterion, loader).
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
        # OsoError where the second sum alone would cost more than a step may.
        method.split_noise(noise_multiplier, expected_size(data_loader))
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not check_independence(module, data_loader, mode, shared["batch_first"], trained):
            warnings.warn(NOT_TRIED, stacklevel=2)
        made = super().make_private(
            module=module,
            optimizer=optimizer,
            criterion=nn.CrossEntropyLoss(reduction=reduction) if criterion is None else criterion,
            data_loader=data_loader,
            **numbers,
            **shared,
            method=method,
            quantile=quantile,
            sample_rate=1 / len(data_loader),
            whole_batch=expected_size(data_loader),
        )
        model, private_optimizer = made[0], made[1]
        private_optimizer.watch(model, made[-1].batch_sampler)
        self.optimizers.append(private_optimizer)
        model.allow_grad_accumulation()  # the optimizer refuses it, in all modes by one line
        return made

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
        """`make_private` with the noise at which so many epochs cost at most `target_epsilon`.

        OsoError, too, if this engine has accounted for steps before: the budget is for all of them.
        """
        check_number("target_epsilon", target_epsilon, gt=0)
        check_number("target_delta", target_delta, gt=0, lt=1)
        check_number("epochs", epochs, ge=1)
        check_number("epsilon_tolerance", epsilon_tolerance, gt=0)
        check_loader(data_loader, module)
        if len(self.accountant) > 0:
            spent = self.get_epsilon(target_delta)
            raise OsoError(
                f"target_epsilon {target_epsilon:g}: this engine's {len(self.accountant)} steps "
                f"have spent {format_spent_epsilon(spent)} already; make an engine for each "
                "training"
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
        """Of all steps so far, 0 before the first; by prv no more than rdp, and no less than PLD.

        OsoError for a delta that is not between 0 and 1 or that prv does not resolve, and if some
        steps are in the optimizers' ledgers alone.
        """
        check_number("delta", delta, gt=0, lt=1)
        released = sum(optimizer.ledger.step_count for optimizer in self.optimizers)
        booked = sum(steps for *_, steps in self.accountant.history)
        if released > booked:
            raise OsoError(
                f"get_epsilon: the optimizers' ledgers have {released} steps, the accountant "
                f"{booked}; load the accountant's state, too (load_checkpoint loads both)"
            )
        if not self.accountant.history:
            return 0.0
        if self.accountant.mechanism() == "prv":
            return compute_epsilon_of_releases(convert_history(self.accountant), delta, "prv")
        with np.errstate(over="ignore"):  # infinite is a true bound
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
        """Opacus's; a state that the optimizer may not go on from changes nothing, either."""
        before = copy.deepcopy((module.state_dict(), self.accountant.state_dict()))
        try:
            return super().load_checkpoint(
                path=path,
                module=module,
                optimizer=optimizer,
                torch_load_kwargs=torch_load_kwargs,
                **arguments,
            )
        except OsoError:  # of the optimizer, which comes last
            module.load_state_dict(before[0])
            self.accountant.load_state_dict(before[1])
            raise

    def _method(
        self, explicit_options: dict[str, Any], optimizer: torch.optim.Optimizer
    ) -> tuple[Method, float]:
        """The method with its settings, and gamma (NaN where there is none)."""
        kind = find_method(self.method_name)
        # max_grad_norm is the initial threshold.
        without = ("initial_threshold",)
        settings = make_options(kind.Options, explicit_options, "make_private", self.extra, without)
        return kind(settings, 0.0), NO_QUANTILE

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
        return loader

    def _prepare_optimizer(
        self,
        *,
        optimizer: torch.optim.Optimizer,
        noise_generator: torch.Generator | None = None,
        clipping: str = "flat",
        grad_sample_mode: str = "hooks",
        whole_batch: int,
        **arguments: Any,
    ) -> AdaptiveDPOptimizer:
        # Opacus rounds n times 1 / L, which is one too few for some L: 0 for batches of one.
        workers = torch.distributed.get_world_size() if arguments["distributed"] else 1
        arguments["expected_batch_size"] = whole_batch / workers
        generator = self.secure_rng if self.secure_mode else noise_generator
        if generator is None:
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
    """Online (Galli et al. 2024): C, and for SGD the learning rate, tune themselves.

    make_private takes, beside the usual, `threshold_rate` (rho_c), `learning_rate_rate` (rho_r) and
    `query_noise_ratio` (nu_q / nu). Equation (21) is derived for SGD: with another optimizer, or
    with weight decay, dampening or Nesterov's momentum, C alone is adapted.
    """

    method_name = "online"

    def _method(
        self, explicit_options: dict[str, Any], optimizer: torch.optim.Optimizer
    ) -> tuple[Method, float]:
        if not is_plain_sgd(optimizer):
            if explicit_options.get("learning_rate_rate", 0.0) != 0.0:
                raise OsoError(
                    f"learning_rate_rate: equation (21) is not derived for this "
                    f"{type(optimizer).__name__}; leave it out, and C alone is adapted"
                )
            explicit_options = {**explicit_options, "learning_rate_rate": 0.0}
        return super()._method(explicit_options, optimizer)


class FixedQuantilePrivacyEngine(AdaptivePrivacyEngine):
    """FixedQuantile (Andrew et al. 2021): C follows the `quantile` of the gradient norms.

    make_private takes, beside the usual, `quantile` (gamma, 0.5), `quantile_rate` (eta_C) and
    `count_noise` (sigma_b as a share of the expected batch size).
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
    """AUTO-S (Bu et al. 2023): each gradient is divided by its norm plus `stabiliser`."""

    method_name = "auto_s"


def check_target(
    epsilon: float, delta: float, batches: int, steps: int, accountant: IAccountant
) -> None:
    """OsoError for a budget so large that Opacus's search for its noise does not end.

    And for a delta that the accountant does not resolve.
    """
    if accountant.mechanism() == "prv" and epsilon > _MAX_STEPS_FOR_PRV:
        raise OsoError(
            f"target_epsilon {epsilon:g}: accountant prv takes minutes and gigabytes above "
            f"{_MAX_STEPS_FOR_PRV:g}; rdp does not"
        )
    if accountant.mechanism() == "prv":
        check_prv(delta, steps, name="target_delta")
    most = Search(PoissonSampling(1 / batches), steps, 1).epsilon(SMALLEST_NOISE, delta)
    if epsilon > most:
        raise OsoError(
            f"target_epsilon {epsilon:g}: must be at most {most:.4g}, which {steps} steps cost "
            f"with the least noise multiplier that is looked for, {SMALLEST_NOISE:g}"
        )


def calibrate_noise_multiplier(
    accountant: str, epsilon: float, delta: float, batches: int, steps: int, tolerance: float
) -> float:
    """A noise multiplier whose steps cost at most epsilon, as `get_epsilon` computes it.

    Opacus's; by prv, rdp's where that is smaller or where Opacus's costs more by PLD.
    """
    rdp, sampling = math.inf, PoissonSampling(1 / batches)
    try:
        found = get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=delta,
            sample_rate=sampling.rate,
            steps=steps,
            accountant=accountant,
            epsilon_tolerance=tolerance,
        )
    except (RuntimeError, ValueError) as error:
        if accountant != "prv":
            raise OsoError(f"target_epsilon {epsilon:g}: {error}") from error
        found = math.inf
    if accountant == "prv":
        rdp = Search(sampling, steps, 1).noise_multiplier(epsilon, delta)
        if (
            found < rdp
            and compute_epsilon_of_releases({(sampling, found): steps}, delta, "prv") > epsilon
        ):
            found = rdp
    return min(found, rdp)


def convert_history(accountant: IAccountant) -> Counter[tuple[PoissonSampling, float]]:
    """What was booked, by sampling and noise multiplier."""
    booked: Counter[tuple[PoissonSampling, float]] = Counter()
    for nu, rate, steps in accountant.history:
        booked[PoissonSampling(rate), nu] += steps
    return booked


def expected_size(loader: DataLoader) -> int:
    """Of a Poisson batch, of all workers."""
    examples: Any = loader.dataset
    return int(len(examples) / len(loader))


def is_plain_sgd(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step is rho times the gradient, or its plain momentum: SGD as in Algorithm 1."""
    plain = ("weight_decay", "dampening", "nesterov")
    return type(optimizer) is torch.optim.SGD and not any(
        group[name] for group in optimizer.param_groups for name in plain
    )
