"""Of the campaign, the store and probes: what is measured, paused, kept or looked at. Of rows."""

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
        'problem_of(replace(task, precision="float32"), ',
        'problem_of(replace(task, precision="float32", last_layer_nonlinearity=False), ',
        "tests/probe/test_inputs.py",
    ),
    Fault(
        "a probe takes less noise than the budget asks for",
        "probe/inputs.py",
        "    check_affordable([chosen])\n",
        "",
        "tests/probe/test_inputs.py",
    ),
    Fault(
        "an evaluation takes no maximum along columns, where a training does",
        "models/sliding_max.py",
        "            return _greater(_greater(values, -1), -2)\n",
        "            return _greater(values, -1)[..., :-1, :]\n",
        "tests/models/test_sliding_max.py",
    ),
    Fault(
        "an infinite error stands for the run that ended with it",
        "analysis/checkpoint_rules.py",
        "np.isfinite(values)).to_numpy()",
        "~np.isnan(values)).to_numpy()",
        "tests/analysis/test_points.py",
    ),
    Fault(
        "a run whose rate fell comes back from its row without its schedule",
        "study/of_row.py",
        'schedule=said.get("schedule"),',
        "schedule=None,",
        "tests/study/test_of_row.py",
    ),
    Fault(
        "a run whose weights were averaged comes back from its row without that",
        "study/of_row.py",
        'averaging=said.get("averaging"),',
        "averaging=None,",
        "tests/study/test_of_row.py",
    ),
    Fault(
        "a search trains for one epoch where a single training has ten",
        "private/choices.py",
        "epochs: float = 10",
        "epochs: float = 1",
        "tests/private/test_unsaid.py",
    ),
    Fault(
        "the history of a method that sets its rate in a step has the rate of before",
        "private/one_training.py",
        "        if training.task.method.sets_rate_first:\n",
        "        if False:\n",
        "tests/private/test_history.py",
    ),
    Fault(
        "guesses that beat one point of a search beat the search",
        "analysis/guesses.py",
        "(whole & searched & (surely",
        "(whole & (surely",
        "tests/analysis/test_guesses_at_edges.py",
    ),
    Fault(
        "runs of half the paper's length are worse than the paper",
        "analysis/cell_verdicts.py",
        'value == verdicts.UNDECIDED and is_whole(row["dataset"], row["epochs"])',
        "value == verdicts.UNDECIDED",
        "tests/reporting/test_headline.py",
    ),
    Fault(
        "a score gets the model that is returned",
        "private/scoring.py",
        "self.score(copy.deepcopy(ended.model))",
        "self.score(ended.model)",
        "tests/private/test_odd_ends.py",
    ),
    Fault(
        "a file of a GPU is damaged where there is none",
        "training/checkpoint.py",
        "map_location=place, ",
        "",
        "tests/private/test_odd_ends.py",
    ),
    Fault(
        "through Opacus a batch of one example in 49 is expected to have none",
        "opacus/private_engine.py",
        "    return int(len(examples) / len(loader))",
        "    return int(len(examples) * (1 / len(loader)))",
        "tests/opacus/test_expected_sizes.py",
    ),
]
