"""Faults of the guarantee that the tests of their room once did not see."""

from fault import GRADIENTS, LOOP, Fault, M, P, T, in_mechanism, in_sampling, of_kind

_ATTACKED = "tests/opacus/test_opacus_attacked.py"
_PORTIONS = "tests/gradients/test_portions.py"

OVERLOOKED_GUARANTEE = [
    *of_kind(
        "books",
        Fault(
            "steps that were not made may be of other batches",
            "private/paid.py",
            "(stopping is not None or not_made.sampling != ledger.sampling)",
            "stopping is not None",
            "tests/private/test_search_books.py",
        ),
        Fault(
            "a run's ledger may claim a hundredth more noise",
            "training/outcome.py",
            "rel_tol=1e-6",
            "rel_tol=1e-2",
            "tests/training/test_course.py",
        ),
        Fault(
            "books are taken up where one run of several has every step",
            "privacy/mechanism.py",
            "whole = all(",
            "whole = any(",
            "tests/privacy/test_mechanism_books.py",
        ),
        in_mechanism(
            "a step may cost a little more than its price",
            "self.noise_multiplier * (1 - 1e-9)",
            "self.noise_multiplier * (1 - 1e-5)",
        ),
        Fault(
            "a stored ledger may be of another sampling rate",
            "training/outcome.py",
            "        if ledger.sampling != self.sampling:\n",
            "        if False:\n",
            T + "test_course.py",
        ),
        Fault(
            "a stored ledger may have fewer steps than the run",
            "training/outcome.py",
            "if ledger.step_count != steps:",
            "if ledger.step_count > steps:",
            T + "test_course.py",
        ),
        Fault(
            "drop-in: an engine knows the steps of its last training alone",
            "opacus/private_engine.py",
            "self.optimizers.append(private_optimizer)",
            "self.optimizers = [private_optimizer]",
            _ATTACKED,
        ),
        Fault(
            "drop-in: a step may cost a hundredth more than its price",
            "opacus/sanitize.py",
            "noise_multiplier * (1 - 1e-9)",
            "noise_multiplier * (1 - 1e-2)",
            "tests/opacus/test_release_through_opacus.py",
        ),
    ),
    *of_kind(
        "restart",
        Fault(
            "a job whose method remembers begins anew after a run of it diverged",
            "training/restored.py",
            "forms = {key: _form(_first(memory, runs)) for key, memory in known}",
            "forms = {key: _form(memory) for key, memory in known}",
            LOOP,
        ),
        Fault(
            "a job begins anew after a run of it diverged where it would have been evaluated",
            "training/outcome.py",
            "range(1, ended + (not diverged))",
            "range(1, ended + 1)",
            LOOP,
        ),
        Fault(
            "half a batch of before goes into a resumed run's first sum",
            "opacus/sanitizing_optimizer.py",
            "        self.ledger = ledger\n        self._totals = None\n",
            "        self.ledger = ledger\n",
            "tests/opacus/test_release_through_opacus.py",
        ),
        Fault(
            "what goes on from two lengths of a training has one identity",
            "private/one_training.py",
            'f"{after.run_id}/{after.ledger.step_count}/{run_id}"',
            'f"{after.run_id}/{run_id}"',
            "tests/private/test_train_private.py",
        ),
    ),
    *of_kind(
        "company",
        Fault(
            "a run that goes on has the threshold of one that has ended",
            "methods/base.py",
            "self.threshold = self.threshold[runs]",
            "self.threshold = self.threshold[: len(runs)]",
            M,
        ),
        Fault(
            "a run that goes on has the quantile of one that has ended",
            "methods/base.py",
            "self.quantile = self.quantile[runs]",
            "self.quantile = self.quantile[: len(runs)]",
            M,
        ),
        Fault(
            "names of one beginning share the accelerator's noise",
            "privacy/philox.py",
            'f"{run_id}\\x00{purpose}"',
            'f"{run_id[:16]}\\x00{purpose}"',
            P + "test_philox.py",
        ),
        Fault(
            "drop-in: trainings of one script share their noise",
            "opacus/sanitize.py",
            "manual_seed(secrets.randbits(63))",
            "manual_seed(torch.initial_seed())",
            _ATTACKED,
        ),
        Fault(
            "drop-in: every script has the same batches",
            "opacus/poisson_batches.py",
            'past.generator or seeded_generator(torch.device("cpu"))',
            "past.generator or torch.Generator()",
            _ATTACKED,
        ),
        Fault(
            "HyFreeDP's bound is the first one where any run's losses are below zero",
            "methods/hyfreedp.py",
            "bound.where(bound > 0, self._bound(state))",
            "bound.where((bound > 0).all(), self._bound(state))",
            "tests/methods/test_hyfreedp.py",
        ),
        Fault(
            "threads that draw at the same time share their numbers",
            "privacy/random_numbers.py",
            "        deviations = [one.deviation.tolist() for one in noise]\n\n"
            "        def add(number: int, run: int, block: int, place: slice) -> None:\n"
            "            part = exact[number][run, place]\n"
            "            numbers = np.empty(len(part))\n",
            "        deviations = [one.deviation.tolist() for one in noise]\n"
            "        buffer = np.empty(NOISE_BLOCK)\n\n"
            "        def add(number: int, run: int, block: int, place: slice) -> None:\n"
            "            part = exact[number][run, place]\n"
            "            numbers = buffer[: len(part)]\n",
            P + "test_random_numbers.py",
        ),
    ),
    in_sampling(
        "a rate is rounded to nine decimals",
        "binomial(examples, self.rate, words), words)",
        "binomial(examples, round(self.rate, 9), words), words)",
    ),
    Fault(
        "drop-in: a bfloat16 model's norms and sums have eight bits",
        "opacus/model_hooks.py",
        "return Samples(samples, wide(parameter.dtype))",
        "return Samples(samples, parameter.dtype)",
        "tests/opacus/test_layers_of_each_mode.py",
    ),
    Fault(
        "drop-in: a criterion may mix a tenth of its batch into a loss",
        "opacus/ghost_criterion.py",
        "rtol=1e-3, atol=1e-6",
        "rtol=1e-1, atol=1e-6",
        _ATTACKED,
    ),
    Fault(
        "drop-in: what was said of a piece that nobody took is said of the next batch's",
        "opacus/sanitizing_optimizer.py",
        "        self._step_skip_queue.clear()\n",
        "",
        _ATTACKED,
    ),
    Fault(
        "of rows that cancel two may leave rounding, however many there are",
        "gradients/cancelling.py",
        "(length + 1) * _unit(sum_type) * terms",
        "2 * _unit(sum_type) * terms",
        "tests/gradients/test_cancelling.py",
    ),
    Fault(
        "drop-in: a text is measured as if it were one word",
        "opacus/held_gradients.py",
        "return at_least(squares, terms, length, width, self.outputs.dtype)",
        "return at_least(squares, terms, 1, width, self.outputs.dtype)",
        "tests/opacus/test_cancelling_places.py",
    ),
    Fault(
        "scores with nearly the same noise share it",
        "privacy/noisy_share.py",
        "{self.noise_multiplier:.7g}",
        "{self.noise_multiplier:.2g}",
        P + "test_noisy_share.py",
    ),
    Fault(
        "an infinite bound of the losses tells an empty batch",
        "privacy/clipped_losses.py",
        ".clamp(SMALLEST_THRESHOLD, LARGEST_THRESHOLD)",
        ".clamp(min=SMALLEST_THRESHOLD)",
        "tests/privacy/test_clipped_losses.py",
    ),
    *of_kind(
        "late",
        Fault(
            "of several portions the last one's kept gradients are summed",
            "gradients/kept.py",
            "onto[name] += sums",
            "onto[name] = sums",
            _PORTIONS,
        ),
        Fault(
            "of several portions the last one's words are summed",
            "gradients/embedding.py",
            "        if onto is None:\n",
            "        if True:\n",
            _PORTIONS,
        ),
        Fault(
            "of several portions the last one's rows of an image are summed",
            "gradients/conv1d.py",
            'onto = {**onto, "weight": onto["weight"].unsqueeze(4)}',
            "onto = None",
            _PORTIONS,
        ),
        Fault(
            "long rows of tiny numbers are measured too short",
            "gradients/rules.py",
            "_SMALL, _LARGE = 1e-12,",
            "_SMALL, _LARGE = 1e-19,",
            GRADIENTS,
        ),
        Fault(
            "a portion is laid out in unequal parts",
            "gradients/rules.py",
            "2 ** max(0, (CHUNK_BYTES[values.device.type] // bytes_each).bit_length() - 1)",
            "max(1, CHUNK_BYTES[values.device.type] // bytes_each)",
            GRADIENTS,
        ),
    ),
]
