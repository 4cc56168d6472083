"""Of the guarantee: late steps, long sums, later groups of runs, portions after the first; models
that are put together anew."""

from fault import (
    Fault,
    G,
    P,
    in_mechanism,
    in_random_numbers,
    in_subsets,
    of_kind,
)

_LATE = P + "test_late_and_large.py"
_OPACUS = "tests/opacus/"
_PRIVATE = "tests/private/"

OVERLOOKED_LATE_GUARANTEE = [
    *of_kind(
        "late",
        in_random_numbers(
            "the host's noise begins again after 128 blocks",
            "run_ids[run], purpose, step, block)",
            "run_ids[run], purpose, step, block % 128)",
            _LATE,
        ),
        Fault(
            "an accelerator's noise begins again after two million numbers",
            "privacy/philox.py",
            "torch.arange(-(-count // 2), device=device)[None]",
            "torch.arange(-(-count // 2), device=device)[None] % 2**20",
            _LATE,
        ),
        Fault(
            "an accelerator counts places in float32",
            "privacy/philox.py",
            "torch.arange(-(-count // 2), device=device)[None]",
            "torch.arange(-(-count // 2), device=device, dtype=torch.float32)[None].long()",
            _LATE,
        ),
        in_mechanism(
            "from step 4,097 on the noise of before comes again",
            "            self.run_ids[runs],\n            step,\n",
            "            self.run_ids[runs],\n            step % 4096,\n",
            _LATE,
        ),
        in_mechanism(
            "from step 4,097 on the batches of before come again",
            "batches_by_width(self.run_ids[runs], step)",
            "batches_by_width(self.run_ids[runs], step % 4096)",
            _LATE,
        ),
        in_mechanism(
            "steps beyond 4,096 may be released again",
            "if any(step <= self._last_step[run] for run in members):",
            "if any(step <= min(self._last_step[run], 4096) for run in members):",
            _LATE,
        ),
        in_mechanism(
            "losses' noise of before comes again from step 4,097 on",
            "self._sanitized([query], totals, runs, step)",
            "self._sanitized([query], totals, runs, step % 4096)",
            _LATE,
        ),
        in_subsets(
            "beyond 2^24 examples odd ones are never drawn",
            ">> np.uint64(64 - bits)).astype(np.int64)",
            ">> np.uint64(64 - bits)).astype(np.float32).astype(np.int64)",
            _LATE,
        ),
    ),
    *of_kind(
        "company",
        in_mechanism(
            "runs of a later group take the first group's places",
            "return [members[place] for place in places]",
            "return [*places]",
            P + "test_company.py",
        ),
    ),
    in_mechanism(
        "losses are taken over a second batch",
        "totals = self._totals(waiting.batches, clipped)",
        "totals = self._totals(\n"
        "            self.random_numbers.batches_by_width(self.run_ids[runs], step), clipped\n"
        "        )",
        _LATE,
    ),
    in_mechanism(
        "losses of an empty batch leave without noise",
        "        answers = self._sanitized([query], totals, runs, step)",
        "        if not any(batch.present.any() for batch in waiting.batches):\n"
        "            return {query.key: totals[0].to(points.dtype)}\n"
        "        answers = self._sanitized([query], totals, runs, step)",
        _LATE,
    ),
    Fault(
        "places of later portions are measured with the first portion's errors",
        "gradients/sequence_linear.py",
        "inputs[part].double(), errors[part].double()",
        "inputs[part].double(), errors[: len(inputs[part])].double()",
        G + "test_layer_rules.py",
    ),
    Fault(
        "tf32 does not count as low",
        "gradients/precision.py",
        "return self.factors is not None or self.tf32",
        "return self.factors is not None",
        G + "test_precision.py",
    ),
    Fault(
        "a kernel's norms are those of the first portion",
        "opacus/held_gradients.py",
        "            norms[part] = row_norms(kernels)",
        "            norms[: len(kernels)] = row_norms(kernels)",
        _OPACUS + "test_layers_of_each_mode.py",
    ),
    Fault(
        "later portions of kernels have the first one's weights",
        "opacus/held_gradients.py",
        "total.addmm_(weights[:, part], kernels)",
        "total.addmm_(weights[:, : len(kernels)], kernels)",
        _OPACUS + "test_layers_of_each_mode.py",
    ),
    Fault(
        "Opacus's batches are drawn above the rate",
        "opacus/poisson_batches.py",
        "            num_samples=past.num_samples,\n            sample_rate=past.sample_rate,",
        "            num_samples=past.num_samples,\n"
        "            sample_rate=min(1.0, 1.05 * past.sample_rate),",
        _OPACUS + "test_expected_sizes.py",
    ),
    Fault(
        "more examples are below Opacus's rate",
        "opacus/poisson_batches.py",
        "return uniform < self.sample_rate",
        "return uniform < 1.05 * self.sample_rate",
        _OPACUS + "test_expected_sizes.py",
    ),
    Fault(
        "training that goes on has the usual momentum",
        "private/choices.py",
        '("method", *STARTS, "momentum", "schedule", "averaging")',
        '("method", *STARTS, "schedule", "averaging")',
        _PRIVATE + "test_gone_on_from.py",
    ),
    Fault(
        "training that goes on has the usual constants",
        "private/unsaid.py",
        '"settings": {**kept["settings"], **settings}',
        '"settings": settings',
        _PRIVATE + "test_gone_on_from.py",
    ),
    Fault(
        "after a search training goes on as its first point",
        "private/one_training.py",
        "            ended.trained_with,\n",
        "            self.choices.goes_on_with(),\n",
        _PRIVATE + "test_gone_on_from.py",
    ),
    Fault(
        "a model is put beside whatever is frozen there",
        "private/trained.py",
        "if untrained.get(name) != here.get(name):",
        "if name not in untrained:",
        _PRIVATE + "test_saved.py",
    ),
    Fault(
        "Ctrl-C that is ignored is heard",
        "interrupts.py",
        "not in (signal.SIG_IGN, None)]",
        "is not None]",
        _PRIVATE + "test_odd_ends.py",
    ),
]
