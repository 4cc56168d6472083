"""More faults of the lower floor that no test had reached: late steps, noisy shares, two at once."""

from fault import Fault, M, T, of_kind

_VARIANTS = "tests/methods/test_variants.py"

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

_TRAINED = [
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

OVERLOOKED_AGAIN_FLOOR = [*_LATE, *_TRAINED]
