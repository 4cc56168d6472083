"""Of the campaign, the store and probes: what is measured, paused, kept or looked at."""

from fault import Fault

_SPEED = "tests/campaign/test_speed.py"

OVERLOOKED_STUDY_ANEW = [
    Fault(
        "other data are taken to be as slow as in the smallest group that was measured",
        "campaign/speed.py",
        "            sizes[max(sizes)] / max(sizes) / self._planned[dataset]",
        "            sizes[min(sizes)] / min(sizes) / self._planned[dataset]",
        _SPEED,
    ),
    Fault(
        "the first measurement of a size stays for good",
        "campaign/speed.py",
        "{})[size] = per_step",
        "{}).setdefault(size, per_step)",
        _SPEED,
    ),
    Fault(
        "from the second pause on the earlier ones count as work",
        "campaign/control.py",
        "self._paused += ",
        "self._paused = ",
        "tests/campaign/test_clock.py",
    ),
    Fault(
        "of several prepared texts the last one's facts are kept",
        "results/facts.py",
        "new |= _facts(made)",
        "new = _facts(made)",
        "tests/results/test_facts.py",
    ),
    Fault(
        "what is probed has no nonlinearity on its logits",
        "probe/cosine.py",
        "build_model(task.model, task.last_layer_nonlinearity)",
        "build_model(task.model)",
        "tests/probe/test_inputs.py",
    ),
    Fault(
        "a probe takes less noise than the budget asks for",
        "probe/inputs.py",
        "    check_affordable([chosen])\n",
        "",
        "tests/probe/test_inputs.py",
    ),
]
