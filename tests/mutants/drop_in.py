"""Faults in the drop-in for Opacus."""

from fault import Fault

T = "tests/opacus/"
RELEASE, FEATURES = T + "test_release_through_opacus.py", T + "test_features.py"
ATTACKED, CANCELLING = T + "test_opacus_attacked.py", T + "test_cancelling_places.py"
LAYERS, REFUSALS = T + "test_layers_of_each_mode.py", T + "test_opacus_refusals.py"


def in_sanitize(name: str, old: str, new: str, tests: str = RELEASE) -> Fault:
    return Fault(name, "opacus/sanitize.py", old, new, tests)


def in_optimizer(name: str, old: str, new: str, tests: str = FEATURES) -> Fault:
    return Fault(name, "opacus/sanitizing_optimizer.py", old, new, tests)


def in_held(name: str, old: str, new: str, tests: str = LAYERS) -> Fault:
    return Fault(name, "opacus/held_gradients.py", old, new, tests)


def in_hooks(name: str, old: str, new: str, tests: str = LAYERS) -> Fault:
    return Fault(name, "opacus/model_hooks.py", old, new, tests)


DROP_IN = [
    in_sanitize(
        "drop-in: the second sum gets no noise",
        "noised = total + noise(query.name, deviation, like).view_as(total)",
        "noised = total + noise(query.name, deviation, like).view_as(total)"
        " * float(query is queries[0])",
    ),
    in_sanitize(
        "drop-in: nu_g and nu_q are exchanged",
        "deviation = query.noise_multiplier *",
        "deviation = multipliers[list(queries).index(query) - 1] *",
    ),
    in_sanitize(
        "drop-in: noise is not scaled with the sensitivity",
        " * float(query.sensitivity(ONE_RUN))",
        "",
    ),
    in_sanitize(
        "drop-in: an empty batch gets no noise",
        "        if not distributed or torch.distributed.get_rank() == 0:\n",
        "        if total.any() and (not distributed or torch.distributed.get_rank() == 0):\n",
    ),
    in_sanitize(
        "drop-in: sums that cost more than a step may are released",
        "    if combined_noise_multiplier(multipliers) < noise_multiplier * (1 - 1e-9):\n",
        "    if False:\n",
    ),
    in_sanitize("drop-in: the accountant has no step", "    record()\n", "    pass\n"),
    in_sanitize(
        "drop-in: the ledger has the gradient's sum alone",
        "for query in queries))\n    record()",
        "for query in queries[:1]))\n    record()",
    ),
    in_sanitize(
        "drop-in: after each resumption the same noise",
        "self.generator.seed()",
        "self.generator.manual_seed(0)",
    ),
    in_sanitize(
        "drop-in: every worker adds noise of its own",
        "torch.distributed.get_rank() == 0",
        "torch.distributed.get_rank() >= 0",
        T + "test_two_workers.py",
    ),
    in_optimizer(
        "drop-in: a resumed run repeats its noise",
        "        self.noise.renew(self.device)\n",
        "",
        RELEASE,
    ),
    in_optimizer(
        "drop-in: sums are divided by the realised batch size",
        "            sums = exact_sums(queries, ONE_RUN, gradients, present)\n",
        "            sums = exact_sums(queries, ONE_RUN, gradients, present)\n"
        "            self.batch_size = max(1, gradients.size)\n",
        RELEASE,
    ),
    in_optimizer(
        "drop-in: C follows norms that nobody sanitized",
        "            sums = exact_sums(queries, ONE_RUN, gradients, present)\n",
        "            sums = exact_sums(queries, ONE_RUN, gradients, present)\n"
        "            self.driver.state.threshold *= 1 + 0.01 * gradients.norms().mean().sign()\n",
        RELEASE,
    ),
    in_optimizer(
        "drop-in: the accountant has one step of all",
        "        if self.account is not None:\n",
        "        if self.account is not None and self.ledger.step_count == 1:\n",
    ),
    in_optimizer(
        "drop-in: of a batch in pieces the last piece counts",
        "self._totals = sums if past is None else [a + b for a, b in zip(past, sums, strict=True)]",
        "self._totals = sums",
    ),
    in_optimizer(
        "drop-in: a dropped backward pass counts",
        "            parameter.held = None\n        super().zero_grad",
        "            pass\n        super().zero_grad",
    ),
    in_optimizer(
        "drop-in: parameters may be frozen in mid-training",
        "        if [id(p) for p in self.params] != [id(p) for p in self.trained]:\n",
        "        if False:\n",
        REFUSALS,
    ),
    in_optimizer(
        "drop-in: a resumed run's ledger begins anew",
        "        self.ledger = ledger\n",
        "",
    ),
    in_optimizer(
        "drop-in: a closure is taken",
        "        if closure is not None:\n",
        "        if False:\n",
        REFUSALS,
    ),
    in_held(
        "drop-in: ghost norms of sequences leave out products of two places",
        "products = (outputs @ outputs.mT) * (inputs @ inputs.mT)",
        "products = (outputs @ outputs.mT) * (inputs @ inputs.mT)"
        " * torch.eye(inputs.shape[1], dtype=torch.double)",
    ),
    in_held(
        "drop-in: different words of a text share a row",
        "((outputs @ outputs.mT) * same)",
        "(outputs @ outputs.mT)",
    ),
    in_held(
        "drop-in: the padding of a text is learned",
        "        if padding is not None:  # it",
        "        if False:  # it",
    ),
    in_held(
        "drop-in: examples that are no number stay in the sums",
        "        if unusable.any():",
        "        if False:",
        RELEASE,
    ),
    in_held(
        "drop-in: infinite inputs times nothing",
        "        if self.inputs.is_floating_point():",
        "        if False:",
        RELEASE,
    ),
    in_held(
        "drop-in: a sequence is measured without what its sum may be off",
        "return at_least(squares, terms.sum(dim=1), length, widths, self.outputs.dtype)",
        "return squares.clamp(min=0).sqrt()",
        CANCELLING,
    ),
    in_held(
        "drop-in: a text is measured without what its sum may be off",
        "return at_least(squares, terms, length, width, self.outputs.dtype)",
        "return squares.clamp(min=0).sqrt()",
        CANCELLING,
    ),
    in_held(
        "drop-in: kernels are measured shorter than they are summed",
        "norms[part] = row_norms(kernels)",
        "norms[part] = row_norms(kernels.bfloat16())",
        CANCELLING,
    ),
    Fault(
        "drop-in: sums are taken in the script's precision",
        "opacus/sanitizing_optimizer.py",
        "torch.no_grad(), borrowed_float32(self.device)",
        "torch.no_grad(), torch.autocast(self.device.type, enabled=False)",
        CANCELLING,
    ),
    Fault(
        "drop-in: workers with one seed draw the same places",
        "opacus/poisson_batches.py",
        "        if not secure_mode:  # a",
        "        if own.generator is None:  # a",
        ATTACKED,
    ),
    Fault(
        "drop-in: a small rate is that of float32 numbers",
        "opacus/poisson_batches.py",
        "dtype=torch.float64",
        "dtype=torch.float32",
        ATTACKED,
    ),
    Fault(
        "drop-in: a model is not tried on arrays",
        "opacus/made_up_examples.py",
        "default_collate([first])[0][0] if first else None",
        "first[0] if first else None",
        REFUSALS,
    ),
    in_hooks(
        "drop-in: one example counts twice in ghost mode",
        '    if getattr(parameter, "held", None) is not None:\n',
        "    if False:\n",
        FEATURES,
    ),
    in_hooks(
        "drop-in: two forward passes' gradients run into one",
        '        if any(getattr(parameter, "_forward_counter", 0)',
        '        if False and any(getattr(parameter, "_forward_counter", 0)',
        ATTACKED,
    ),
    in_hooks(
        "drop-in: ghost gradients stay those of a mean",
        "backprops=outputs, loss_reduction=loss_reduction",
        'backprops=outputs, loss_reduction="sum"',
    ),
    in_hooks(
        "drop-in: of a tied layer one call counts",
        "p._forward_counter > 1 or",
        "p._forward_counter > 2 or",
    ),
    Fault(
        "drop-in: loader and accountant have two sampling rates",
        "opacus/private_engine.py",
        "        announce_batches(loader, len(data_loader), ",
        "        announce_batches(loader, int(1 / loader.sample_rate), ",
        FEATURES,
    ),
    Fault(
        "drop-in: what a loop left in mid-batch goes into the next batch",
        "opacus/poisson_batches.py",
        "            self.begin()\n",
        "            pass\n",
        ATTACKED,
    ),
    in_hooks(
        "drop-in: places of an example are examples of their own",
        "        if self.example_count not in (None, size):\n",
        "        if False:\n",
        ATTACKED,
    ),
    in_held(
        "drop-in: norms of long gradients are too small",
        "        return row_norms(self.gradients)\n",
        "        return torch.linalg.vector_norm(self.gradients, dim=1).double()\n",
        ATTACKED,
    ),
    Fault(
        "drop-in: a spent budget is granted again",
        "opacus/private_engine.py",
        "        if len(self.accountant) > 0:\n",
        "        if False:\n",
        FEATURES,
    ),
    Fault(
        "drop-in: a model that mixes examples is taken",
        "opacus/made_up_examples.py",
        "    if not same or not",
        "    if False and not",
        REFUSALS,
    ),
    Fault(
        "drop-in: an invented example stands in for an empty batch",
        "opacus/refusals.py",
        '    if arguments["rand_on_empty"] is not False:\n',
        "    if False:\n",
        REFUSALS,
    ),
    Fault(
        "drop-in: batches that are not Poisson are taken",
        "opacus/refusals.py",
        '    if arguments["poisson_sampling"] is not True:\n',
        "    if False:\n",
        REFUSALS,
    ),
    Fault(
        "drop-in: C and the factor start anew after a checkpoint",
        "opacus/method_driver.py",
        "        state.step, state.threshold, state.learning_rate = step, threshold, factor\n",
        "        state.step = step\n",
        FEATURES,
    ),
]
