"""The guarantee and training, once more: beyond the usual momentum, widths, options and numbers."""

from fault import Fault, of_kind

_ANYWHERE, _LAYERS = "tests/methods/test_anywhere.py", "tests/methods/test_many_layers.py"
_MANY, _ODD = "tests/privacy/test_of_many.py", "tests/gradients/test_odd_layers.py"
_PROBLEMS, _STATES = "tests/training/test_problems.py", "tests/private/test_whole_states.py"
_CLASSES, _SCHEDULE = "tests/gradients/test_every_class.py", "tests/training/test_schedule.py"

_RULES = [
    Fault(
        "a momentum of a half or less is none",
        "methods/base.py",
        'state.memory.get("velocity") if momentum > 0 else None',
        'state.memory.get("velocity") if momentum > 0.5 else None',
        _ANYWHERE,
    ),
    Fault(
        "Online's inner products are of the first 4,096 coordinates",
        "methods/online.py",
        "return (a * b).sum(dim=1)",
        "return (a * b)[:, : 2**12].sum(dim=1)",
        _ANYWHERE,
    ),
    Fault(
        "C cannot grow beyond 1,000, where it moves by additive steps",
        "methods/online_additive.py",
        "threshold.clamp(min=SMALLEST_THRESHOLD)",
        "threshold.clamp(min=SMALLEST_THRESHOLD, max=1e3)",
        _ANYWHERE,
    ),
    Fault(
        "rho cannot grow beyond ten, where it moves by additive steps",
        "methods/online_additive.py",
        "learning_rate.clamp(min=0.0)",
        "learning_rate.clamp(min=0.0, max=10.0)",
        _ANYWHERE,
    ),
    Fault(
        "short vectors are at right angles",
        "methods/online_scale_invariant.py",
        "(a.norm(dim=1) * b.norm(dim=1))",
        "(a.norm(dim=1) * b.norm(dim=1) + 1e-8)",
        _ANYWHERE,
    ),
    Fault(
        "C cannot stay above 100, where it follows a quantile by additive steps",
        "methods/fixed_quantile_linear.py",
        ".clamp(min=SMALLEST_THRESHOLD)",
        ".clamp(min=SMALLEST_THRESHOLD, max=100.0)",
        _ANYWHERE,
    ),
    Fault(
        "C moves by a factor of e at most, where it follows a quantile",
        "methods/fixed_quantile.py",
        "(-self.settings.quantile_rate * excess).exp()",
        "(-self.settings.quantile_rate * excess).clamp(-1, 1).exp()",
        _ANYWHERE,
    ),
    Fault(
        "a count's noise is that of an even batch size",
        "methods/fixed_quantile.py",
        "2 * self.settings.count_noise * batch_size",
        "2 * self.settings.count_noise * (batch_size // 2 * 2)",
        _ANYWHERE,
    ),
    Fault(
        "AdamWOSM's noise is that of an even batch size",
        "methods/adam_wosm.py",
        "state.noise_multiplier * state.threshold / state.batch_size",
        "state.noise_multiplier * state.threshold / ((state.batch_size + 1) // 2 * 2)",
        _ANYWHERE,
    ),
    Fault(
        "AUTO-WOSM's noise is that of an even batch size",
        "methods/auto_wosm.py",
        "state.noise_multiplier * state.threshold / state.batch_size",
        "state.noise_multiplier * state.threshold / ((state.batch_size + 1) // 2 * 2)",
        _ANYWHERE,
    ),
    Fault(
        "AUTO-DoG's noise is that of an even batch size",
        "methods/auto_dog.py",
        "state.threshold.double() / state.batch_size) ** 2",
        "state.threshold.double() / ((state.batch_size + 1) // 2 * 2)) ** 2",
        _ANYWHERE,
    ),
    Fault(
        "HyFreeDP's rate moves by a factor of a thousand at most",
        "methods/hyfreedp.py",
        "(slope / curvature).where(usable, 1.0)",
        "(slope / curvature).where(usable, 1.0).clamp(max=1e3)",
        _ANYWHERE,
    ),
    Fault(
        "Adam's squares end at a million",
        "methods/base.py",
        "(1 - beta2) * gradient.square()",
        "(1 - beta2) * gradient.square().clamp(max=1e6)",
        _ANYWHERE,
    ),
    Fault(
        "layers' gradients are put together in the alphabet's order",
        "methods/fixed_quantile_per_layer.py",
        "for name in state.layers]",
        "for name in sorted(state.layers)]",
        _LAYERS,
    ),
    Fault(
        "more than eight layers are together longer than C",
        "methods/fixed_quantile_per_layer.py",
        "shares = equal_thresholds(1.0, len(state.layers))",
        "shares = [min(8, len(state.layers)) ** -0.5] * len(state.layers)",
        _LAYERS,
    ),
]

_LATE = of_kind(
    "late",
    Fault(
        "a velocity is forgotten each 1,024 steps",
        "methods/base.py",
        'state.memory.get("velocity") if momentum > 0 else None',
        'state.memory.get("velocity") if momentum > 0 and (state.step + 1) % 1024 else None',
        _ANYWHERE,
    ),
    Fault(
        "Online stops learning after ten thousand steps",
        "methods/online.py",
        'if "gradient" in memory:',
        'if "gradient" in memory and state.step < 10_000:',
        _ANYWHERE,
    ),
    Fault(
        "a quantile is followed ever more slowly",
        "methods/fixed_quantile.py",
        "state.threshold = self.moved(state.threshold, unclipped - state.quantile)",
        "excess = (unclipped - state.quantile) / max(1, state.step / 1000)\n"
        "        state.threshold = self.moved(state.threshold, excess)",
        _ANYWHERE,
    ),
    Fault(
        "the average remembers a thousand steps at most",
        "training/schedule.py",
        "1 - min(decay, (1 + step) / (10 + step))",
        "1 - min(decay, 0.999, (1 + step) / (10 + step))",
        _SCHEDULE,
    ),
)

_COMPANY = of_kind(
    "company",
    Fault(
        "of many runs some have the noise of others' thresholds",
        "privacy/random_numbers.py",
        "numbers *= deviations[number][run]",
        "numbers *= deviations[number][run % 64]",
        _MANY,
    ),
    Fault(
        "sixty-four runs side by side are booked",
        "privacy/mechanism.py",
        "for run in members:\n            self._last_step[run] = step",
        "for run in members[:64]:\n            self._last_step[run] = step",
        _MANY,
    ),
    Fault(
        "of many runs sixty-four are looked at before a step is released again",
        "privacy/mechanism.py",
        "if any(step <= self._last_step[run] for run in members):",
        "if any(step <= self._last_step[run] for run in members[:64]):",
        _MANY,
    ),
    Fault(
        "books of many runs are taken up where sixty-four have every step",
        "privacy/mechanism.py",
        "all(ledger.step_count == last_step for ledger in ledgers)",
        "all(ledger.step_count == last_step for ledger in ledgers[:64])",
        _MANY,
    ),
    Fault(
        "of many runs' identities sixty-four must differ",
        "privacy/mechanism.py",
        "if len(set(run_ids)) != len(run_ids):",
        "if len(set(run_ids[:64])) != len(run_ids[:64]):",
        _MANY,
    ),
    Fault(
        "own data: every seed begins with the first one's weights",
        "training/own_problem.py",
        "_weights(task, own, run.seed) for run in runs",
        "_weights(task, own, runs[0].seed) for _ in runs",
        _PROBLEMS,
    ),
)

_SUMS = [
    Fault(
        "of a step's sums sixteen get noise",
        "privacy/mechanism.py",
        "for place, query in enumerate(queries) if query.noise_multiplier > 0]",
        "for place, query in enumerate(queries[:16]) if query.noise_multiplier > 0]",
        _MANY,
    ),
    Fault(
        "of a step's sums sixteen must be ours",
        "privacy/mechanism.py",
        "for query in queries:\n            # Sensitivities",
        "for query in queries[:16]:\n            # Sensitivities",
        _MANY,
    ),
]

_BOOKS = of_kind(
    "books",
    Fault(
        "of a step's sums sixteen are booked",
        "privacy/mechanism.py",
        "tuple(SumQuery(q.name, q.noise_multiplier) for q in queries)",
        "tuple(SumQuery(q.name, q.noise_multiplier) for q in queries[:16])",
        _MANY,
    ),
    Fault(
        "of a ledger's kinds of steps a hundred are priced",
        "privacy/ledger.py",
        "            for queries, count in self.steps\n        ]\n\n    def event",
        "            for queries, count in self.steps[:100]\n        ]\n\n    def event",
        _MANY,
    ),
    Fault(
        "of a ledger's kinds of steps a hundred are written",
        "privacy/ledger.py",
        "            for queries, count in self.steps\n        ]\n        return json",
        "            for queries, count in self.steps[:100]\n        ]\n        return json",
        _MANY,
    ),
    Fault(
        "of many trainings a hundred are priced",
        "accounting/accountants.py",
        "    for ledger in ledgers:\n",
        "    for ledger in [*ledgers][:100]:\n",
        _MANY,
    ),
    Fault(
        "search: of the other trainings sixteen are paid for",
        "private/paid.py",
        "return [self.ledger, *self.others]",
        "return [self.ledger, *self.others[:16]]",
        _MANY,
    ),
)

_GRADIENTS = [
    Fault(
        "of several portions who pads the first is left out of plain sums",
        "gradients/batch.py",
        "losses[present[part]].sum()",
        "losses[present[: len(losses)]].sum()",
        _ODD,
    ),
    Fault(
        "a single channel is moved across by the stride down",
        "gradients/conv2d.py",
        "(count, *patch, height, width), (example, *in_patch, *of_pixel)",
        "(count, *patch, height, width), "
        "(example, *in_patch, of_pixel[0], right * layer.stride[0])",
        _ODD,
    ),
    Fault(
        "a transposed convolution over time is not dilated",
        "gradients/conv1d.py",
        "(1, *layer.dilation),",
        "(1, 1) if layer.transposed else (1, *layer.dilation),",
        _ODD,
    ),
    Fault(
        "layer norm is over one dimension",
        "gradients/normalisation.py",
        "inputs.dim() - len(layer.normalized_shape))",
        "inputs.dim() - 1)",
        _ODD,
    ),
    Fault(
        "of the numbers of classes the first is tried in float32",
        "gradients/trial.py",
        "    for number in classes:\n        _check_rounded",
        "    for number in classes[:1]:\n        _check_rounded",
        _CLASSES,
    ),
    Fault(
        "drop-in: of a model's parameters sixty-four are measured",
        "opacus/held_gradients.py",
        "norms = torch.linalg.vector_norm(torch.stack(parts), dim=0)",
        "norms = torch.linalg.vector_norm(torch.stack(parts[:64]), dim=0)",
        "tests/opacus/test_many_parameters.py",
    ),
    Fault(
        "drop-in: a criterion that was refused is taken the next time",
        "opacus/ghost_criterion.py",
        "            self._try(args, shape, kwargs, len(losses))\n            self.tried = True",
        "            self.tried = True\n            self._try(args, shape, kwargs, len(losses))",
        "tests/opacus/test_ghost_losses.py",
    ),
]

_ARRIVES = [
    Fault(
        "own data: models are scored on the training examples",
        "training/own_problem.py",
        "examples_on_device(arrays.test_inputs, arrays.test_targets,",
        "examples_on_device(arrays.train_inputs, arrays.train_targets,",
        _PROBLEMS,
    ),
    Fault(
        "own data: a loss is tried with targets of two classes",
        "training/own_problem.py",
        "return Problem(code, examples, first, task.metric, scores, classes)",
        "return Problem(code, examples, first, task.metric, scores)",
        _PROBLEMS,
    ),
    Fault(
        "own data: the loss is the mean over pixels, whatever is said",
        "training/own_problem.py",
        "training_loss(task.metric, task.loss), examples, task.products",
        "training_loss(task.metric), examples, task.products",
        _PROBLEMS,
    ),
    Fault(
        "own data: products are of float32, whatever is said",
        "training/own_problem.py",
        "training_loss(task.metric, task.loss), examples, task.products",
        'training_loss(task.metric, task.loss), examples, find_precision("float32", device)',
        _PROBLEMS,
    ),
    Fault(
        "the study's loss is the mean over pixels, whatever is said",
        "training/problem.py",
        "training_loss(task.metric, task.loss), task.products)",
        "training_loss(task.metric), task.products)",
        _PROBLEMS,
    ),
    Fault(
        "the study's networks have no nonlinearity on their logits, whatever is said",
        "training/problem.py",
        "    model = build_model(task.model, task.last_layer_nonlinearity)\n    code",
        "    model = build_model(task.model)\n    code",
        _PROBLEMS,
    ),
]

_RESTART = of_kind(
    "restart",
    Fault(
        "own model: further steps begin without momentum",
        "private/one_training.py",
        "    state.noise_multiplier = recipe.noise_multiplier\n",
        "    state.noise_multiplier = recipe.noise_multiplier\n"
        "    state.memory = {name: 0 * kept for name, kept in state.memory.items()}\n",
        _STATES,
    ),
    Fault(
        "own model: what is saved has no momentum",
        "private/trained.py",
        '"state": self.state,',
        '"state": {**self.state, "memory": {n: 0 * v for n, v in self.state["memory"].items()}},',
        _STATES,
    ),
)

OVERLOOKED_GUARANTEE_ANEW = [
    *(*_RULES, *_LATE, *_COMPANY, *_SUMS, *_BOOKS),
    *(*_GRADIENTS, *_ARRIVES, *_RESTART),
]
