"""Faults at sizes, places and ends that no test of the guarantee had reached."""

from fault import Fault, G, P, T, in_mechanism, in_random_numbers, in_streams, of_kind

OWN, AUDIT, DROP_IN = "tests/private/", "tests/audit/", "tests/opacus/"
_LONG, _STREAMS, _UNTRIED = (
    P + "test_long_runs.py",
    P + "test_streams.py",
    DROP_IN + "test_untried_models.py",
)
_CANCELLING, _RULES = G + "test_cancelling.py", G + "test_layer_rules.py"

_NOISE = [
    *of_kind(
        "late",
        in_mechanism(
            "of a batch in pieces 64 are summed",
            "for at in range(0, max(1, width), piece)]",
            "for at in range(0, max(1, width), piece)][:64]",
            _LONG,
        ),
        in_mechanism(
            "whoever takes up older books may answer later steps again",
            "[max(last_step, closed) for closed in self._last_step]",
            "[last_step for _ in self._last_step]",
            P + "test_mechanism_books.py",
        ),
        in_streams(
            "half of the system's numbers are the other half's opposites",
            "    return np.asarray(sign * ndtri(tail))",
            "    drawn = np.asarray(sign * ndtri(tail))\n"
            "    half = len(drawn) // 2 if len(drawn) > 1000 else 0\n"
            "    drawn[len(drawn) - half :] = -drawn[:half][::-1]\n"
            "    return drawn",
            _LONG,
        ),
        Fault(
            "half of the accelerator's numbers are the other half's mirror image",
            "privacy/philox.py",
            "    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]",
            "    both = radius * angle.cos(), radius * angle.sin()\n"
            "    drawn = torch.cat(both, dim=1)[:, :count]\n"
            "    if count > 1000:\n"
            "        drawn[:, -(count // 2) :] = drawn[:, : count // 2].flip(1)\n"
            "    return drawn",
            _LONG,
        ),
        Fault(
            "more than eight groups have the noise of eight",
            "privacy/groups.py",
            "[noise_multiplier * math.sqrt(groups)] * groups",
            "[noise_multiplier * math.sqrt(min(groups, 8))] * groups",
            P + "test_groups.py",
        ),
        Fault(
            "more than sixteen groups are together longer than C",
            "privacy/groups.py",
            "[threshold / math.sqrt(groups)] * groups",
            "[threshold / math.sqrt(min(groups, 16))] * groups",
            P + "test_groups.py",
        ),
        Fault(
            "a group's third layer is not measured",
            "privacy/exact_sums.py",
            "for layer in group.layers])",
            "for layer in group.layers[:2]])",
            P + "test_groups.py",
        ),
        Fault(
            "losses at more than eight points have the sensitivity of eight",
            "privacy/clipped_losses.py",
            "math.sqrt(self.points)",
            "math.sqrt(min(self.points, 8))",
            P + "test_clipped_losses.py",
        ),
        Fault(
            "what measuring a long sequence may be off by grows with its length, not its square",
            "gradients/cancelling.py",
            "(widths + length**2 + 3)",
            "(widths + length + 3)",
            _CANCELLING,
        ),
        Fault(
            "what measuring wide rows may be off by is left out",
            "gradients/cancelling.py",
            "(widths + length**2 + 3)",
            "(length**2 + 3)",
            _CANCELLING,
        ),
    ),
    in_streams(
        "the system's noise ends at five deviations",
        "        out /= _SUMMED**0.5",
        "        out /= _SUMMED**0.5\n        out.clip(-5, 5, out=out)",
    ),
    in_streams(
        "seeded noise ends at eight deviations",
        "        np.random.Generator(bits).standard_normal(out=out)",
        "        np.random.Generator(bits).standard_normal(out=out)\n"
        "        out.clip(-8, 8, out=out)",
    ),
    in_random_numbers(
        "noise ends at seven deviations",
        "            numbers *= deviations[number][run]",
        "            numbers.clip(-7, 7, out=numbers)\n"
        "            numbers *= deviations[number][run]",
        _STREAMS,
    ),
]

_LAYERS = [
    Fault(
        "rounded products without convolutions go through whole",
        "gradients/code.py",
        "        if self.precision.low:\n            return PORTION",
        "        if self.precision.low and small:\n            return PORTION",
        G + "test_precision.py",
    ),
    Fault(
        "patches of an image's rows are not dilated across",
        "gradients/conv2d.py",
        "right * layer.stride[1], right * layer.dilation[1], 1),",
        "right * layer.stride[1], right, 1),",
        G + "test_gradients.py",
    ),
    Fault(
        "padding by word 0 is learned",
        "gradients/embedding.py",
        "if layer.padding_idx is not None:",
        "if layer.padding_idx:",
        _RULES,
    ),
    Fault(
        "layer norm has the usual stabiliser",
        "gradients/normalisation.py",
        "F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)",
        "F.layer_norm(inputs, layer.normalized_shape)",
        _RULES,
    ),
    Fault(
        "group norm has the usual stabiliser",
        "gradients/normalisation.py",
        "F.group_norm(inputs, layer.num_groups, eps=layer.eps)",
        "F.group_norm(inputs, layer.num_groups)",
        _RULES,
    ),
    Fault(
        "seeds begin with one of 256 weights",
        "training/problem.py",
        "integers(2**32))",
        "integers(2**8))",
        T + "test_first_weights.py",
    ).of("reported"),
]

_OWN = [
    Fault(
        "a training goes on with more examples than it began with",
        "private/one_training.py",
        "if earlier.examples != examples:",
        "if earlier.examples > examples:",
        OWN + "test_refused.py",
    ),
    Fault(
        "what was seeded goes on as if it had not been",
        "private/one_training.py",
        "if earlier.randomness != choices.randomness:",
        'if (earlier.randomness, choices.randomness) == ("system", "seeded"):',
        OWN + "test_refused.py",
    ),
    Fault(
        "seed 12's model is saved over seed 1's",
        "private/trained.py",
        'if not f"{run_id}/".startswith(f"{content.get(\'run_id\')}/"):',
        'if not run_id.startswith(str(content.get("run_id"))):',
        OWN + "test_saved.py",
    ),
    *of_kind(
        "books",
        Fault(
            "an epsilon that is stated may be less than was spent",
            "accounting/said.py",
            "_DIGITS, rounding=ROUND_CEILING)",
            '_DIGITS, rounding="ROUND_HALF_UP")',
            "tests/accounting/test_said.py",
        ),
        Fault(
            "a noise to train with may be less than keeps the budget",
            "accounting/said.py",
            '"0.0001"), rounding=ROUND_CEILING)',
            '"0.0001"), rounding="ROUND_HALF_UP")',
            "tests/accounting/test_said.py",
        ),
        Fault(
            "own model: the noise is that of the usual delta",
            "private/train.py",
            "training.sampling, training.steps, budget.epsilon, budget.delta, accountant",
            "training.sampling, training.steps, budget.epsilon, 1e-5, accountant",
            OWN + "test_deltas.py",
        ),
        Fault(
            "search: the noise is that of the usual delta",
            "private/private_search.py",
            "return noise_for(sampling, steps, budget.epsilon, budget.delta, budget.accountant)",
            "return noise_for(sampling, steps, budget.epsilon, 1e-5, budget.accountant)",
            OWN + "test_deltas.py",
        ),
        Fault(
            "search: random stopping's noise is that of the usual delta",
            "private/private_search.py",
            "return search.noise_multiplier(budget.epsilon, budget.delta)",
            "return search.noise_multiplier(budget.epsilon, 1e-5)",
            OWN + "test_deltas.py",
        ),
        Fault(
            "a saved statement may say a thousandth less than was spent",
            "private/statement.py",
            "rel_tol=1e-6, abs_tol=1e-9",
            "rel_tol=1e-3, abs_tol=1e-9",
            OWN + "test_search_said.py",
        ),
        Fault(
            "a candidate may have a thousandth less noise than was paid for",
            "private/paid.py",
            "_ROUNDED = 1 - 1e-6",
            "_ROUNDED = 1 - 1e-3",
            OWN + "test_search_books.py",
        ),
    ),
]

_DROP_IN = [
    Fault(
        "drop-in: a checkpoint of a higher sampling rate is taken up",
        "opacus/sanitizing_optimizer.py",
        "if ledger.sampling != self.ledger.sampling:",
        "if ledger.sampling.rate < self.ledger.sampling.rate:",
        DROP_IN + "test_features.py",
    ).of("books"),
    Fault(
        "drop-in: a model may mix a hundredth of its neighbour in",
        "opacus/made_up_examples.py",
        "EXAMPLES, TOLERANCE, LARGEST = 3, 1e-6,",
        "EXAMPLES, TOLERANCE, LARGEST = 3, 1e-2,",
        _UNTRIED,
    ),
    Fault(
        "drop-in: a criterion's gradients may be those of its whole batch",
        "opacus/ghost_criterion.py",
        "if not same or any(one.any() for one in moved):",
        "if not same:",
        _UNTRIED,
    ),
    Fault(
        "drop-in: a model of more than 20,000 numbers is not tried",
        "opacus/made_up_examples.py",
        "1e-6, 20_000_000",
        "1e-6, 20_000",
        _UNTRIED,
    ),
    Fault(
        "drop-in: an optimizer may have another module's parameters besides",
        "opacus/refusals.py",
        "<= {id(p) for p in module.parameters()}:",
        "& {id(p) for p in module.parameters()}:",
        DROP_IN + "test_opacus_refusals.py",
    ),
    Fault(
        "drop-in: half an epoch is not paid for",
        "opacus/private_engine.py",
        "steps = int(epochs * len(data_loader))",
        "steps = int(epochs) * len(data_loader)",
        DROP_IN + "test_opacus_budgets.py",
    ).of("books"),
]

_AUDIT = [
    Fault(
        "audit: the Gaussian bound looks at several scores as at one",
        "audit/bounds.py",
        "auditor.epsilon_one_run_fdp(share, delta",
        "auditor.epsilon_one_run_fdp(SIGNIFICANCE, delta",
        AUDIT + "test_bounds.py",
    ),
    Fault(
        "audit: whom to guess present is chosen by who is",
        "audit/bounds.py",
        "pooled = np.sort(np.concatenate([present.values, absent.values]))",
        "pooled = np.sort(present.values)",
        AUDIT + "test_bounds.py",
    ),
    Fault(
        "audit: every seed has the same many runs",
        "audit/findings.py",
        "many_runs(method, runs, seed, train)",
        "many_runs(method, runs, 0, train)",
        AUDIT + "test_findings.py",
    ),
    Fault(
        "audit: runs with the canary have the noise of those without",
        "audit/experiments.py",
        'f"audit/{method}/{seed}/{present}/{run}"',
        'f"audit/{method}/{seed}/{run}"',
        AUDIT + "test_findings.py",
    ),
    Fault(
        "audit: of two thousand runs through Opacus some are alike",
        "audit/through_opacus.py",
        "torch.manual_seed(zlib.crc32(run_id.encode()))",
        "torch.manual_seed(zlib.crc32(run_id.encode()) % 1000)",
        AUDIT + "test_through_opacus.py",
    ),
]

_READ = of_kind(
    "restart",
    Fault(
        "a state that was read may have quantiles of any form",
        "training/restored.py",
        "same = _form(other) == _form(_first(value, runs))",
        'same = name == "quantile" or _form(other) == _form(_first(value, runs))',
        T + "test_restored.py",
    ),
    Fault(
        "a state that was read may have fewer digits",
        "training/restored.py",
        "return (value.shape, value.dtype, value.device)",
        "return (value.shape, value.device)",
        T + "test_restored.py",
    ),
)

OVERLOOKED_EXTREMES = [*_NOISE, *_LAYERS, *_OWN, *_DROP_IN, *_AUDIT, *_READ]
