"""Faults of clipped losses: what nobody may see more of than is paid for."""

from fault import Fault, P, of_kind

LOSSES_TEST, METHOD = P + "test_clipped_losses.py", "tests/methods/test_hyfreedp.py"
_LOSSES, _MECHANISM, _METHOD = (
    "privacy/clipped_losses.py",
    "privacy/mechanism.py",
    "methods/hyfreedp.py",
)

LOSSES = [
    Fault(
        "the losses of all points cost as those of one",
        _LOSSES,
        "return math.sqrt(self.points) * self._bound(runs)",
        "return self._bound(runs)",
        LOSSES_TEST,
    ),
    Fault(
        "a loss is bounded from above only",
        _LOSSES,
        "whole.clamp(min=0.0).minimum(bound)",
        "whole.minimum(bound)",
        LOSSES_TEST,
    ),
    Fault(
        "a loss is not bounded from above",
        _LOSSES,
        "whole.clamp(min=0.0).minimum(bound)",
        "whole.clamp(min=0.0)",
        LOSSES_TEST,
    ),
    Fault(
        "all runs' losses are held to the first run's bound",
        _LOSSES,
        "bound = self._bound(runs)[:, None, None]",
        "bound = self._bound(slice(0, 1))[:, None, None]",
        LOSSES_TEST,
    ),
    Fault(
        "what pads a batch has a loss",
        _LOSSES,
        "counts = (present & losses[:, 0].isfinite())[:, None]",
        "counts = losses[:, 0].isfinite()[:, None]",
        LOSSES_TEST,
    ),
    Fault(
        "a loss that is no number spoils the sum",
        _LOSSES,
        "losses.double().where(losses.isfinite(), bound)",
        "losses.double()",
        LOSSES_TEST,
    ),
    Fault(
        "losses are handed out without noise",
        _MECHANISM,
        "answers = self._sanitized([query], totals, runs, step)",
        "answers = {query.key: totals[0] / self.batch_size}",
        LOSSES_TEST,
    ),
    Fault(
        "losses are handed out as often as one likes",
        _MECHANISM,
        "self._waiting.pop(members.start, None)",
        "self._waiting.get(members.start)",
        LOSSES_TEST,
    ),
    Fault(
        "losses of an earlier step are handed out later",
        _MECHANISM,
        "if waiting is None or (waiting.members, waiting.step) != (members, step):",
        "if waiting is None or waiting.members != members:",
        LOSSES_TEST,
    ),
    Fault(
        "losses at more points than were paid for",
        _MECHANISM,
        "if points.shape[:2] != (len(members), query.points):",
        "if len(points) != len(members):",
        LOSSES_TEST,
    ),
    Fault(
        "losses are not booked",
        _MECHANISM,
        "record(tuple(SumQuery(q.name, q.noise_multiplier) for q in queries))",
        "record(tuple(SumQuery(q.name, q.noise_multiplier) for q in queries"
        " if isinstance(q, GradientQuery)))",
        LOSSES_TEST,
    ),
    Fault(
        "the losses' divisor is the batch that came",
        _MECHANISM,
        "return {key: losses.to(points.dtype) for key, losses in answers.items()}",
        "return {key: (losses * self.batch_size / waiting.present.sum(1, keepdim=True))"
        ".to(points.dtype) for key, losses in answers.items()}",
        LOSSES_TEST,
    ),
    Fault(
        "the losses' noise is the same at every step",
        _MECHANISM,
        "answers = self._sanitized([query], totals, runs, step)",
        "answers = self._sanitized([query], totals, runs, 1)",
        LOSSES_TEST,
    ),
    Fault(
        "in a low precision a loss depends on its company",
        "gradients/code.py",
        "for xs, ys in self._portions(inputs, targets):\n                runs = zip",
        "for xs, ys in [(inputs, targets)]:\n                runs = zip",
        "tests/gradients/test_losses.py",
    ),
    Fault(
        "losses that rest on unsanitized gradients of another run",
        "training/loop.py",
        "self.mechanism.release_losses(runs, self.state.step, points[runs], of_each)",
        "self.mechanism.release_losses(runs, self.state.step, points[: len(points[runs])],"
        " of_each)",
        "tests/training/test_loop.py",
    ),
    Fault(
        "a loss may take what it likes of its batch",
        "gradients/independence.py",
        "_check_losses(code, flat, inputs, targets, within.outputs)",
        "pass",
        "tests/private/test_refused.py",
    ),
    Fault(
        "more losses are summed than were paid for",
        "privacy/mechanism.py",
        "if losses.shape != (*at.shape[:2], indices.shape[1]):",
        "if len(losses) != len(at):",
        "tests/privacy/test_clipped_losses.py",
    ),
    *of_kind(
        "books",
        Fault(
            "a statement names the sums of the last kind of step alone",
            "private/statement.py",
            "for queries, _ in ledger.steps for query in queries",
            "for queries, _ in ledger.steps[-1:] for query in queries",
            "tests/private/test_train_private.py",
        ),
        Fault(
            "HyFreeDP's losses take more than gamma gives them",
            _METHOD,
            "share = self.settings.every * (1 - self.settings.gradient_noise**-2)",
            "share = self.settings.every * (1 - self.settings.gradient_noise**-1)",
            METHOD,
        ),
        Fault(
            "a step counted anew is another line of the ledger each time",
            "privacy/ledger.py",
            "if known == queries:",
            "if known is queries:",
            P + "test_ledger.py",
        ),
    ),
    *of_kind(
        "reported",
        Fault(
            "HyFreeDP follows a parabola that has no least value",
            _METHOD,
            "usable = (slope > 0) & (curvature > 0)",
            "usable = slope > 0",
            METHOD,
        ),
        Fault(
            "HyFreeDP's rate is half of what the parabola says",
            _METHOD,
            "slope, curvature = (back - forth) / 2, forth + back - 2 * here",
            "slope, curvature = (back - forth) / 4, forth + back - 2 * here",
            METHOD,
        ),
        Fault(
            "HyFreeDP probes without its momentum",
            _METHOD,
            "direction = heavy_ball(state, answers[AutomaticGradient], self.momentum)",
            "direction = answers[AutomaticGradient]",
            METHOD,
        ),
    ),
]
