"""More of the guarantee that hides beyond the first of several, and where tests are seldom."""

from fault import Fault

_NOISE = [
    Fault(
        "two long names of one beginning share the host's noise",
        "privacy/streams.py",
        'name = f"{run_id}\\x00{purpose}\\x00{step}\\x00{block}"',
        'name = f"{run_id[:255]}\\x00{purpose}\\x00{step}\\x00{block}"',
        "tests/privacy/test_names.py",
    ),
    Fault(
        "a block that a helper failed to fill is released without noise",
        "privacy/threads.py",
        "            helper.result()",
        "            helper.exception()",
        "tests/privacy/test_threads.py",
    ),
]

_BOOKS = [
    Fault(
        "of a ledger's kinds of steps the first is checked",
        "privacy/ledger.py",
        "        for queries, count in self.steps:\n            if type(count)",
        "        for queries, count in self.steps[:1]:\n            if type(count)",
        "tests/privacy/test_ledger.py",
    ),
    Fault(
        "of a step's sums the first is checked",
        "privacy/ledger.py",
        "            for query in queries:\n                nu = query.noise_multiplier",
        "            for query in queries[:1]:\n                nu = query.noise_multiplier",
        "tests/privacy/test_ledger.py",
    ),
    Fault(
        "books that no mechanism writes are taken up",
        "privacy/mechanism.py",
        "        for ledger in ledgers:\n            ledger.check()\n",
        "",
        "tests/privacy/test_mechanism_books.py",
    ),
    Fault(
        "a stored ledger needs the noise in one kind of its steps only",
        "training/outcome.py",
        "        for nu in noise:",
        "        for nu in [max(noise)]:",
        "tests/training/test_course.py",
    ),
    Fault(
        "a saved best needs a candidate's noise in one kind of its steps only",
        "private/paid.py",
        "and all(nu >= least * _ROUNDED for nu, _ in ledger.releases())",
        "and any(nu >= least * _ROUNDED for nu, _ in ledger.releases())",
        "tests/private/test_search_books.py",
    ),
    Fault(
        "a checkpoint without a run's ledger is taken in half",
        "training/loop.py",
        "if len(ledgers) != len(alive) or not finite(state.parameters).all():",
        "if not finite(state.parameters).all():",
        "tests/training/test_taken_whole.py",
    ),
    Fault(
        "a checkpoint whose weights are not finite is gone on from",
        "training/loop.py",
        "if len(ledgers) != len(alive) or not finite(state.parameters).all():",
        "if len(ledgers) != len(alive):",
        "tests/training/test_taken_whole.py",
    ),
    Fault(
        "a run that has ended has the first one's books",
        "training/loop.py",
        "return Ledger.from_json(self.outcomes[position].ledger)",
        "return Ledger.from_json(self.outcomes[0].ledger)",
        "tests/training/test_refused_runs.py",
    ),
    Fault(
        "a saved statement is held to RDP, whatever accountant it names",
        "private/statement.py",
        "self.epsilon, paid.epsilon(self.delta, self.accountant)",
        'self.epsilon, paid.epsilon(self.delta, "rdp")',
        "tests/private/test_saved.py",
    ),
    Fault(
        "search: validation examples are priced by RDP, whatever accountant was named",
        "private/paid.py",
        "return epsilon_of([self.scores], delta, accountant)",
        "return epsilon_of([self.scores], delta)",
        "tests/private/test_ended_early.py",
    ),
    Fault(
        "own model: what the made steps cost is said by RDP, whatever accountant was named",
        "private/train.py",
        "epsilon_of(paid.ledgers(), budget.delta, accountant)",
        "epsilon_of(paid.ledgers(), budget.delta)",
        "tests/private/test_ended_early.py",
    ).of("reported"),
    Fault(
        "search: random stopping's scores are priced at a delta of 1e-6 at least",
        "private/paid.py",
        "return self.stopping.epsilon(self.scores, delta)",
        "return self.stopping.epsilon(self.scores, max(delta, 1e-6))",
        "tests/private/test_search_books.py",
    ),
]

_AUDIT = [
    Fault(
        "audit: many runs' likelihood is that of one run's sampling",
        "audit/experiments.py",
        "every = scores(together, seen[0].noise, MANY_RUNS.sampling.rate)",
        "every = scores(together, seen[0].noise, ONE_RUN.sampling.rate)",
        "tests/audit/test_findings.py",
    ),
    Fault(
        "audit: bounds hold with 90 % confidence",
        "audit/bounds.py",
        "SIGNIFICANCE = 0.05",
        "SIGNIFICANCE = 0.1",
        "tests/audit/test_bounds.py",
    ),
]

_DROP_IN = [
    Fault(
        "drop-in: what is made of batch norm is not known by name",
        "opacus/refusals.py",
        "isinstance(layer, _BatchNorm):",
        "type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):",
        "tests/opacus/test_untried_models.py",
    ),
    Fault(
        "drop-in: of a model's buffers the first may not keep examples",
        "opacus/made_up_examples.py",
        "for (name, buffer), value in zip(model.named_buffers(), before, strict=True):",
        "for (name, buffer), value in [*zip(model.named_buffers(), before, strict=True)][:1]:",
        "tests/opacus/test_untried_models.py",
    ),
    Fault(
        "drop-in: packed sequences are as many as the longest is long",
        "opacus/model_hooks.py",
        "return int(value.batch_sizes[0])",
        "return len(value.batch_sizes)",
        "tests/opacus/test_untried_models.py",
    ),
    Fault(
        "drop-in: another loss than cross entropy may weigh its mean by class",
        "opacus/refusals.py",
        '        and getattr(criterion, "weight", None) is not None\n',
        '        and getattr(criterion, "weight", None) is not None\n'
        "        and isinstance(criterion, nn.CrossEntropyLoss)\n",
        "tests/opacus/test_ghost_losses.py",
    ),
    Fault(
        "drop-in: a number minus ghost losses is these minus the number",
        "opacus/ghost_criterion.py",
        "return self._like(super().__rsub__(other))",
        "return self._like(super().__sub__(other))",
        "tests/opacus/test_ghost_losses.py",
    ),
    Fault(
        "drop-in: minus ghost losses are the losses",
        "opacus/ghost_criterion.py",
        "return self._like(super().__neg__())",
        "return self",
        "tests/opacus/test_ghost_losses.py",
    ),
    Fault(
        "drop-in: under secure_mode noise shows its digits",
        "opacus/sanitize.py",
        "_generate_noise(deviation, reference, self.generator, self.secure_mode).flatten()",
        "_generate_noise(deviation, reference, self.generator, False).flatten()",
        "tests/opacus/test_secure_mode.py",
    ),
    Fault(
        "drop-in: the optimizer does not know of secure_mode",
        "opacus/private_engine.py",
        "optimizer, generator=generator, secure_mode=self.secure_mode, **arguments",
        "optimizer, generator=generator, **arguments",
        "tests/opacus/test_secure_mode.py",
    ),
    Fault(
        "drop-in: under secure_mode a resumed run has batches of a seed",
        "opacus/sanitizing_optimizer.py",
        "if self.batches is not None and not self.secure_mode:",
        "if self.batches is not None:",
        "tests/opacus/test_secure_mode.py",
    ),
    Fault(
        "drop-in: after the first epoch two workers may have one example",
        "opacus/poisson_batches.py",
        "self.shuffle_seed + self.epoch)",
        "self.shuffle_seed + self.epoch * (self.rank + 1))",
        "tests/opacus/test_dealt_out.py",
    ),
    Fault(
        "drop-in: of three workers two have the same examples",
        "opacus/poisson_batches.py",
        "places[self.rank :: self.num_replicas]",
        "places[self.rank % 2 :: min(self.num_replicas, 2)]",
        "tests/opacus/test_dealt_out.py",
    ),
]

_MODELS = [
    Fault(
        "what is made of batch norm is not known by name",
        "gradients/code.py",
        "batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)",
        "batch_norm = type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)",
        "tests/gradients/test_gradients_refused.py",
    ),
    Fault(
        "what is random in some passes is looked for in two",
        "gradients/independence.py",
        "REPEATED = 3",
        "REPEATED = 1",
        "tests/gradients/test_independence.py",
    ),
    Fault(
        "AUTO-DoG's distance has the usual certainty, whatever is said",
        "methods/auto_dog.py",
        "size + settings.certainty * deviation",
        "size + 3.0 * deviation",
        "tests/methods/test_auto_dog_by_hand.py",
    ),
    Fault(
        "AUTO-DoG's spread is that of the first run's noise",
        "methods/auto_dog.py",
        "(square * deviation * variance) ** 2",
        "(square * deviation * variance[:1]) ** 2",
        "tests/methods/test_auto_dog_by_hand.py",
    ).of("company"),
    Fault(
        "AUTO-DoG's noise is that of the first run's C",
        "methods/auto_dog.py",
        "state.noise_multiplier * state.threshold.double()",
        "state.noise_multiplier * state.threshold[:1].double()",
        "tests/methods/test_auto_dog_by_hand.py",
    ).of("company"),
    Fault(
        "HyFreeDP's bound stays below ten thousand",
        "methods/hyfreedp.py",
        "bound = here + forth + back",
        "bound = (here + forth + back).clamp(max=1e4)",
        "tests/methods/test_hyfreedp.py",
    ),
    Fault(
        "HyFreeDP has the usual stabiliser in steps with losses",
        "methods/hyfreedp.py",
        "AutomaticGradient(gradient_noise, state.threshold, stabiliser=stabiliser)",
        "AutomaticGradient(gradient_noise, state.threshold, stabiliser=0.01)",
        "tests/methods/test_hyfreedp.py",
    ),
    Fault(
        "HyFreeDP has the usual stabiliser in steps without losses",
        "methods/hyfreedp.py",
        "AutomaticGradient(state.noise_multiplier, state.threshold, stabiliser=stabiliser)",
        "AutomaticGradient(state.noise_multiplier, state.threshold, stabiliser=0.01)",
        "tests/methods/test_hyfreedp.py",
    ),
]

OVERLOOKED_ONCE_MORE_BOOKS = [*_NOISE, *_BOOKS, *_AUDIT, *_DROP_IN, *_MODELS]
