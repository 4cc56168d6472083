"""Faults in training a user's own model, and in the noise that it uses by default."""

from fault import Fault, in_streams

T = "tests/private/"
EARLY = T + "test_ended_early.py"
NOISY = "tests/privacy/test_noisy_share.py"
BOOKS, SAID = T + "test_search_books.py", T + "test_search_said.py"
TRAIN, REFUSED, SAVED = T + "test_train_private.py", T + "test_refused.py", T + "test_saved.py"


def in_train(name: str, old: str, new: str, tests: str = TRAIN) -> Fault:
    return Fault(name, "private/one_training.py", old, new, tests)


def in_search(name: str, old: str, new: str, tests: str = T + "test_search_private.py") -> Fault:
    return Fault(name, "private/private_search.py", old, new, tests)


def in_paid(name: str, old: str, new: str) -> Fault:
    return Fault(name, "private/paid.py", old, new, BOOKS)


OWN_MODELS = [
    in_streams(
        "the system's noise has three summands where its scale says four",
        "for _ in range(_SUMMED):",
        "for _ in range(_SUMMED - 1):",
    ),
    in_streams(
        "the system's noise adds one number to itself",
        "        for _ in range(_SUMMED):\n            out += _by_inversion(len(out))\n",
        "        out += _SUMMED**0.5 * _by_inversion(len(out))\n        out *= _SUMMED**0.5\n",
    ),
    Fault(
        "own model: what was spent before does not count",
        "private/budget.py",
        "return epsilon_of([*spent, more], delta, accountant)",
        "return epsilon_of([more], delta, accountant)",
        TRAIN,
    ),
    Fault(
        "own model: the further steps' noise is just below what keeps the budget",
        "private/budget.py",
        "    return math.exp(high)\n",
        "    return math.exp(low) * 0.99\n",
        TRAIN,
    ),
    in_train(
        "own model: further steps are taken with the earlier noise",
        "    state.noise_multiplier = recipe.noise_multiplier\n",
        "",
    ),
    Fault(
        "own model: going on, the ledger begins anew",
        "training/loop.py",
        "        self.mechanism.resume(ledgers, state.step)\n        self.state = state\n",
        "        self.state = state\n",
        TRAIN,
    ),
    in_train(
        "own model: its noise has a seed unless told otherwise",
        "randomness=choices.randomness,\n            precision",
        'randomness="seeded",\n            precision',
    ),
    in_train(
        "own model: the budget is for each run of another sampling rate",
        "        self.sampling = PoissonSampling(self.batch_size / n)",
        "        self.sampling = PoissonSampling(self.batch_size / n / 2)",
    ),
    in_train(
        "own model: epsilon of the statement is the budget",
        "epsilon=paid.epsilon(delta, accountant),",
        "epsilon=budget.epsilon,",
    ),
    in_search(
        "search: each training gets the noise of one",
        "        steps *= candidates\n",
        "",
    ),
    in_search(
        "search: the other trainings are not paid for",
        "            (*others, *lost),\n",
        "            lost,\n",
    ),
    in_search(
        "search: a training that was broken off is not paid for",
        "lost = (whole,) if interrupted else ()",
        "lost = ()",
    ),
    in_search(
        "search: random stopping is calibrated for one step less",
        "search = Search(sampling, steps, mean, RANDOM_STOPPING",
        "search = Search(sampling, max(1, steps - 1), mean, RANDOM_STOPPING",
    ),
    in_search(
        "search: random stopping is calibrated for another distribution",
        "RANDOM_STOPPING, SHAPES[shape])\n    return",
        "RANDOM_STOPPING, 0.5 + SHAPES[shape] / 2)\n    return",
    ),
    in_search(
        "search: random stopping is calibrated for nearly the mean that is drawn",
        "search = Search(sampling, steps, mean, RANDOM_STOPPING",
        "search = Search(sampling, steps, max(2, mean - 1), RANDOM_STOPPING",
    ),
    in_search(
        "search: random stopping is calibrated for another mean than is drawn",
        "search = Search(sampling, steps, mean, RANDOM_STOPPING, SHAPES[shape])",
        "search = Search(sampling, steps, 2, RANDOM_STOPPING, SHAPES[shape])",
    ),
    in_search(
        "search: random stopping trains each candidate once, and no other number",
        "    count = number_of_runs(mean, shape, words)\n",
        "    number_of_runs(mean, shape, words)\n    count = len(candidates)\n",
    ),
    in_search(
        "search: the trainings of a seed share one stream",
        'f"{name}/{number}")(noise, shows)',
        "name)(noise, shows)",
    ),
    in_search(
        "search: the best's name is its place among the trainings",
        "        ended = replace(ended, run_id=name)  #",
        "        #",
    ),
    in_search(
        "search: more or fewer trainings are drawn than the price's distribution has",
        "_drawn(candidates, mean, SHAPES[law], randomness, name)",
        "_drawn(candidates, mean, 1.0, randomness, name)",
        BOOKS,
    ),
    in_search(
        "search: what a search draws follows from its name",
        "randomness = source(choices.randomness)",
        'randomness = source("seeded")',
        BOOKS,
    ),
    in_search(
        "search: candidates take turns instead of being drawn",
        "for index in below(len(candidates), count, words)",
        "for index in (at % len(candidates) for at in range(count))",
        BOOKS,
    ),
    in_search(
        "search: random stopping costs what the best alone would at most",
        "at_most = Stopping(mean, law, whole)",
        "at_most = Stopping(mean, law, ended.ledger)",
        BOOKS,
    ),
    in_train(
        "search: Ctrl-C in a training's last step is forgotten",
        "return status, interrupts.came is not None",
        "return status, False",
        BOOKS,
    ),
    in_paid(
        "search: a saved best may have come from more steps than a candidate has",
        "        and ledger.step_count <= steps\n",
        "",
    ),
    in_paid(
        "search: a saved best may have come from larger batches than a candidate has",
        "        and ledger.sampling == most.sampling\n",
        "",
    ),
    in_paid(
        "search: saved scores may claim to be of a sample of the examples",
        "scores.sampling.rate != 1:",
        "scores.sampling.rate > 1:",
    ),
    Fault(
        "search: going on, the validation examples' cost is forgotten",
        "private/train.py",
        "paid = replace(spent, ledger=ended.ledger, not_made=ended.not_made)",
        "paid = Paid(ended.ledger, spent.others, not_made=ended.not_made)",
        SAID,
    ),
    in_train(
        "own model: a training that ended early costs the steps that it made",
        "missing = steps_not_made(ledger, self.last_step - ledger.step_count, noise_multiplier)",
        "missing = None",
        EARLY,
    ),
    Fault(
        "own model: steps that were not made are left out of epsilon",
        "private/paid.py",
        "return epsilon_of([*self.ledgers(), *counted], delta, accountant)",
        "return epsilon_of(self.ledgers(), delta, accountant)",
        EARLY,
    ),
    Fault(
        "own model: a saved statement need not say how many steps were not made",
        "private/statement.py",
        "            and self.not_made == paid.uncalled\n",
        "",
        EARLY,
    ),
    in_search(
        "search: what was never begun costs nothing where somebody stopped it",
        "never = (len(candidates) - len(runs) - len(lost)) * first.steps",
        "never = 0",
        EARLY,
    ),
    in_search(
        "search: a training that diverged costs the steps that it made",
        'if ended.not_made is None or ended.status != "diverged":',
        "if True:",
        EARLY,
    ),
    in_search(
        "search: the rest of a training that somebody stopped costs nothing",
        'run[1].status == "interrupted"]',
        "False]",
        EARLY,
    ),
    in_search(
        "search: a candidate without a score costs the validation examples nothing",
        "scores=_of_all(scores, len(candidates)),",
        "scores=scores.ledger,",
        EARLY,
    ),
    Fault(
        "search: the statement says the training's epsilon of the validation examples",
        "private/statement.py",
        "noisy scores are used: ({epsilon_text(self.validation_epsilon)}",
        "noisy scores are used: ({epsilon_text(self.epsilon)}",
        SAID,
    ),
    Fault(
        "search: a saved statement may say another epsilon of the validation examples",
        "private/statement.py",
        "self.validation_epsilon, paid.validation_epsilon(self.delta, self.accountant)",
        "None, None",
        SAID,
    ),
    Fault(
        "search: a score leaves with digits that show its noise",
        "privacy/noisy_share.py",
        "_SENSITIVITY).float()",
        "_SENSITIVITY)",
        NOISY,
    ),
    Fault(
        "search: a number of trainings one too small",
        "accounting/stopping.py",
        "        runs, ratio = 1, _binomial_ratio(gamma, shape)\n",
        "        runs, ratio = 0, _binomial_ratio(gamma, shape)\n",
        "tests/accounting/test_stopping.py",
    ),
    Fault(
        "search: a score's noise is halved twice",
        "privacy/noisy_share.py",
        "noise * self.noise_multiplier * _SENSITIVITY",
        "noise * self.noise_multiplier * _SENSITIVITY**2",
        NOISY,
    ),
    Fault(
        "search: a score is not held to its range",
        "privacy/noisy_share.py",
        ".nan_to_num(nan=0.0).clamp(0, 1)",
        ".nan_to_num(nan=0.0)",
        NOISY,
    ),
    Fault(
        "search: only the first score is in the ledger",
        "privacy/noisy_share.py",
        "        self.ledger.record(",
        "        self.ledger.steps or self.ledger.record(",
        NOISY,
    ),
    Fault(
        "search: a statement leaves the scores' cost out",
        "private/paid.py",
        "            return epsilon_of([self.scores], delta, accountant)",
        "            return 0.0",
        T + "test_search_private.py",
    ),
    in_train(
        "own model: the first training's state is changed by the second",
        "on_device(copy.deepcopy(after.state), torch",
        "on_device(after.state, torch",
    ),
    Fault(
        "own model: a saved ledger need not agree with its statement",
        "private/trained.py",
        "if not agree:",
        "if not paid:",
        SAVED,
    ),
    Fault(
        "own model: a loss that averages passes",
        "training/own_model.py",
        'if reduction != "none":',
        'if reduction == "sum":',
        REFUSED,
    ),
    Fault(
        "own model: frozen layers are trained",
        "training/own_model.py",
        "                if not parameter.requires_grad:\n",
        "                if False and not parameter.requires_grad:\n",
        TRAIN,
    ),
    Fault(
        "own model: a data set's examples come in another order than drawn",
        "private/examples.py",
        "zip(*(known[index] for index in indices), strict=True)",
        "zip(*(known[index] for index in sorted(indices)), strict=True)",
        TRAIN,
    ),
]
