"""Of the drop-in for Opacus: rows, buffers, seeds, rollbacks, and what is tried of a model."""

from fault import Fault

_T = "tests/opacus/"
_ROWS, _BUFFER = _T + "test_rows_of_a_step.py", _T + "test_one_buffer.py"
_ATTACKED, _REFUSALS = _T + "test_opacus_attacked.py", _T + "test_opacus_refusals.py"
_LAYERS, _ROLLED = _T + "test_layers_of_each_mode.py", _T + "test_rolled_back.py"
_DEALT, _FEATURES = _T + "test_dealt_out.py", _T + "test_features.py"


def _in_optimizer(name: str, old: str, new: str, tests: str) -> Fault:
    return Fault(name, "opacus/sanitizing_optimizer.py", old, new, tests)


def _in_batches(name: str, old: str, new: str, tests: str = _ROWS) -> Fault:
    return Fault(name, "opacus/poisson_batches.py", old, new, tests)


def _in_hooks(name: str, old: str, new: str, tests: str = _LAYERS) -> Fault:
    return Fault(name, "opacus/model_hooks.py", old, new, tests)


def _in_refusals(name: str, old: str, new: str, tests: str = _BUFFER) -> Fault:
    return Fault(name, "opacus/refusals.py", old, new, tests)


def _in_tried(name: str, old: str, new: str, tests: str) -> Fault:
    return Fault(name, "opacus/made_up_examples.py", old, new, tests)


OVERLOOKED_DROP_IN = [
    _in_optimizer(
        "drop-in: an example may have two rows",
        "self.batches.begun and rows > self.batches.most:",
        "self.batches.begun and rows > 2 * self.batches.most:",
        _ROWS,
    ),
    _in_optimizer(
        "drop-in: of a batch in pieces the last piece's rows are counted",
        "rows = self._rows + gradients.size",
        "rows = gradients.size",
        _ROWS,
    ),
    _in_optimizer(
        "drop-in: rows of every step are counted together",
        "totals, self._totals, self._rows = self._totals, None, 0",
        "totals, self._totals = self._totals, None",
        _ROWS,
    ),
    _in_optimizer(
        "drop-in: rows of a batch that was left count in the next one",
        "        self._totals, self._rows = None, 0\n",
        "        self._totals = None\n",
        _ROWS,
    ),
    _in_optimizer(
        "drop-in: rows from before a state was loaded count in the next batch",
        "        self._rows = 0\n",
        "",
        _ROWS,
    ),
    _in_batches(
        "drop-in: the largest batch is that of every example",
        "self.most = max(self.most, len(batch))",
        "self.most = 10**9",
    ),
    _in_batches(
        "drop-in: the largest batch is the last one",
        "self.most = max(self.most, len(batch))",
        "self.most = len(batch)",
    ),
    _in_batches(
        "drop-in: of one process no batch is the largest",
        "yield self.noted(self.drawn(self.num_samples).nonzero().flatten().tolist())",
        "yield self.drawn(self.num_samples).nonzero().flatten().tolist()",
    ),
    _in_batches(
        "drop-in: of several workers no batch is the largest",
        "yield self.noted(own[self.drawn(len(own))].tolist())",
        "yield own[self.drawn(len(own))].tolist()",
    ),
    Fault(
        "drop-in: no data set is looked at for its buffer",
        "opacus/private_engine.py",
        "        check_examples(data_loader.dataset)\n",
        "",
        _BUFFER,
    ),
    _in_refusals(
        "drop-in: a buffer is known by what torch wrote alone",
        "return any(_bytes(array) != value for past in kept for array, value, _ in past)",
        "return False",
    ),
    _in_refusals(
        "drop-in: a buffer is known by its values alone",
        "_address(array) == _address(before) and _writes(array) > writes:",
        "False:",
    ),
    _in_refusals(
        "drop-in: examples that share a constant are refused",
        "_address(array) == _address(before) and _writes(array) > writes:",
        "_address(array) == _address(before):",
    ),
    _in_refusals(
        "drop-in: rows that are filled once are refused",
        "_address(array) == _address(before) and _writes(array) > writes:",
        "_writes(array) > writes:",
    ),
    _in_refusals(
        "drop-in: two buffers in turn are not seen", "LOOKED_AT = 3  # ex", "LOOKED_AT = 2  # ex"
    ),
    _in_refusals(
        "drop-in: arrays may be one buffer",
        "return [] if example.dtype.hasobject else [example]",
        "return []",
    ),
    _in_refusals(
        "drop-in: dictionaries may hold one buffer",
        "        example = list(example.values())\n",
        "        return []\n",
    ),
    _in_refusals(
        "drop-in: an exception of the data set's own is told",
        "        except Exception:  # of",
        "        except OsoError:  # of",
    ),
    _in_refusals(
        "drop-in: looking at examples takes the script's random numbers",
        "    with torch.random.fork_rng(devices=[]):\n        try:",
        "    if True:\n        try:",
    ),
    Fault(
        "drop-in: a script's seed gives noise and batches",
        "opacus/sanitize.py",
        "manual_seed(secrets.randbits(63))",
        "manual_seed(int(torch.randint(0, 2**63 - 1, ())))",
        _ATTACKED,
    ),
    Fault(
        "drop-in: seeds of noise and batches are short",
        "opacus/sanitize.py",
        "secrets.randbits(63)",
        "secrets.randbits(16)",
        _ATTACKED,
    ),
    _in_batches(
        "drop-in: the generator that was given draws no batches",
        'past.generator or seeded_generator(torch.device("cpu"))',
        'seeded_generator(torch.device("cpu"))',
        _ATTACKED,
    ),
    _in_optimizer(
        "drop-in: an earlier state takes steps out of the ledger",
        "if self.ledger.step_count > ledger.step_count:",
        "if False:",
        _ROLLED,
    ),
    _in_optimizer(
        "drop-in: a state may lack the last step",
        "if self.ledger.step_count > ledger.step_count:",
        "if self.ledger.step_count > ledger.step_count + 1:",
        _ROLLED,
    ),
    _in_optimizer(
        "drop-in: the same state is not taken again",
        "if self.ledger.step_count > ledger.step_count:",
        "if self.ledger.step_count >= ledger.step_count > 0:",
        _ROLLED,
    ),
    _in_hooks(
        "drop-in: nobody stands in for nobody",
        "return _stand_in((args, kwargs), dim) if self.stands_in else None",
        "return None",
    ),
    _in_hooks(
        "drop-in: who stands in for nobody is an example",
        "self.was_called, self.empty = True, self.stands_in",
        "self.was_called, self.empty = True, False",
    ),
    _in_hooks(
        "drop-in: outputs of who stands in for nobody are handed out",
        "        if not self.stands_in:\n",
        "        if True:\n",
    ),
    _in_hooks(
        "drop-in: an embedding's factors have the batch first in any case",
        "elif type(module) in self.ruled and batch_first and _has_factors(module):",
        "elif type(module) in self.ruled and _has_factors(module):",
    ),
    _in_tried(
        "drop-in: of a model that draws only the first example is tried",
        "for place in (0, EXAMPLES - 1):",
        "for place in (0,):",
        _ATTACKED,
    ),
    _in_tried(
        "drop-in: of a model that draws only the last example is tried",
        "for place in (0, EXAMPLES - 1):",
        "for place in (EXAMPLES - 1,):",
        _ATTACKED,
    ),
    _in_tried(
        "drop-in: with some kinds of dropout no gradient is tried",
        "if isinstance(layer, _DropoutNd):",
        "if isinstance(layer, nn.Dropout2d):",
        _REFUSALS,
    ),
    _in_tried(
        "drop-in: norms are not tried",
        "if not same or not torch.allclose(norms, lengths, "
        "rtol=TOLERANCE, atol=TOLERANCE * scale):",
        "if not same:",
        _REFUSALS,
    ),
    Fault(
        "drop-in: workers may have a threshold each",
        "opacus/method_driver.py",
        "for value in (self.state.threshold, self.state.learning_rate):",
        "for value in (self.state.learning_rate,):",
        _DEALT,
    ),
    _in_optimizer(
        "drop-in: workers may have a threshold and a factor each",
        "                self.driver.follow_first_worker()\n",
        "                pass\n",
        _DEALT,
    ),
    Fault(
        "drop-in: a checkpoint forgets how many steps there were",
        "opacus/method_driver.py",
        '"step": state.step,',
        '"step": 0,',
        _FEATURES,
    ),
    Fault(
        "drop-in: a checkpoint that is refused has changed the model",
        "opacus/private_engine.py",
        "            module.load_state_dict(before[0])\n",
        "",
        "tests/opacus/test_rolled_back.py",
    ),
    Fault(
        "drop-in: a checkpoint that is refused has changed the accountant",
        "opacus/private_engine.py",
        "            self.accountant.load_state_dict(before[1])\n",
        "",
        "tests/opacus/test_rolled_back.py",
    ),
]
