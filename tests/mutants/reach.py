"""Faults that a case of one run and a few steps hides."""

from fault import Fault, G, P, T, in_mechanism, in_queries, in_random_numbers, in_streams, of_kind

MANY, LONG = P + "test_many_runs.py", P + "test_long_runs.py"
SEVERAL_RUNS = G + "test_several_runs.py"

COMPANY = of_kind(
    "company",
    in_queries(
        "thresholds of several runs are not clamped",
        "self.threshold[runs, None].clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)",
        "self.threshold[runs, None]",
        MANY,
    ),
    in_queries(
        "sensitivities of several runs are not clamped",
        "return self._threshold(runs)[:, 0]",
        "return self.threshold[runs]",
        MANY,
    ),
    in_queries(
        "of several runs an example that is not finite is counted",
        "return votes.masked_fill(~norms.isfinite(), 0.0)",
        "return votes if norms.dim() > 1 else votes.masked_fill(~norms.isfinite(), 0.0)",
        MANY,
    ),
    Fault(
        "examples that are not finite stay, but for the first run's",
        "gradients/batch.py",
        "        if waits(bad) or bad.any():",
        "        if bad[: shape[1]].any():",
        SEVERAL_RUNS,
    ),
    in_queries(
        "in company an infinite threshold stays infinite",
        "clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)",
        "clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD if len(self.threshold) == 1 else math.inf)",
        MANY,
    ),
    in_queries(
        "votes of several runs are cast by the first one's threshold",
        "(norms <= self._threshold(runs))",
        "(norms <= self._threshold(runs)[:1])",
        MANY,
    ),
    in_queries(
        "several runs have the noise of the smallest threshold among them",
        "return self._threshold(runs)[:, 0]",
        "return self._threshold(runs)[:, 0].min().expand(len(self.threshold[runs]))",
        MANY,
    ),
    in_random_numbers(
        "an empty batch beside others holds the first example",
        "present[row, : len(batch)] = batch, True",
        "present[row, : len(batch) or 1] = batch, True",
        MANY + f" {P}test_random_numbers.py",
    ),
    in_mechanism(
        "an empty batch beside others gets no noise",
        "            answers[place] = total\n",
        "            exact = totals[place]\n"
        "            nothing = (exact == 0).reshape(len(total), -1).all(dim=1)\n"
        "            total[nothing & (len(total) > 1)] = 0.0\n"
        "            answers[place] = total\n",
        MANY,
    ),
    in_mechanism(
        "a step may be released twice beside a run that has yet to take it",
        "any(step <= self._last_step[run] for run in members)",
        "all(step <= self._last_step[run] for run in members)",
        f"{P}test_mechanism_books.py {MANY}",
    ),
    Fault(
        "the bias of several runs is weighted as the first one's",
        "gradients/linear.py",
        'onto["bias"].baddbmm_(weights, errors, beta=beta)',
        'onto["bias"].baddbmm_(weights[:1].expand_as(weights), errors, beta=beta)',
        SEVERAL_RUNS,
    ),
    Fault(
        "norms underflow to zero beyond sixty-four examples",
        "gradients/rules.py",
        "(end.item() for end in norms.aminmax())",
        "(end.item() for end in norms[:64].aminmax())",
        f"{G}test_gradients.py {SEVERAL_RUNS}",
    ),
    Fault(
        "of several runs other examples are left out than those that are not finite",
        "gradients/portions.py",
        "        bad = bad.view(self.runs, self.size)\n",
        "        bad = bad.view(self.size, self.runs).T\n",
        SEVERAL_RUNS,
    ),
    Fault(
        "gradients are taken at the first runs' parameters",
        "training/loop.py",
        "return self.code(self.state.parameters[runs], *",
        "return self.code(self.state.parameters[: len(batches)], *",
        T + "test_loop.py",
    ),
)

_KEY = "\\x00{step}\\x00{block}"
STREAMS = P + "test_streams.py"

LATE = of_kind(
    "late",
    in_streams(
        "a stream begins again after 20,000 steps",
        _KEY,
        "\\x00{step % 20000}\\x00{block}",
        STREAMS,
    ),
    in_streams(
        "a vector's noise begins again after eight million numbers",
        _KEY,
        "\\x00{step}\\x00{block % 512}",
        STREAMS,
    ),
    in_mechanism(
        "no noise after step 1,024",
        "if query.noise_multiplier > 0]",
        "if query.noise_multiplier > 0 and step <= 1024]",
        LONG,
    ),
    in_mechanism(
        "the price of a step is looked at fifty times",
        "        self._check_budget(queries)\n        for run",
        "        if step <= 50:\n            self._check_budget(queries)\n        for run",
        LONG,
    ),
    in_mechanism(
        "the price of a step is looked at three thousand times",
        "        self._check_budget(queries)\n        for run",
        "        if step <= 3000:\n            self._check_budget(queries)\n        for run",
        LONG,
    ),
    in_mechanism(
        "steps after 3,000 may be released twice",
        "any(step <= self._last_step[run] for run in members)",
        "any(step <= min(self._last_step[run], 3000) for run in members)",
        LONG,
    ),
    Fault(
        "a ledger stops counting at 1,024",
        "privacy/ledger.py",
        "self.steps[place] = (queries, count + 1)",
        "self.steps[place] = (queries, min(1024, count + 1))",
        LONG,
    ),
    Fault(
        "of a run's equal steps 1,024 are paid for",
        "accounting/accountants.py",
        "            releases[ledger.sampling, nu] += count\n",
        "            releases[ledger.sampling, nu] += min(count, 1024)\n",
        "tests/accounting/test_accountants.py tests/accounting/test_books_exact.py",
    ),
    in_streams(
        "batches begin again after 3,000 steps",
        "return Key(run_id, purpose, step, 0).bits().random_raw",
        "return Key(run_id, purpose, step % 3000, 0).bits().random_raw",
        LONG,
    ),
    in_streams(
        "a long vector's noise ends after 2^16 numbers",
        "starts = range(0, size, BLOCK)",
        "starts = range(0, min(size, 4 * BLOCK), BLOCK)",
        LONG,
    ),
    in_streams(
        "the system's numbers begin again after 2^16",
        'return np.frombuffer(os.urandom(8 * count), dtype="<u8")',
        "words = os.urandom(8 * min(count, 2**16))\n"
        '    return np.resize(np.frombuffer(words, dtype="<u8"), count)',
        LONG,
    ),
    Fault(
        "the accelerator's noise begins again after 1,024 steps",
        "privacy/philox.py",
        "torch.full_like(places, step)",
        "torch.full_like(places, step % 1024)",
        LONG,
    ),
    Fault(
        "the accelerator's noise begins again after 2^17 numbers",
        "privacy/philox.py",
        "device=device)[None]",
        "device=device)[None] % 2**16",
        LONG,
    ),
    Fault(
        "examples beyond 2^16 never take part",
        "privacy/sampling.py",
        "return subset(examples,",
        "return subset(min(examples, 2**16),",
        LONG,
    ),
)

REACH = [*COMPANY, *LATE]
