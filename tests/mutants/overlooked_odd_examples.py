"""Examples that are not like the others, scores that are noised, and what a training leaves in its
rows."""

from fault import Fault, G, P, T, of_kind

_ODD = "tests/private/test_odd_examples.py"
_SHARE = P + "test_noisy_share.py"
_BOOKS = "tests/private/test_search_books.py"
_SEARCH = "tests/private/test_search_private.py"
_REPORTED, _KEPT, _PROBLEMS = (f"{T}test_{name}.py" for name in ("reported", "kept", "problems"))
_NEWS, _SIGNS, _COSINE = (
    "tests/data/test_ag_news.py",
    "tests/probe/test_signs.py",
    "tests/probe/test_cosine.py",
)

OVERLOOKED_ODD_EXAMPLES = (
    of_kind(
        "company",
        Fault(
            "all examples of a batch are the one that was fetched last",
            "private/examples.py",
            'return part.to("cpu", dtype, copy=True)',
            'return part.to("cpu", dtype)',
            _ODD,
        ),
        Fault(
            "one example's type is everybody's",
            "private/examples.py",
            "inputs, targets = _as(one, first.dtype), _as(other, second.dtype)",
            "inputs, targets = _as(one, one.dtype), _as(other, other.dtype)",
            _ODD,
        ),
        Fault(
            "a number between two classes is one of them",
            "private/examples.py",
            "        if not whole.all():",
            "        if not whole.any() and len(part) > 1:",
            _ODD,
        ),
        Fault(
            "an example that is not finite reaches the loss",
            "private/examples.py",
            "if part.is_floating_point() and not part.isfinite().all():",
            "if part.is_floating_point() and part.isnan().all() and part.dim() == 0:",
            _ODD,
        ),
        Fault(
            "who is absent has zeros' part in the sums",
            "gradients/batch.py",
            "bad |= self.absent.flatten()",
            "bad |= self.absent.flatten() & bad",
            _ODD,
        ),
        Fault(
            "who is absent has zeros' loss",
            "gradients/code.py",
            "return losses if absent is None else losses.masked_fill(absent, torch.inf)",
            "return losses",
            _ODD,
        ),
        Fault(
            "who is absent is scored as zeros",
            "private/scoring.py",
            "if absent is not None and absent[0, at]:",
            "if absent is not None and absent.all():",
            _ODD,
        ),
        Fault(
            "before a search a validation example is looked at",
            "private/scoring.py",
            "(part.new_zeros(1, *part.shape[1:]) for part in self.tested.none())",
            "(part[0] for part in self.tested.batch(torch.zeros(1, 1, dtype=torch.long))[:2])",
            _ODD,
        ),
        Fault(
            "the company is hardly larger than an example",
            "gradients/independence.py",
            "before, after = 1e4 * third, -1e4 * second",
            "before, after = 10 * third, -10 * second",
            G + "test_independence.py",
        ),
    )
    + of_kind(
        "late",
        Fault(
            "a score's noise is a little too small",
            "privacy/noisy_share.py",
            "noise * self.noise_multiplier * _SENSITIVITY).float()",
            "0.97 * noise * self.noise_multiplier * _SENSITIVITY).float()",
            _SHARE,
        ),
        Fault(
            "a score is booked once its values are there",
            "privacy/noisy_share.py",
            '        self.ledger.record((SumQuery("score", self.noise_multiplier),))\n'
            "        values = values_of().double()\n",
            "        values = values_of().double()\n"
            '        self.ledger.record((SumQuery("score", self.noise_multiplier),))\n',
            f"{_SHARE} {_BOOKS}",
        ),
        Fault(
            "an error does not say how many noisy scores there were",
            "private/private_search.py",
            "noisy = 0 if scores.ledger is None else scores.ledger.step_count",
            "noisy = 0",
            _BOOKS,
        ),
        Fault(
            "the 33rd training that is drawn is the first one again",
            "private/private_search.py",
            'f"{name}/{number}")(noise, shows)',
            'f"{name}/{number % 32}")(noise, shows)',
            _SEARCH,
        ),
        Fault(
            "a vector's noise begins again after 512 blocks",
            "privacy/streams.py",
            "return [(number, slice(start, start + BLOCK)) for",
            "return [(number % 512, slice(start, start + BLOCK)) for",
            P + "test_late_and_large.py",
        ),
        Fault(
            "a ledger counts to ten thousand",
            "privacy/ledger.py",
            "self.steps[place] = (queries, count + 1)",
            "self.steps[place] = (queries, min(10_000, count + 1))",
            P + "test_ledger.py",
        ),
        Fault(
            "the time before an interruption is not charged",
            "training/loop.py",
            "        charge(training.alive)\n        started = time.perf_counter()",
            "        started = time.perf_counter()",
            _KEPT,
        ),
        Fault(
            "a run with an infinite test loss goes on",
            "training/loop.py",
            "for score in scores]).isfinite().all()",
            "for score in scores]).isnan().logical_not().all()",
            _REPORTED,
        ),
        Fault(
            "a piece is the whole batch",
            "training/loop.py",
            "            task.piece,\n",
            "",
            "tests/private/test_train_private.py",
        ),
    )
    + of_kind(
        "reported",
        Fault(
            "every study trains in float32",
            "training/problem.py",
            "training_loss(task.metric, task.loss), task.products)",
            "training_loss(task.metric, task.loss))",
            _PROBLEMS,
        ),
        Fault(
            "examples are scored several times over",
            "training/evaluate.py",
            "part = slice(start, start + self.batch)",
            "part = slice(start, start + BATCH)",
            T + "test_evaluate.py",
        ),
        Fault(
            "without privacy SGD has no momentum",
            "methods/no_dp.py",
            'return bool(self.settings.optimizer == "sgd")',
            "return False",
            "tests/study/test_every_run.py",
        ),
        Fault(
            "letters and digits are words apart",
            "data/news.py",
            're.compile("[a-z0-9]+")',
            're.compile("[a-z]+|[0-9]+")',
            f"tests/data/test_news.py {_NEWS}",
        ),
        Fault(
            "unknown words of test texts keep their place",
            "data/ag_news.py",
            'unknown_words == "skipped")',
            'unknown_words == "skipped" and part == "train")',
            _NEWS,
        ),
        Fault(
            "test images are mirrored",
            "data/mnist.py",
            "_images(test_images)",
            "_images(test_images)[..., ::-1]",
            "tests/data/test_mnist.py",
        ),
        Fault(
            "a row has the rate behind the schedule's factor",
            "training/loop.py",
            '"learning_rate": _or_none(state.learning_rate[run].item()),',
            '"learning_rate": _or_none(state.learning_rate[run].item() * rate_factor(task.schedule,'
            " state.step, task.steps)),",
            _REPORTED,
        ),
        Fault(
            "layers stand in the order of their names",
            "training/loop.py",
            "layers=dict(self.code.layer_sizes),",
            "layers=dict(sorted(self.code.layer_sizes.items())),",
            _PROBLEMS,
        ),
        Fault(
            "a network begins from other weights than the stored runs",
            "models/cnn.py",
            "nn.Linear(32 * 23 * 23, 32),",
            "nn.Linear(32 * 23 * 23, 32).apply(lambda one: nn.init.xavier_uniform_(one.weight)),",
            T + "test_first_weights.py",
        ),
        Fault(
            "seeds of weights have 31 bits",
            "training/problem.py",
            "torch.manual_seed(number)",
            "torch.manual_seed(number % 2**31)",
            T + "test_first_weights.py",
        ),
        Fault(
            "signs are those of float32",
            "probe/signs.py",
            "super().__init__(code.model, code.loss, code.precision)",
            "super().__init__(code.model, code.loss)",
            _SIGNS,
        ),
        Fault(
            "a row has torch's build",
            "training/job.py",
            'torch.__version__.partition("+")[0]',
            "torch.__version__",
            T + "test_rows.py",
        ),
        Fault(
            "Figure 1 has half of its realisations",
            "probe/cosine.py",
            "REALISATIONS = 20",
            "REALISATIONS = 10",
            _COSINE,
        ),
        Fault(
            "a probe's rate falls over the steps up to the last one that is probed",
            "probe/cosine.py",
            "study_training(task, [run], arrays, watch)",
            "study_training(replace(task, steps=last), [run], arrays, watch)",
            _COSINE,
        ),
        Fault(
            "AG News's published file is another one",
            "data/ag_news.py",
            "76a0a2d2f92b",
            "76a0a2d2f92c",
            "tests/data/test_prepare.py",
        ),
    )
)
