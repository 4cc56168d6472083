"""Faults in the noise and in the batches."""

from fault import MECHANISM, Fault, P, in_draws, in_mechanism

NOISE = [
    in_mechanism(
        "noise is not scaled with the sensitivity",
        "noise *= query.noise_multiplier * _columns(query.sensitivity(runs), noise.dim())",
        "noise *= query.noise_multiplier",
    ),
    in_mechanism(
        "noise is drawn for the mean, not for the sum",
        "noise.add_(total)",
        "(noise / self.batch_size).add_(total)",
    ),
    in_mechanism(
        "no noise at all",
        "        if query.noise_multiplier == 0:\n",
        "        if True:\n",
    ),
    in_mechanism(
        "the second query gets no noise",
        "        if query.noise_multiplier == 0:\n",
        '        if query.noise_multiplier == 0 or query.kind == "clipped_direction":\n',
    ),
    in_mechanism(
        "scalars get no noise",
        "        if query.noise_multiplier == 0:\n",
        "        if query.noise_multiplier == 0 or query.scalar:\n",
    ),
    in_mechanism(
        "one noise stream for all queries",
        'purpose = f"noise/{query.name}/{query.noise_multiplier:.7g}"',
        'purpose = "noise"',
    ),
    in_mechanism(
        "queries of one kind share their noise",
        "noise/{query.name}/",
        "noise/{query.kind}/",
        P + "test_groups.py",
    ),
    in_mechanism(
        "the noise does not depend on its multiplier",
        "/{query.noise_multiplier:.7g}",
        "",
    ),
    in_mechanism(
        "the same noise in each step",
        "normals([self.run_ids[runs]], purpose, step,",
        "normals([self.run_ids[runs]], purpose, 1,",
    ),
    in_mechanism(
        "the same noise in each step of runs together",
        "normals(self.run_ids[runs], purpose, step,",
        "normals(self.run_ids[runs], purpose, 1,",
    ),
    in_mechanism(
        "the same noise in each run",
        "normals([self.run_ids[runs]], purpose,",
        "normals([self.run_ids[0]], purpose,",
    ),
    in_mechanism(
        "the same noise in runs together",
        "normals(self.run_ids[runs], purpose, step, total.shape[1:])",
        "normals(self.run_ids[:1], purpose, step, total.shape[1:])",
    ),
    in_mechanism(
        "one number as the noise of all coordinates",
        "purpose, step, total.shape)[0]",
        "purpose, step, ())[0]",
    ),
    in_draws(
        "one run's noise for all, drawn on the host",
        "self.randomness.normals(run_id, purpose, step, shape) for run_id in run_ids",
        "self.randomness.normals(run_ids[0], purpose, step, shape) for _ in run_ids",
    ),
    Fault(
        "one run's noise for all, drawn on an accelerator",
        "privacy/philox.py",
        "for run_id in run_ids]\n    identity",
        "for run_id in [run_ids[0]] * len(run_ids)]\n    identity",
        P + "test_philox.py",
    ),
    Fault(
        "the accelerator's noise is the same in each step",
        "privacy/philox.py",
        "torch.full_like(places, step)",
        "torch.full_like(places, 1)",
        P + "test_philox.py",
    ),
    Fault(
        "the accelerator's streams have keys of 64 bits",
        "privacy/philox.py",
        "torch.full_like(places, step), high0, high1)",
        "torch.full_like(places, step), 0 * high0, 0 * high1)",
        P + "test_philox.py",
    ),
    Fault(
        "the accelerator's noise has one angle's half only",
        "privacy/philox.py",
        "(2 * math.pi * 2.0**-53)",
        "(math.pi * 2.0**-53)",
        P + "test_philox.py",
    ),
    in_mechanism(
        "a group's noise is not on its layers' scales",
        "self._add_noise(total / scales, query, runs, step) * scales",
        "self._add_noise(total, query, runs, step)",
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
    in_mechanism(
        "noise is added in float32",
        "noise.add_(total).to(total.dtype)",
        "noise.to(total.dtype) + total",
    ),
    in_mechanism(
        "noise of nearby multipliers is the same",
        "{query.noise_multiplier:.7g}",
        "{query.noise_multiplier:.1g}",
    ),
]


SAMPLING = [
    in_draws(
        "the runs share their batches",
        'randomness.uniforms(run_id, "sampling",',
        'randomness.uniforms("shared", "sampling",',
        MECHANISM,
    ),
    in_draws(
        "the same batch in each step",
        'uniforms(run_id, "sampling", step,',
        'uniforms(run_id, "sampling", 1,',
        MECHANISM,
    ),
    in_draws(
        "what pads a batch is taken for examples",
        "sizes[:, None]",
        "sizes.max()",
    ),
    in_mechanism(
        "what pads a batch has weight",
        "each.masked_fill(~present, 0.0)",
        "each",
    ),
    in_draws(
        "a batch that is too long is cut",
        "_present(taken.sum(dim=1))",
        "_present(taken.sum(dim=1).clamp(max=BLOCK))",
    ),
    Fault(
        "batches of fixed size",
        "privacy/sampling.py",
        "np.flatnonzero(self.takes(uniforms))",
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
    in_mechanism(
        "sums are divided by the realised batch size",
        "answers[query.name] = noisy / self.batch_size",
        "answers[query.name] = noisy / max(1, gradients.norms().shape[-1])",
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
