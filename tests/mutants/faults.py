"""Faults that would make the guarantee false, each a small change to one file of the code.

`python tests/mutants` plants them one by one and runs the tests named here; each must fail.
"""

from dataclasses import dataclass

P, M, T = "tests/privacy/", "tests/methods/test_methods.py", "tests/training/"
MECHANISM, QUERIES, LOOP = P + "test_mechanism.py", P + "test_queries.py", T + "test_loop.py"


@dataclass(frozen=True)
class Fault:
    """Replace `old` (it stands in `file` once) by `new`; `tests` are expected to see it."""

    name: str
    file: str  # below src/oso
    old: str
    new: str
    tests: str


def _mechanism(name: str, old: str, new: str, tests: str = MECHANISM) -> Fault:
    return Fault(name, "privacy/mechanism.py", old, new, tests)


def _queries(name: str, old: str, new: str, tests: str = QUERIES) -> Fault:
    return Fault(name, "privacy/queries.py", old, new, tests)


NOISE = [
    _mechanism(
        "noise is not scaled with the sensitivity",
        "query.noise_multiplier * query.sensitivity(run)",
        "query.noise_multiplier",
    ),
    _mechanism(
        "noise is drawn for the mean, not for the sum",
        "(total.double() + deviation * noise.to(total.device))",
        "(total.double() + deviation * noise.to(total.device) / self.batch_size)",
    ),
    _mechanism(
        "no noise at all",
        "        if query.noise_multiplier == 0:\n",
        "        if True:\n",
    ),
    _mechanism(
        "the second query gets no noise",
        "        if query.noise_multiplier == 0:\n",
        '        if query.noise_multiplier == 0 or query.kind == "clipped_direction":\n',
    ),
    _mechanism(
        "scalars get no noise",
        "        if query.noise_multiplier == 0:\n",
        "        if query.noise_multiplier == 0 or query.scalar:\n",
    ),
    _mechanism(
        "one noise stream for all queries",
        'purpose = f"noise/{query.name}/{query.noise_multiplier:.7g}"',
        'purpose = "noise"',
    ),
    _mechanism(
        "queries of one kind share their noise",
        "noise/{query.name}/",
        "noise/{query.kind}/",
        P + "test_groups.py",
    ),
    _mechanism(
        "the noise does not depend on its multiplier",
        "/{query.noise_multiplier:.7g}",
        "",
    ),
    _mechanism(
        "the same noise in each step",
        "normals(self.run_ids[run], purpose, step,",
        "normals(self.run_ids[run], purpose, 1,",
    ),
    _mechanism(
        "the same noise in each run",
        "normals(self.run_ids[run], purpose,",
        "normals(self.run_ids[0], purpose,",
    ),
    _mechanism(
        "one number as the noise of all coordinates",
        "purpose, step, tuple(total.shape))",
        "purpose, step, ())",
    ),
    _mechanism(
        "a group's noise is not on its layers' scales",
        "self._add_noise(total / scales, query, run, step) * scales",
        "self._add_noise(total, query, run, step)",
        P + "test_groups.py",
    ),
    Fault(
        "uniform noise of the right deviation",
        "privacy/streams.py",
        "stream(run_id, purpose, step).standard_normal(shape)",
        "3.4641 * (stream(run_id, purpose, step).random(shape) - 0.5)",
        MECHANISM,
    ),
    Fault(
        "the step stands in the counter's lowest word",
        "privacy/streams.py",
        "counter=[0, 0, 0, step]",
        "counter=[step, 0, 0, 0]",
        P + "test_streams.py",
    ),
    Fault(
        "the streams' keys have 32 bits",
        "privacy/streams.py",
        'np.frombuffer(digest[:16], dtype="<u8")',
        'np.frombuffer(digest[:4], dtype="<u4").astype("u8")',
        P + "test_streams.py",
    ),
    Fault(
        "the system's entropy is drawn once and kept",
        "privacy/streams.py",
        "os.urandom(8 * count)",
        "(b'01234567' * count)",
        P + "test_streams.py",
    ),
    Fault(
        "the system's entropy comes from a generator with a seed",
        "privacy/streams.py",
        "os.urandom(8 * count)",
        "np.random.bytes(8 * count)",
        P + "test_streams.py",
    ),
    Fault(
        "the noise's tails have gaps",
        "privacy/streams.py",
        "fine = ((second >> np.uint64(12)) + 0.5) * 2.0**-52",
        "fine = 0.5 + 0.0 * second",
        P + "test_streams.py",
    ),
    Fault(
        "identity and purpose run into each other",
        "privacy/streams.py",
        "{run_id}\\x00{purpose}",
        "{run_id}{purpose}",
        P + "test_streams.py",
    ),
    _mechanism(
        "noise is added in float32",
        "(total.double() + deviation * noise.to(total.device)).to(total.dtype)",
        "total + (deviation * noise.to(total.device)).to(total.dtype)",
    ),
    _mechanism(
        "noise of nearby multipliers is the same",
        "{query.noise_multiplier:.7g}",
        "{query.noise_multiplier:.1g}",
    ),
]

SAMPLING = [
    _mechanism(
        "the runs share their batches",
        "        run_id = self.run_ids[run]\n",
        '        run_id = "shared"\n',
    ),
    _mechanism(
        "the same batch in each step",
        'uniforms(run_id, "sampling", step,',
        'uniforms(run_id, "sampling", 1,',
    ),
    Fault(
        "batches of fixed size",
        "privacy/sampling.py",
        "np.flatnonzero(uniforms < self.rate)",
        "np.sort(np.argsort(uniforms)[: round(len(uniforms) * self.rate)])",
        MECHANISM,
    ),
    Fault(
        "batches are drawn at twice the rate that is booked",
        "privacy/sampling.py",
        "uniforms < self.rate",
        "uniforms < 2 * self.rate",
        P + "test_sampling.py",
    ),
    _mechanism(
        "sums are divided by the realised batch size",
        "answers[query.name] = noisy / self.batch_size",
        "answers[query.name] = noisy / max(1, len(gradients.norms()))",
    ),
    Fault(
        "sampling is priced at half its rate",
        "privacy/sampling.py",
        "dp_event.PoissonSampledDpEvent(self.rate, sums)",
        "dp_event.PoissonSampledDpEvent(self.rate / 2, sums)",
        P + "test_sampling.py",
    ),
    Fault(
        "another sampling scheme's ledger is read as Poisson's",
        "privacy/sampling.py",
        "        if found != (cls.name, cls.neighbouring):\n",
        "        if False:\n",
        P + "test_sampling.py",
    ),
]

SENSITIVITY = [
    _queries(
        "gradients are not clipped",
        "threshold / norms.clamp(min=threshold)",
        "threshold / threshold.clamp(min=threshold) + 0 * norms",
    ),
    _queries(
        "clipped to the largest norm of the batch",
        "weights = threshold / norms.clamp(min=threshold)",
        "weights = norms.max() / norms.clamp(min=norms.max())",
    ),
    _queries(
        "clipped with twice the threshold",
        "weights = threshold / norms.clamp(min=threshold)",
        "weights = 2 * threshold / norms.clamp(min=2 * threshold)",
    ),
    _queries(
        "the direction counts unclipped examples, too",
        "clipped = norms.isfinite() & (norms > self._threshold(run))",
        "clipped = norms.isfinite()",
        QUERIES,
    ),
    _queries(
        "the direction is not normalised",
        "_usable(norms.reciprocal(), clipped)",
        "_usable(norms * 0 + 1, clipped)",
    ),
    _queries(
        "the count is not centred",
        "(norms <= self._threshold(run)).to(norms.dtype) - 0.5",
        "(norms <= self._threshold(run)).to(norms.dtype)",
    ),
    _queries(
        "an example that is not finite is counted",
        "return votes.masked_fill(~norms.isfinite(), 0.0)",
        "return votes",
    ),
    _queries(
        "an example that is not finite gets weight",
        "~where | (weights < _SMALLEST_WEIGHT)",
        "weights < _SMALLEST_WEIGHT",
    ),
    _queries(
        "the exact sum claims a sensitivity",
        "        return math.inf\n",
        "        return 1.0\n",
    ),
    _queries(
        "every run is clipped with the first one's threshold",
        "self.threshold[run].clamp",
        "self.threshold[0].clamp",
    ),
    _mechanism(
        "a group is clipped by the norm of its first layer",
        "torch.linalg.vector_norm(torch.stack(scaled), dim=0)",
        "scaled[0]",
        P + "test_groups.py",
    ),
    _mechanism(
        "a group is clipped without its scales",
        "layer_norms[layer].double() / scale\n",
        "layer_norms[layer].double()\n",
        P + "test_groups.py",
    ),
    Fault(
        "the norms leave the bias out",
        "training/gradients/linear.py",
        "inputs.hypot(inputs.new_tensor(self.has_bias))",
        "inputs",
        T + "test_gradients.py",
    ),
    Fault(
        "the norms leave a convolution's bias out",
        "training/gradients/conv2d.py",
        "return kernels if self.bias is None else kernels.hypot(row_norms(self.bias))",
        "return kernels",
        T + "test_gradients.py",
    ),
    Fault(
        "norms underflow to zero",
        "training/gradients/rules.py",
        "    if odd.any():\n",
        "    if False:\n",
        T + "test_gradients.py",
    ),
    Fault(
        "gradients of the mean loss are clipped",
        "training/gradients/code.py",
        "torch.autograd.grad(losses.sum(), [seen",
        "torch.autograd.grad(losses.mean(), [seen",
        T + "test_gradients.py",
    ),
    Fault(
        "examples that are not finite stay in the sums",
        "training/gradients/code.py",
        "                    rule.drop(bad)\n",
        "                    pass\n",
        T + "test_gradients.py",
    ),
    Fault(
        "a long row's norm is summed in float32",
        "training/gradients/rules.py",
        "    if rows.shape[1] > _LONG:\n",
        "    if False:\n",
        T + "test_gradients.py",
    ),
    Fault(
        "an example with a huge factor is kept",
        "training/gradients/linear.py",
        "norms.masked_fill(~usable, torch.inf)",
        "norms",
        T + "test_gradients.py",
    ),
    Fault(
        "an example that is too long still counts in other groups",
        "training/gradients/code.py",
        "            each = each.masked_fill(bad, torch.inf)\n",
        "",
        P + "test_groups.py",
    ),
    Fault(
        "an example's parts are clipped one by one",
        "training/gradients/code.py",
        "            if each.shape[1] != len(self.inputs):",
        "            if False:",
        T + "test_gradients.py",
    ),
    Fault(
        "the mean of the losses is taken for a loss per example",
        "training/gradients/code.py",
        "        if losses.shape != (len(inputs),):",
        "        if False:",
        T + "test_gradients.py",
    ),
    Fault(
        "models are trained without a look at whether they mix examples",
        "training/loop.py",
        "self.code.check_independence(self.state.parameters[0],",
        "(self.state.parameters[0],",
        LOOP,
    ),
    Fault(
        "a little mixing of examples passes",
        "training/gradients/code.py",
        "rtol=1e-4, atol=1e-5 *",
        "rtol=1e-2, atol=1e-1 *",
        T + "test_gradients.py",
    ),
    Fault(
        "layers may share a parameter",
        "training/gradients/code.py",
        "        if sum(self.layer_sizes.values()) != self.size:\n",
        "        if False:\n",
        T + "test_gradients.py",
    ),
    _queries(
        "an infinite threshold tells an empty batch",
        "clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)",
        "clamp(min=SMALLEST_THRESHOLD)",
        MECHANISM,
    ),
    Fault(
        "batch normalisation is let in",
        "training/gradients/code.py",
        "            if batch_norm or",
        "            if False and batch_norm or",
        T + "test_gradients.py",
    ),
]

LEDGER = [
    _mechanism(
        "the ledger halves the noise that was paid for",
        "SumQuery(q.name, q.noise_multiplier) for q in queries)",
        "SumQuery(q.name, 2 * q.noise_multiplier) for q in queries)",
    ),
    _mechanism(
        "only the first query is booked",
        "for q in queries))\n        gradients",
        "for q in queries[:1]))\n        gradients",
        LOOP,
    ),
    _mechanism(
        "an empty batch is not booked",
        "        self.ledgers[run].record(",
        "        if len(self._batch(run, step)):\n          self.ledgers[run].record(",
    ),
    _mechanism(
        "a step may be released twice",
        "        if step <= self._last_step[run]:\n",
        "        if step < self._last_step[run]:\n",
    ),
    _mechanism(
        "resuming opens the old steps again",
        "self._last_step = [max(last_step, closed) for closed in self._last_step]",
        "pass",
    ),
    _mechanism(
        "resuming forgets the old ledgers",
        "        self.ledgers = list(ledgers)\n",
        "",
    ),
    _mechanism(
        "resuming takes the ledgers of another sampling rate",
        "        if schemes != [self.sampling] * len(self.run_ids) or not whole:",
        "        if not whole:",
    ),
    _mechanism(
        "a step is booked after its sums were taken",
        "        self._last_step[run] = step\n        self.ledgers[run].record(tuple("
        "SumQuery(q.name, q.noise_multiplier) for q in queries))\n"
        "        gradients = gradients_of(self._batch(run, step))\n",
        "        gradients = gradients_of(self._batch(run, step))\n"
        "        self._last_step[run] = step\n        self.ledgers[run].record(tuple("
        "SumQuery(q.name, q.noise_multiplier) for q in queries))\n",
    ),
    Fault(
        "resuming gives a run the books of one that has diverged",
        "training/loop.py",
        "self.mechanism.keep(self.alive)\n        ledgers",
        "self.mechanism.keep(range(len(self.alive)))\n        ledgers",
        LOOP,
    ),
    _mechanism(
        "a step above its price is answered",
        "if together < self.noise_multiplier * (1 - 1e-9):",
        "if together < 0:",
    ),
    _mechanism(
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
        "privacy/joint.py",
        "        return 0.0\n",
        "        return max(noise_multipliers)\n",
        P + "test_joint.py",
    ),
    Fault(
        "noise multipliers add up like deviations",
        "privacy/joint.py",
        "math.fsum(nu**-2 for nu in noise_multipliers) ** -0.5",
        "math.fsum(nu**-1 for nu in noise_multipliers) ** -1",
        P + "test_joint.py",
    ),
    Fault(
        "a query may eat the whole budget",
        "privacy/joint.py",
        "    if not query_noise_multiplier > noise_multiplier:",
        "    if query_noise_multiplier < 0:",
        P + "test_joint.py",
    ),
]

PRICE = [
    Fault(
        "one run is priced instead of the grid",
        "privacy/search.py",
        "self.steps * self.runs})",
        "self.steps})",
        P + "test_search.py",
    ),
    Fault(
        "random stopping is priced as one run",
        "privacy/search.py",
        "dp_event.RepeatAndSelectDpEvent(one, self.runs, self.shape)",
        "one",
        P + "test_search.py",
    ),
    Fault(
        "the solver ends on the side above the budget",
        "privacy/search.py",
        "    return high_at\n",
        "    return low_at\n",
        P + "test_search.py",
    ),
    Fault(
        "the plan pays for the runs that are asked for, not for the grid",
        "study/prices.py",
        "cohort.grid_runs",
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
        "results/account.py",
        "whole = (*stored, *[filler] * (size - len(stored)))",
        "whole = (*stored,)",
        "tests/results/test_account.py",
    ),
    Fault(
        "the accounts take the cheapest seed",
        "results/account.py",
        "max(charged, key=lambda seed: seed[0])",
        "min(charged, key=lambda seed: seed[0])",
        "tests/results/test_account.py",
    ),
    Fault(
        "the accounts do not compare rows with the plan",
        "results/account.py",
        '            check_planned(row, *planned[row["run_id"]])\n',
        "            pass\n",
        "tests/results/test_account.py",
    ),
    Fault(
        "the accounts leave out runs without a seed",
        "results/claims.py",
        '("run_id", "dataset", "method", "k", "seed",',
        '("run_id", "dataset", "method", "k",',
        "tests/results/test_account.py",
    ),
    Fault(
        "a larger grid, spread over the seeds, is charged as a smaller one",
        "results/account.py",
        'size = max(int(first["grid_runs"]), len(rows[_POINT].drop_duplicates()))',
        'size = int(first["grid_runs"])',
        "tests/results/test_account.py",
    ),
    Fault(
        "runs that are not stored are charged as ended early",
        "results/account.py",
        '_whole_run(list(ledgers.values()), int(first["steps"]))',
        "_whole_run(list(ledgers.values()), min(e.step_count for e in ledgers.values()))",
        "tests/results/test_account.py",
    ),
    Fault(
        "a row may claim more noise than its ledger has",
        "results/claims.py",
        'if nu < row["noise_multiplier"] * (1 - 1e-6):',
        "if nu < 0:",
        "tests/results/test_account.py",
    ),
    Fault(
        "a ledger of fewer steps than the run passes",
        "results/claims.py",
        "    if ledger.step_count != steps:\n",
        "    if ledger.step_count > steps:\n",
        "tests/results/test_account.py",
    ),
    Fault(
        "a run's identity leaves the method out",
        "study/cohort.py",
        '        "method": name,\n        "k": k,',
        '        "method": "any",\n        "k": k,',
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
        "        self._drop_diverged(state.parameters.isfinite().all(dim=1))\n",
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

FAULTS = [*NOISE, *SAMPLING, *SENSITIVITY, *LEDGER, *PRICE, *METHODS]
