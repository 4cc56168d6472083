"""More faults of the lower floor that no test had reached: late steps, noisy shares, choices."""

from fault import LOOP, Fault, M, P, T, of_kind

_VARIANTS = "tests/methods/test_variants.py"
_CONSTANTS = "tests/methods/test_constants.py"
_TRAIN_PRIVATE = "tests/private/test_train_private.py"

_LATE = of_kind(
    "late",
    Fault(
        "Adam's second average is taken for one of a thousand steps ever after",
        "methods/base.py",
        "(1 - beta2**state.step)",
        "(1 - beta2 ** min(state.step, 1000))",
        M,
    ),
    Fault(
        "AdamWOSM's average is taken for one of fifty steps ever after",
        "methods/adam_wosm.py",
        "(1 - beta1**state.step)",
        "(1 - beta1 ** min(state.step, 50))",
        M,
    ),
)

_RULES = [
    Fault(
        "C cannot grow beyond 100, where Online learns it",
        "methods/online.py",
        "state.threshold * (self.settings.threshold_rate * toward_direction).exp()",
        "(\n            state.threshold * (self.settings.threshold_rate * toward_direction).exp()\n"
        "        ).clamp(max=100.0)",
        M,
    ),
    Fault(
        "rho stays between a thousandth and ten, where Online learns it",
        "methods/online.py",
        "            state.learning_rate * (self.settings.learning_rate_rate * toward_gradient)"
        ".exp()\n        )\n",
        "            state.learning_rate * (self.settings.learning_rate_rate * toward_gradient)"
        ".exp()\n        ).clamp(1e-3, 10.0)\n",
        M,
    ),
    Fault(
        "C shrinks where two vectors are at right angles",
        "methods/online.py",
        "toward_direction = dot(gradient, past_direction).sign()",
        "toward_direction = 2.0 * (dot(gradient, past_direction) > 0) - 1.0",
        M,
    ),
    Fault(
        "C cannot grow beyond 100, where it follows a quantile",
        "methods/fixed_quantile.py",
        "return threshold * (-self.settings.quantile_rate * excess).exp()",
        "return (threshold * (-self.settings.quantile_rate * excess).exp()).clamp(max=100.0)",
        M,
    ),
    Fault(
        "HyFreeDP's rate moves by a factor of ten at most",
        "methods/hyfreedp.py",
        "factor = (slope / curvature).where(usable, 1.0)",
        "factor = (slope / curvature).where(usable, 1.0).clamp(0.1, 10.0)",
        "tests/methods/test_hyfreedp.py",
    ),
    Fault(
        "HyFreeDP asks each second step for losses that are paid for as at each 2.5th",
        "methods/hyfreedp.py",
        "if self.settings.every % 1 != 0:",
        "if self.settings.every < 1:",
        "tests/methods/test_hyfreedp.py",
    ),
    Fault(
        "AUTO-DoG forgets a sum that noise has brought below zero",
        "methods/auto_dog.py",
        '"gradients": gradients,',
        '"gradients": gradients.clamp(min=0),',
        "tests/methods/test_auto_dog.py",
    ),
    Fault(
        "AdamWOSM's beta1 is the default, whatever is said",
        "methods/adam_wosm.py",
        "gradient, beta1 = answers[ClippedGradient], self.settings.beta1",
        "gradient, beta1 = answers[ClippedGradient], 0.9",
        _CONSTANTS,
    ),
    Fault(
        "AdamWOSM's stabiliser is the default, whatever is said",
        "methods/adam_wosm.py",
        "(noise_std + self.settings.stabiliser)",
        "(noise_std + 1e-8)",
        _CONSTANTS,
    ),
    Fault(
        "FixedQuantile begins at the usual threshold, whatever is said",
        "methods/fixed_quantile.py",
        '"threshold": self.settings.initial_threshold',
        '"threshold": 0.1',
        _CONSTANTS,
    ),
    Fault(
        "HyFreeDP begins at the usual rate, whatever is said",
        "methods/hyfreedp.py",
        '"learning_rate": self.settings.initial_learning_rate',
        '"learning_rate": 1e-4',
        _CONSTANTS,
    ),
    Fault(
        "AUTO-WOSM's rate is the default, whatever is said",
        "methods/auto_wosm.py",
        '"learning_rate": self.settings.learning_rate',
        '"learning_rate": 1e-3',
        _CONSTANTS,
    ),
    Fault(
        "DP-Adam's rate is the default, whatever is said",
        "methods/dp_adam.py",
        '"learning_rate": self.settings.learning_rate',
        '"learning_rate": 1e-3',
        _CONSTANTS,
    ),
]

_TRAINED = [
    Fault(
        "a run is charged the time of runs that have ended, too, but not all of its own",
        "training/loop.py",
        "seconds / len(runs)",
        "seconds / len(self.outcomes)",
        LOOP,
    ).of("reported"),
    Fault(
        "one identity of several may end early",
        "privacy/mechanism.py",
        'any("\\0" in run_id',
        'all("\\0" in run_id',
        P + "test_mechanism_books.py",
    ).of("company"),
    Fault(
        "train_private: whatever precision is said, products are of float32",
        "private/one_training.py",
        "            precision=choices.precision,\n",
        "",
        _TRAIN_PRIVATE,
    ),
    Fault(
        "train_private: a whole batch goes through the model at a time",
        "private/one_training.py",
        "            piece=choices.piece,\n",
        "",
        _TRAIN_PRIVATE,
    ),
    Fault(
        "train_private: a score that is no number ends the training",
        "private/one_training.py",
        'SplitScore("given", value, 0.0)',
        'SplitScore("given", value, value)',
        _TRAIN_PRIVATE,
    ),
    Fault(
        "train_private: what goes on is evaluated in between, where nobody asked",
        "private/one_training.py",
        "choices.evaluate_every or self.last_step",
        "choices.evaluate_every or self.steps",
        _TRAIN_PRIVATE,
    ),
    Fault(
        "the average is of weights that no schedule has shortened the step to",
        "training/loop.py",
        "        if before is not None:  # a step is proportional to the learning rate\n"
        "            state.parameters = before.lerp(state.parameters, factor)\n"
        "        if task.averaging is not None and state.average is not None:\n"
        "            state.average = averaged(state.average, state.parameters, task.averaging,"
        " state.step)\n",
        "        if task.averaging is not None and state.average is not None:\n"
        "            state.average = averaged(state.average, state.parameters, task.averaging,"
        " state.step)\n"
        "        if before is not None:  # a step is proportional to the learning rate\n"
        "            state.parameters = before.lerp(state.parameters, factor)\n",
        T + "test_schedule.py",
    ),
    Fault(
        "a noisy share of unclipped examples is cut off at 0 and 1",
        "methods/fixed_quantile.py",
        "answers[UnclippedCount] + 0.5",
        "(answers[UnclippedCount] + 0.5).clamp(0, 1)",
        M,
    ),
    Fault(
        "a layer's noisy share of unclipped examples is cut off at 0 and 1",
        "methods/fixed_quantile_per_layer.py",
        "unclipped = votes + 0.5",
        "unclipped = (votes + 0.5).clamp(0, 1)",
        _VARIANTS,
    ),
    Fault(
        "the demo's network has another nonlinearity",
        "models/cnn.py",
        "padding=2),\n        nn.ReLU(),",
        "padding=2),\n        nn.LeakyReLU(),",
        "tests/models/test_layers.py",
    ),
    Fault(
        "the share of clipped examples is reported as if it had no noise",
        "methods/fixed_quantile.py",
        "else 1 - unclipped",
        "else (1 - unclipped).clamp(0, 1)",
        M,
    ).of("reported"),
]

OVERLOOKED_AGAIN_FLOOR = [*_LATE, *_RULES, *_TRAINED]
