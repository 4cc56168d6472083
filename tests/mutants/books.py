"""Faults in the ledger, in prices and accounts, and in what methods ask for."""

from fault import ACCOUNTS, LOOP, A, Fault, M, P, in_mechanism

LEDGER = [
    in_mechanism(
        "the ledger halves the noise that was paid for",
        "SumQuery(q.name, q.noise_multiplier) for q in queries)",
        "SumQuery(q.name, 2 * q.noise_multiplier) for q in queries)",
    ),
    in_mechanism(
        "only the first query is booked",
        "for q in queries))\n        indices",
        "for q in queries[:1]))\n        indices",
        LOOP,
    ),
    in_mechanism(
        "an empty batch is not booked",
        "            self.ledgers[run].record(",
        "            if self.random_numbers.batches([self.run_ids[run]], step)[1].any():\n"
        "              self.ledgers[run].record(",
    ),
    in_mechanism(
        "a step may be released twice",
        "any(step <= self._last_step[run] for run in members)",
        "any(step < self._last_step[run] for run in members)",
    ),
    in_mechanism(
        "resuming opens the old steps again",
        "self._last_step = [max(last_step, closed) for closed in self._last_step]",
        "pass",
    ),
    in_mechanism(
        "resuming forgets the old ledgers",
        "        self.ledgers = list(ledgers)\n",
        "",
    ),
    in_mechanism(
        "resuming takes the ledgers of another sampling rate",
        "        if schemes != [self.sampling] * len(self.run_ids) or not whole:",
        "        if not whole:",
    ),
    in_mechanism(
        "a step is booked after its sums were taken",
        "        for run in members:\n            self._last_step[run] = step\n",
        "        gradients_of(self.random_numbers.batches(self.run_ids[runs], step)[0])\n"
        "        for run in members:\n            self._last_step[run] = step\n",
    ),
    Fault(
        "resuming gives a run the books of one that has diverged",
        "training/loop.py",
        "self.mechanism.keep(self.alive)\n        self.mechanism.resume",
        "self.mechanism.keep(range(len(self.alive)))\n        self.mechanism.resume",
        LOOP,
    ),
    in_mechanism(
        "a step above its price is answered",
        "if together < self.noise_multiplier * (1 - 1e-9):",
        "if together < 0:",
    ),
    in_mechanism(
        "a method may bring its own sensitivity",
        "            if type(query) not in QUERIES:",
        "            if False:",
    ),
    Fault(
        "equal steps are counted once",
        "privacy/ledger.py",
        "(queries, self.steps[-1][1] + 1)",
        "(queries, self.steps[-1][1])",
        P + "test_ledger.py",
    ),
    Fault(
        "of a step's sums only one is priced",
        "privacy/ledger.py",
        "for query in queries]), count)",
        "for query in queries[:1]]), count)",
        P + "test_ledger.py",
    ),
    Fault(
        "a sum without noise costs nothing",
        "privacy/noise_split.py",
        "        return 0.0\n",
        "        return max(noise_multipliers)\n",
        P + "test_noise_split.py",
    ),
    Fault(
        "noise multipliers add up like deviations",
        "privacy/noise_split.py",
        "math.fsum(nu**-2 for nu in noise_multipliers) ** -0.5",
        "math.fsum(nu**-1 for nu in noise_multipliers) ** -1",
        P + "test_noise_split.py",
    ),
    Fault(
        "a query may eat the whole budget",
        "privacy/noise_split.py",
        "    if not query_noise_multiplier > noise_multiplier:",
        "    if query_noise_multiplier < 0:",
        P + "test_noise_split.py",
    ),
]


PRICE = [
    Fault(
        "one run is priced instead of the grid",
        "accounting/search.py",
        "self.steps * self.runs})",
        "self.steps})",
        A + "test_search.py",
    ),
    Fault(
        "an accountant takes replacing an example for removing it",
        "accounting/accountants.py",
        "return RdpAccountant(orders, neighboring_relation=sampling.relation)",
        "from dp_accounting import NeighboringRelation\n\n"
        "        other = NeighboringRelation.REPLACE_SPECIAL\n"
        "        return RdpAccountant(orders, neighboring_relation=other)",
        f"{A}test_search.py {A}test_accountants.py",
    ).of("books"),
    Fault(
        "pld's accountant has another relation than the sampling",
        "accounting/accountants.py",
        "return PLDAccountant(neighboring_relation=sampling.relation)",
        "from dp_accounting import NeighboringRelation\n\n"
        "        other = NeighboringRelation.REPLACE_SPECIAL\n"
        "        return PLDAccountant(neighboring_relation=other)",
        f"{A}test_search.py {A}test_accountants.py",
    ).of("books"),
    Fault(
        "random stopping is priced for one step less",
        "accounting/search.py",
        "one = composed_event({(self.sampling, noise_multiplier): self.steps})",
        "one = composed_event({(self.sampling, noise_multiplier): max(1, self.steps - 1)})",
        A + "test_search.py",
    ).of("books"),
    Fault(
        "random stopping is priced for another distribution",
        "accounting/search.py",
        "_stopped(one, self.runs, self.shape)",
        "_stopped(one, self.runs, self.shape + 0.05)",
        A + "test_search.py",
    ).of("books"),
    Fault(
        "random stopping is priced for one run less on average",
        "accounting/search.py",
        "_stopped(one, self.runs, self.shape)",
        "_stopped(one, max(2, self.runs - 1), self.shape)",
        A + "test_search.py",
    ).of("books"),
    Fault(
        "random stopping is priced as one run",
        "accounting/search.py",
        "_stopped(one, self.runs, self.shape)",
        "one",
        A + "test_search.py",
    ),
    Fault(
        "a stored search by random stopping is charged as one run",
        "accounting/search.py",
        "_stopped(one.event(), mean_runs, shape), delta",
        "one.event(), delta",
        ACCOUNTS,
    ),
    Fault(
        "a drawn run is charged as what the first stored one cost",
        "analysis/accounts.py",
        "epsilon_of_stopped(filler, size,",
        "epsilon_of_stopped(next(iter(ledgers.values())), size,",
        ACCOUNTS,
    ),
    Fault(
        "a row may claim another selection than was planned",
        "results/row_claims.py",
        '        "selection": cohort.selection,\n',
        "",
        ACCOUNTS,
    ),
    Fault(
        "searches of two shapes share their noise",
        "study/cohort.py",
        '"stopping_shape": self.stopping_shape,',
        '"stopping_shape": None,',
        "tests/study/test_cohort.py",
    ),
    Fault(
        "the noise is a little less than the least that meets the budget",
        "accounting/search.py",
        "        return math.exp(log_nu)\n",
        "        return math.exp(log_nu - 1e-6)\n",
        A + "test_search.py",
    ).of("books"),
    Fault(
        "the plan pays for the runs that are asked for, not for the grid",
        "study/calibrated.py",
        "cohort.paid_runs",
        "len({run.learning_rate for run in cohort.runs})",
        "tests/study/test_plan.py",
    ),
    Fault(
        "steps are rounded down",
        "study/cohort.py",
        "math.ceil(self.epochs",
        "math.floor(self.epochs",
        "tests/study/test_cohort.py",
    ),
    Fault(
        "the accounts leave out the runs that are not stored",
        "analysis/accounts.py",
        "whole = (*stored, *[filler] * (size - len(stored)))",
        "whole = (*stored,)",
        ACCOUNTS,
    ),
    Fault(
        "the accounts take the cheapest seed",
        "analysis/accounts.py",
        "max(charged, key=lambda seed: seed[0])",
        "min(charged, key=lambda seed: seed[0])",
        ACCOUNTS,
    ),
    Fault(
        "the accounts do not compare rows with the plan",
        "analysis/accounts.py",
        '            check_planned(row, *planned[row["run_id"]])\n',
        "            pass\n",
        ACCOUNTS,
    ),
    Fault(
        "the accounts leave out runs without a seed",
        "results/row_claims.py",
        '("run_id", "dataset", "method", "k", "seed",',
        '("run_id", "dataset", "method", "k",',
        ACCOUNTS,
    ),
    Fault(
        "a larger grid, spread over the seeds, is charged as a smaller one",
        "analysis/accounts.py",
        'size = max(int(first["grid_runs"]), len(rows[_POINT].drop_duplicates()))',
        'size = int(first["grid_runs"])',
        ACCOUNTS,
    ),
    Fault(
        "runs that are not stored are charged as ended early",
        "analysis/accounts.py",
        'whole_run(list(ledgers.values()), int(first["steps"]))',
        "whole_run(list(ledgers.values()), min(e.step_count for e in ledgers.values()))",
        ACCOUNTS,
    ),
    Fault(
        "a run that diverged is charged for the steps it took only",
        "analysis/accounts.py",
        "completed(ledgers[run_id], filler)",
        "ledgers[run_id]",
        ACCOUNTS,
    ),
    Fault(
        "parts of two searches pass as one",
        "analysis/accounts.py",
        "choices or cohort.settings",
        "choices",
        ACCOUNTS,
    ),
    Fault(
        "a method's constants do not tell two searches apart",
        "study/cohort.py",
        '"settings": self.method_settings,',
        '"settings": {},',
        ACCOUNTS,
    ),
    Fault(
        "runs of unknown choices are a search of their own",
        "analysis/accounts.py",
        "group[unknown | (group[_CHOICES] == choices)]",
        "group[group[_CHOICES] == choices]",
        ACCOUNTS,
    ),
    Fault(
        "a search of unknown shape is priced by the cheapest",
        "analysis/accounts.py",
        "paid_for or max(",
        "paid_for or min(",
        ACCOUNTS,
    ),
    Fault(
        "the training texts' share of known words is published",
        "results/facts.py",
        '{"test": made["known_words"]["test"]}',
        'made["known_words"]',
        "tests/results/test_facts.py",
    ),
    Fault(
        "a row may claim more noise than its ledger has",
        "results/row_claims.py",
        'if nu < row["noise_multiplier"] * (1 - 1e-6):',
        "if nu < 0:",
        ACCOUNTS,
    ),
    Fault(
        "a ledger of fewer steps than the run passes",
        "results/row_claims.py",
        "    if ledger.step_count != steps:\n",
        "    if ledger.step_count > steps:\n",
        ACCOUNTS,
    ),
    Fault(
        "a run's identity leaves the method out",
        "study/cohort.py",
        "row = columns | dict(",
        'row = columns | {"method": "any"} | dict(',
        "tests/study/test_cohort.py",
    ),
]


METHODS = [
    Fault(
        "Online takes nu_q for the gradient and nu_g for the query",
        "methods/online.py",
        "return gradient_noise_multiplier(noise_multiplier, query_noise), query_noise",
        "return query_noise, gradient_noise_multiplier(noise_multiplier, query_noise)",
        M,
    ),
    Fault(
        "Online's gradient gets nu, and the query comes on top",
        "methods/online.py",
        "return gradient_noise_multiplier(noise_multiplier, query_noise), query_noise",
        "return noise_multiplier, query_noise",
        M,
    ),
    Fault(
        "FixedQuantile forgets the factor two of the centred count",
        "methods/fixed_quantile.py",
        "2 * self.settings.count_noise * batch_size",
        "self.settings.count_noise * batch_size",
        M,
    ),
    Fault(
        "FixedQuantile's threshold moves away from the quantile",
        "methods/fixed_quantile.py",
        "(-self.settings.quantile_rate *",
        "(self.settings.quantile_rate *",
        M,
    ),
    Fault(
        "each layer gets the noise of all layers together",
        "methods/fixed_quantile_per_layer.py",
        "proportional_noise(gradient_noise, len(groups))",
        "[gradient_noise] * len(groups)",
        M,
    ),
    Fault(
        "each layer's count gets the noise of all counts together",
        "methods/fixed_quantile_per_layer.py",
        "proportional_noise(count_noise, len(groups))",
        "[count_noise] * len(groups)",
        M,
    ),
    Fault(
        "AdamWOSM accepts a step without noise",
        "methods/adam_wosm.py",
        "        if not state.noise_multiplier > 0:",
        "        if state.noise_multiplier < 0:",
        M,
    ),
    Fault(
        "a resumed training starts its books anew",
        "training/loop.py",
        "        self.mechanism.resume(ledgers, self.state.step)\n",
        "",
        LOOP,
    ),
    Fault(
        "divergence is judged by the training examples",
        "training/loop.py",
        "        self._drop_diverged(finite(state.parameters))\n",
        "        losses = [\n"
        "            self.code.loss(self.code.outputs(each, self.inputs), self.targets)\n"
        "            for each in state.parameters\n"
        "        ]\n"
        "        self._drop_diverged(torch.stack(losses).isfinite().all(dim=1))\n",
        LOOP,
    ),
    Fault(
        "the mechanism is not told the budget of a step",
        "training/loop.py",
        "            task.noise_multiplier,\n            source(task.randomness),",
        "            0.0,\n            source(task.randomness),",
        LOOP,
    ),
]
