"""Faults in training a user's own model, and in the noise that it uses by default."""

from fault import Fault, in_streams

T = "tests/private/"
TRAIN, REFUSED, SAVED = T + "test_train_private.py", T + "test_refused.py", T + "test_saved.py"


def in_train(name: str, old: str, new: str, tests: str = TRAIN) -> Fault:
    return Fault(name, "private/train.py", old, new, tests)


OWN_MODELS = [
    in_streams(
        "the system's noise has three summands where its scale says four",
        "for _ in range(_SUMMED):",
        "for _ in range(_SUMMED - 1):",
    ),
    in_streams(
        "the system's noise adds one number to itself",
        "            for _ in range(_SUMMED):\n                part += _by_inversion(len(part))\n",
        "            part += _SUMMED**0.5 * _by_inversion(len(part))\n"
        "            part *= _SUMMED**0.5\n",
    ),
    in_streams(
        "the system's noise leaves an incomplete block without any",
        "for start in range(0, len(flat), BLOCK)]",
        "for start in range(0, max(1, len(flat) - BLOCK + 1), BLOCK)]",
    ),
    Fault(
        "own model: what was spent before does not count",
        "private/budget.py",
        "return epsilon_of([spent, more], delta, accountant)",
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
        "randomness=randomness,\n        precision",
        'randomness="seeded",\n        precision',
    ),
    in_train(
        "own model: the budget is for each run of another sampling rate",
        "noise_multiplier=noise_for(sampling, steps,",
        "noise_multiplier=noise_for(PoissonSampling(sampling.rate / 2), steps,",
    ),
    in_train(
        "own model: epsilon of the statement is the budget",
        "epsilon=epsilon_of([ledger], delta, accountant),",
        "epsilon=epsilon,",
    ),
    in_train(
        "own model: the first training's state is changed by the second",
        "State(**copy.deepcopy(after.state))",
        "State(**after.state)",
    ),
    Fault(
        "own model: a saved ledger need not agree with its statement",
        "private/trained.py",
        "if not statement.describes(ledger):",
        "if not ledger:",
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
