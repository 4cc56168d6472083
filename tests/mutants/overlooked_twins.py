"""The second of two paths that ought to be alike: several workers, later groups, the last example,
a delta that is not the usual one, a data set instead of tensors."""

from fault import A, Fault, of_kind

_DEALT = "tests/opacus/test_dealt_out.py"
_ATTACKED = "tests/opacus/test_opacus_attacked.py"
_SCALED = A + "test_scaled_search.py"

OVERLOOKED_TWINS = [
    Fault(
        "a loop of several workers is not announced",
        "opacus/poisson_batches.py",
        "        self.announce()\n        places = torch.arange(self.total_size)\n",
        "        places = torch.arange(self.total_size)\n",
        _DEALT,
    ),
    Fault(
        "workers draw the same batches in every loop",
        "opacus/poisson_batches.py",
        "        own = places[self.rank :: self.num_replicas]\n",
        "        own = places[self.rank :: self.num_replicas]\n"
        "        self.generator.manual_seed(self.generator.initial_seed())\n",
        _DEALT,
    ),
    Fault(
        "what is frozen in a later group moves by what an earlier pass left",
        "opacus/sanitizing_optimizer.py",
        "        for group in self.param_groups:\n",
        "        for group in self.param_groups[:1]:\n",
        "tests/opacus/test_groups_of_parameters.py",
    ),
    Fault(
        "after a batch of one a criterion is never tried",
        "opacus/ghost_criterion.py",
        "            self.tried = True  # one",
        "        self.tried = True  # one",
        "tests/opacus/test_ghost_losses.py",
    ),
    Fault(
        "a criterion is tried at its first example alone",
        "opacus/ghost_criterion.py",
        "for place in (0, size - 1):",
        "for place in (0,):",
        "tests/opacus/test_ghost_losses.py",
    ),
    Fault(
        "a criterion is tried at its last example alone",
        "opacus/ghost_criterion.py",
        "for place in (0, size - 1):",
        "for place in (size - 1,):",
        "tests/opacus/test_ghost_losses.py",
    ),
    Fault(
        "two calls are told apart by the first parameter alone",
        "opacus/model_hooks.py",
        'if any(getattr(parameter, "_forward_counter", 0) for parameter in model.parameters()):',
        'if getattr(next(model.parameters()), "_forward_counter", 0):',
        _ATTACKED,
    ),
    Fault(
        "once a model was called its parts may be called alone",
        "opacus/model_hooks.py",
        "        self.was_called, self.example_count = False, None\n",
        "        self.example_count = None\n",
        _ATTACKED,
    ),
    Fault(
        "models that are sharded fully are let in",
        "opacus/refusals.py",
        "if isinstance(module, FSDPModule | FullyShardedDataParallel):",
        "if isinstance(module, FullyShardedDataParallel):",
        "tests/opacus/test_opacus_refusals.py",
    ),
    Fault(
        "a batch of nobody of a data set is an error",
        "private/examples.py",
        "        runs, size = indices.shape\n        if size == 0:\n"
        "            inputs, targets = (part.new_empty(",
        "        runs, size = indices.shape\n        if size == 0 and runs > 1:\n"
        "            inputs, targets = (part.new_empty(",
        "tests/private/test_given_forms.py",
    ),
    Fault(
        "random stopping shows a bar for each training",
        "private/private_search.py",
        "ended = train(candidate, number, False)",
        "ended = train(candidate, number, True)",
        "tests/private/test_search_private.py",
    ),
    *of_kind(
        "books",
        Fault(
            "a scaled search's way back is at the usual delta",
            "accounting/scaled_search.py",
            "self.noise_multiplier(math.exp(log_epsilon), delta, accountant)",
            "self.noise_multiplier(math.exp(log_epsilon), 1e-5, accountant)",
            _SCALED,
        ),
        Fault(
            "trials are priced at the usual delta",
            "accounting/scaled_search.py",
            "search.trial.noise_multiplier(share * epsilon, delta, accountant)",
            "search.trial.noise_multiplier(share * epsilon, 1e-5, accountant)",
            _SCALED,
        ),
        Fault(
            "trials are said at the usual delta",
            "cli/search_options.py",
            'known = entry["epsilon"], entry["delta"], entry["accountant"]',
            'known = entry["epsilon"], DELTA, entry["accountant"]',
            "tests/cli/test_linear_scaling.py",
        ),
        Fault(
            "trials are said by the usual accountant",
            "cli/search_options.py",
            'known = entry["epsilon"], entry["delta"], entry["accountant"]',
            'known = entry["epsilon"], entry["delta"], "rdp"',
            "tests/cli/test_linear_scaling.py",
        ),
        Fault(
            "PRV is asked at the usual delta",
            "accounting/accountants.py",
            "float(made.get_epsilon(delta))",
            "float(made.get_epsilon(1e-5))",
            A + "test_accountants.py",
        ),
        Fault(
            "the distribution that was bought is looked for at the usual delta",
            "accounting/search.py",
            "spent = replace(search, shape=shape).epsilon(noise_multiplier, delta)",
            "spent = replace(search, shape=shape).epsilon(noise_multiplier, 1e-5)",
            A + "test_search.py",
        ),
        Fault(
            "missing parts are charged at the usual delta",
            "analysis/scaled_accounts.py",
            "else _as_planned(search, part, epsilon, delta)",
            "else _as_planned(search, part, epsilon, 1e-5)",
            "tests/analysis/test_scaled_accounts.py",
        ),
        Fault(
            "scaled searches of a method with its own momentum have no account",
            "analysis/scaled_accounts.py",
            'groupby([*_SEARCH, "choices"], dropna=False, sort=False)',
            'groupby([*_SEARCH, "choices"], sort=False)',
            "tests/analysis/test_scaled_accounts.py",
        ),
        Fault(
            "a summary is held against no plan",
            "reporting/summary.py",
            "require_within(account(study.runs, *map(read_plan, plans)))",
            "require_within(account(study.runs))",
            "tests/reporting/test_summary.py",
        ),
    ),
    *of_kind(
        "reported",
        Fault(
            "a final run may have another quantile than the best of its trials",
            "analysis/linear_scaling.py",
            "finals[POINT].fillna(0) == pd.Series({name: row[name] for name in POINT})",
            "finals[POINT[:2]].fillna(0) == pd.Series({name: row[name] for name in POINT[:2]})",
            "tests/analysis/test_linear_scaling.py",
        ),
        Fault(
            "scaled searches of a method with its own momentum are not reported",
            "analysis/linear_scaling.py",
            'values.groupby(["cell", *_WHOLE, "choices"], dropna=False)',
            'values.groupby(["cell", *_WHOLE, "choices"])',
            "tests/analysis/test_linear_scaling.py",
        ),
        Fault(
            "totals are counted as grids",
            "reporting/tables/accounting.py",
            "grids = [account for account in accounts if not account.total]",
            "grids = [*accounts]",
            "tests/reporting/test_accounts.py",
        ),
        Fault(
            "one protected data set makes every budget that of a whole study",
            "analysis/study.py",
            "return {*self.datasets} <= {*self.shared_budgets}",
            "return bool(self.shared_budgets)",
            "tests/analysis/test_noise.py",
        ),
        Fault(
            "of accuracies the worst is bold",
            "reporting/summary.py",
            'valued["mean"].idxmax() if higher else valued["mean"].idxmin()',
            'valued["mean"].idxmin()',
            "tests/reporting/test_summary.py",
        ),
        Fault(
            "a report knows the first plan alone",
            "cli/report.py",
            "plans_of(results, plan)))",
            "plans_of(results, plan)[:1]))",
            "tests/reporting/test_accounts.py",
        ),
    ),
]
