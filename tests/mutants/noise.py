"""Faults in the noise and in the batches."""

from fault import (
    MECHANISM,
    Fault,
    P,
    in_mechanism,
    in_random_numbers,
    in_sampling,
    in_streams,
    in_subsets,
    in_sums,
)

NOISE = [
    in_mechanism(
        "noise is not scaled with the sensitivity",
        "query.noise_multiplier * query.sensitivity(runs)",
        "query.noise_multiplier",
    ),
    in_mechanism(
        "noise is drawn for the mean, not for the sum",
        "answers[place] = total",
        "answers[place] = totals[place] + (total - totals[place]) / self.batch_size",
    ),
    in_mechanism(
        "no noise at all",
        "if query.noise_multiplier > 0]",
        "if False]",
    ),
    in_mechanism(
        "the second query gets no noise",
        "if query.noise_multiplier > 0]",
        'if query.noise_multiplier > 0 and query.kind != "clipped_direction"]',
    ),
    in_mechanism(
        "scalars get no noise",
        "if query.noise_multiplier > 0]",
        "if query.noise_multiplier > 0 and not query.scalar]",
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
        "noised(\n            self.run_ids[runs],\n            step,\n",
        "noised(\n            self.run_ids[runs],\n            1,\n",
    ),
    in_mechanism(
        "the same noise in each run",
        "noised(\n            self.run_ids[runs],\n",
        "noised(\n            [self.run_ids[0]] * len(self.run_ids[runs]),\n",
    ).of("company"),
    in_mechanism(
        "a deviation is rounded to float32, which may be less",
        "torch.as_tensor(deviation, dtype=torch.float64, device=total.device)",
        "torch.as_tensor(deviation, device=total.device)",
    ),
    in_random_numbers(
        "one number as the noise of all coordinates",
        "            numbers += part\n",
        "            numbers[:] = numbers[0]\n            numbers += part\n",
        MECHANISM,
    ),
    in_random_numbers(
        "one run's noise for all, drawn on the host",
        "fill(numbers, run_ids[run], purpose,",
        "fill(numbers, run_ids[0], purpose,",
    ).of("company"),
    in_random_numbers(
        "one run's deviation for all, on the host",
        "deviations[number][run]",
        "deviations[number][0]",
    ).of("company"),
    in_random_numbers(
        "one run's deviation for all, on an accelerator",
        "numbers *= one.deviation[:, None]",
        "numbers *= one.deviation[0]",
    ).of("company"),
    in_random_numbers(
        "the sums of a step share the first one's stream",
        "purpose = noise[number].purpose",
        "purpose = noise[0].purpose",
    ),
    in_random_numbers(
        "the sums of a step share the first one's deviation",
        "deviations[number][run]",
        "deviations[0][run]",
    ),
    in_random_numbers(
        "noise is rounded before it is added, on an accelerator",
        "numbers.add_(rows).to(total.dtype)",
        "(numbers.to(total.dtype) + rows)",
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
    *(
        Fault(f"CUDA's kernel {says}", "privacy/philox.py", old, new, P + "test_philox.py")
        for says, old, new in (
            ("knows no step", "c1 = i1, c2 = i2", "c1 = 0, c2 = i2"),
            ("has a key of 32 bits", "k1 = j1;", "k1 = 0;"),
            ("never moves its key on", "k1 += {_WEYL[1]}u;", ""),
            ("gives the second number what the first has", "(c2 >> 5) << 26", "(c0 >> 5) << 26"),
        )
    ),
    in_mechanism(
        "the groups of a step share their noise",
        'purpose = f"noise/{query.name}/',
        'purpose = f"noise/{query.kind}/',
        P + "test_groups.py",
    ),
    in_streams(
        "uniform noise of the right deviation",
        "np.random.Generator(bits).standard_normal(out=out)",
        "out[:] = 3.4641 * (np.random.Generator(bits).random(out.shape) - 0.5)",
        MECHANISM,
    ),
    in_streams(
        "noise with the digits of float32",
        "np.random.Generator(bits).standard_normal(out=out)",
        "out[:] = np.random.Generator(bits).standard_normal(out.shape, dtype=np.float32)",
    ),
    in_streams(
        "the streams' keys have 64 bits",
        'dtype=np.dtype(dtype).newbyteorder("<"), count=n_words)',
        'dtype="<u8", count=1).repeat(n_words)',
    ),
    in_streams(
        "the blocks of a vector share a key",
        "Key(run_id, purpose, step, block).bits()",
        "Key(run_id, purpose, step, 0).bits()",
    ).of("late"),
    in_streams(
        "a block's key is used again in a later step",
        "Key(run_id, purpose, step, block).bits()",
        "Key(run_id, purpose, step % 1000, block).bits()",
    ).of("late"),
    in_streams(
        "a step's next block is the next step's first",
        "Key(run_id, purpose, step, block).bits()",
        "Key(run_id, purpose, step + block, 0).bits()",
    ).of("late"),
    in_streams(
        "runs side by side share their blocks",
        "self.fill(rows[row, place], run_ids[row], purpose,",
        "self.fill(rows[row, place], run_ids[0], purpose,",
    ).of("company"),
    in_streams(
        "step and block run into each other",
        "\\x00{step}\\x00{block}",
        "\\x00{step}{block}",
    ).of("late"),
    in_random_numbers(
        "every second block stays what the memory held",
        "for block in blocks(rows.shape[1])",
        "for block in blocks(rows.shape[1])[::2]",
        P + "test_long_runs.py",
    ).of("late"),
    in_streams(
        "a vector's last block is left out",
        "starts = range(0, size, BLOCK)",
        "starts = range(0, max(1, size - BLOCK + 1), BLOCK)",
    ).of("late"),
    in_streams(
        "the scheme changes and its number does not",
        "BLOCK = 2**14",
        "BLOCK = 2**13",
        P + "test_golden.py",
    ),
    Fault(
        "threads take a job twice",
        "privacy/threads.py",
        "        for job in waiting:\n",
        "        for job in jobs:\n",
        P + "test_threads.py",
    ),
    Fault(
        "threads are not waited for",
        "privacy/threads.py",
        "            helper.result()\n",
        "            pass\n",
        P + "test_threads.py",
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
        'f"{run_id}\\x00{purpose}\\x00{step}',
        'f"{run_id}{purpose}\\x00{step}',
        P + "test_streams.py",
    ),
    in_random_numbers(
        "noise is added in float32",
        "            numbers += part\n            noised[number][run, place] = numbers\n",
        "            noised[number][run, place] = numbers.astype(part.dtype) + part\n",
        MECHANISM,
    ),
    in_mechanism(
        "noise of nearby multipliers is the same",
        "{query.noise_multiplier:.7g}",
        "{query.noise_multiplier:.1g}",
    ),
]


SAMPLING = [
    in_random_numbers(
        "the runs share their batches",
        'randomness.words(run_id, "sampling",',
        'randomness.words("shared", "sampling",',
        MECHANISM,
    ),
    in_random_numbers(
        "the same batch in each step",
        'words(run_id, "sampling", step)',
        'words(run_id, "sampling", 1)',
        MECHANISM,
    ),
    in_random_numbers(
        "what pads a batch is taken for examples",
        "present[row, : len(batch)] = batch, True",
        "present[row] = batch, True",
    ).of("company"),
    in_sums(
        "what pads a batch has weight",
        ".masked_fill(~present, torch.inf)",
        "",
    ).of("company"),
    in_random_numbers(
        "a batch that is too long is cut",
        'self.randomness.words(run_id, "sampling", step))\n',
        'self.randomness.words(run_id, "sampling", step))[:BLOCK]\n',
    ).of("late"),
    in_sampling(
        "batches of fixed size",
        "binomial(examples, self.rate, words), words)",
        "round(examples * self.rate), words)",
        MECHANISM,
    ),
    in_sampling(
        "batches are drawn at twice the rate that is booked",
        "binomial(examples, self.rate, words), words)",
        "binomial(examples, min(1.0, 2 * self.rate), words), words)",
    ),
    in_sampling(
        "a size is drawn for one example too few",
        "binomial(examples, self.rate, words), words)",
        "binomial(examples - 1, self.rate, words), words)",
    ),
    in_subsets(
        "who is still undecided when the rate ends takes part",
        "    return taken  # who has",
        "    return taken + undecided  # who has",
    ),
    in_subsets(
        "a digit 0 of the rate is taken for a 1",
        "        if rate >= 1:  # the",
        "        if rate >= 0.5:  # the",
    ),
    in_subsets(
        "bits beyond those that are asked for count",
        "(int(drawn[-1]) >> (-bits % 64)).bit_count()",
        "int(drawn[-1]).bit_count()",
    ),
    in_subsets(
        "a subset prefers the first examples",
        "chosen = np.concatenate([chosen, below(examples, size - len(chosen), words)])",
        "chosen = np.concatenate([chosen, below(examples, size - len(chosen), words)])\n"
        "        chosen = np.minimum(chosen, below(examples, len(chosen), words))",
    ),
    in_subsets(
        "numbers that are too large are folded over, not drawn again",
        "drawn[drawn < limit]",
        "drawn % limit",
    ),
    in_subsets(
        "an example stands in a batch twice",
        "        chosen = chosen[np.concatenate([[True], chosen[1:] != chosen[:-1]])]\n",
        "",
    ),
    in_subsets(
        "the last example is never drawn",
        "below(examples, size - len(chosen), words)",
        "below(max(1, examples - 1), size - len(chosen), words)",
    ),
    in_subsets(
        "of a large batch those are kept that were left out",
        "        return np.flatnonzero(kept)\n",
        "        return np.flatnonzero(~kept)\n",
    ),
    in_mechanism(
        "sums are divided by the realised batch size",
        "return exact_sums(sums, some, gradients_of(some, indices), present)",
        "size = max(1, int(present.sum())) / len(present)\n"
        "            exact = exact_sums(sums, some, gradients_of(some, indices), present)\n"
        "            return [total * self.batch_size / size for total in exact]",
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
        "        if scheme != (cls.name, cls.neighbouring):\n",
        "        if False:\n",
        P + "test_sampling.py",
    ),
]
