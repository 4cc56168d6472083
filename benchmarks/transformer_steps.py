"""A step of a small transformer on words: ours beside Opacus and plain SGD; and a short training.

    python benchmarks/transformer_steps.py --data FOLDER                  # steps, in turns
    python benchmarks/transformer_steps.py --data FOLDER --train 400      # and a training
    python benchmarks/transformer_steps.py --data FOLDER --output benchmarks/results/transformer.csv

FOLDER holds ag_news/train_partial.csv and test.csv. Each competitor has a process of its own; they
take turns, so that what runs beside them hits all alike. Printed are medians of the steps and peak
memory over what was held before the first step; `--output` keeps them. Ours is Online, with its two
sums, and is charged for drawing its Poisson batches, as in `python benchmarks`; the peers step on a
fixed batch.
"""

import argparse
import csv
import io
import multiprocessing
import statistics
import sys
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from competitor import ExampleLoss, Setting
from memory import held_bytes, peak_bytes
from opacus_peer import make_private
from text_transformer import Texts, fresh_transformer, load_texts
from torch import Tensor, nn

from oso_dp.accounting.accountants import compute_epsilon
from oso_dp.errors import OsoError
from oso_dp.files import atomic_write
from oso_dp.gradients import BatchGradients, GradientEngine, check_independence
from oso_dp.methods import State, find_method
from oso_dp.models.losses import correct, cross_entropy
from oso_dp.openmp import spin_briefly
from oso_dp.privacy.mechanism import Mechanism
from oso_dp.privacy.queries import Runs
from oso_dp.training.provenance import commit, device_name

DELTA = 1e-5


class Peer:
    """Plain SGD; with `mode`, by Opacus."""

    mode = ""

    def __init__(self, setting: Setting, texts: Texts) -> None:
        self.batch = (
            texts.train_words[: setting.batch_size],
            texts.train_classes[: setting.batch_size],
        )
        self.model: nn.Module = fresh_transformer()
        self.criterion: nn.Module = ExampleLoss("accuracy")
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.model.parameters(), lr=setting.learning_rate, momentum=setting.momentum
        )
        if self.mode:
            self.model, self.optimizer, self.criterion = make_private(
                self.model, self.optimizer, self.criterion, self.batch, setting, self.mode
            )

    def step(self) -> None:
        inputs, targets = self.batch
        self.optimizer.zero_grad()
        with warnings.catch_warnings():
            # The first layer's inputs need no gradient, and its hook is content without.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            self.criterion(self.model(inputs), targets).backward()
        self.optimizer.step()


class Hooks(Peer):
    mode = "hooks"


class Ghost(Peer):
    mode = "ghost"


class Ours:
    """Online for one run: batch, sums, noise, ledger, update."""

    def __init__(self, setting: Setting, texts: Texts) -> None:
        self.texts = texts
        model = fresh_transformer()
        flat = nn.utils.parameters_to_vector(model.parameters()).detach()
        self.engine = GradientEngine(model, cross_entropy)
        method_type = find_method("online")
        self.method = method_type(method_type.Options(), momentum=setting.momentum)
        point = self.method.initial_values({"learning_rate": setting.learning_rate})
        self.state = State(
            parameters=flat[None].clone(),
            learning_rate=torch.tensor([point["learning_rate"]]),
            threshold=torch.tensor([point["threshold"]]),
            quantile=torch.tensor([torch.nan]),
            noise_multiplier=setting.noise_multiplier,
            batch_size=setting.batch_size,
            layers=dict(self.engine.layer_sizes),
        )
        self.mechanism = Mechanism(
            ["transformer"], len(texts.train_words), setting.batch_size, setting.noise_multiplier
        )
        first = texts.train_words[:0], texts.train_classes[:0]
        check_independence(self.engine, flat.double(), *first)

    def step(self) -> None:
        self.state.step += 1
        queries = self.method.queries(self.state)
        answers = self.mechanism.release(slice(0, 1), self.state.step, queries, self._gradients)
        self.method.update(self.state, answers)

    def score(self) -> tuple[float, float]:
        """Mean loss and accuracy on the test texts."""
        with torch.no_grad():
            outputs = torch.cat(
                [
                    self.engine.outputs(self.state.parameters[0], part)
                    for part in self.texts.test_words.split(512)
                ]
            )
        classes = self.texts.test_classes
        return (
            float(cross_entropy(outputs, classes).mean()),
            float(correct(outputs, classes).mean()),
        )

    def _gradients(self, runs: Runs, batches: Tensor) -> BatchGradients:
        texts = self.texts
        return self.engine(
            self.state.parameters, texts.train_words[batches], texts.train_classes[batches]
        )


COMPETITORS: dict[str, type[Peer] | type[Ours]] = {
    "sgd": Peer,
    "opacus_hooks": Hooks,
    "opacus_ghost": Ghost,
    "online": Ours,
}


def work(line: Connection, name: str, setting: Setting, texts: Texts) -> None:
    """A competitor's process: for each number that comes so many steps; None ends it."""
    torch.set_num_threads(setting.threads)
    # What a step loads the first time is not its memory.
    rehearsal = COMPETITORS[name](Setting("", "", batch_size=8), texts)
    rehearsal.step()
    del rehearsal
    before = held_bytes("cpu")
    competitor = COMPETITORS[name](setting, texts)
    competitor.step()
    line.send("ready")
    while (count := line.recv()) is not None:
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            competitor.step()
            seconds.append(time.perf_counter() - began)
        line.send(seconds)
    line.send(peak_bytes("cpu") - before)


def measure(setting: Setting, texts: Texts, turns: int) -> list[dict[str, Any]]:
    """A row for each: median and quartiles of its steps' seconds, peak memory, and where."""
    spin_briefly()  # the processes inherit it
    context = multiprocessing.get_context("spawn")
    lines, processes = {}, []
    for name in COMPETITORS:
        lines[name], there = context.Pipe()
        processes.append(context.Process(target=work, args=(there, name, setting, texts)))
        processes[-1].start()
        there.close()  # else the reader never sees the end of file
        try:
            lines[name].recv()
        except EOFError:
            raise OsoError(f"{name}: the process failed") from None
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    for turn in range(turns):
        for name in lines if turn % 2 == 0 else reversed(lines):  # alternate the order
            lines[name].send(1)
            seconds[name] += lines[name].recv()
    rows = []
    plain = statistics.median(seconds["sgd"])
    for name, line in lines.items():
        line.send(None)
        low, middle, high = statistics.quantiles(seconds[name], n=4, method="inclusive")
        rows.append(
            {
                "competitor": name,
                "seconds_per_step": round(middle, 4),
                "lower_quartile": round(low, 4),
                "upper_quartile": round(high, 4),
                "times_sgd": round(middle / plain, 2),
                "peak_mib": round(line.recv() / 2**20),
                "steps": turns,
                "batch_size": setting.batch_size,
                "threads": setting.threads,
                "device": device_name("cpu"),
                "torch_version": torch.__version__.partition("+")[0],
                "commit": commit() or "",
            }
        )
    for process in processes:
        process.join()
    return rows


def shown(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as a table to print."""
    lines = ["| competitor | median s | quartiles | of sgd | peak MiB |", "|---|---|---|---|---|"]
    return lines + [
        f"| {row['competitor']} | {row['seconds_per_step']:.3f} "
        f"| {row['lower_quartile']:.3f} to {row['upper_quartile']:.3f} | {row['times_sgd']:.2f} "
        f"| {row['peak_mib']} |"
        for row in rows
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def train(setting: Setting, texts: Texts, steps: int) -> None:
    """So many steps of Online, with what the test texts say of them."""
    ours = Ours(setting, texts)
    for step in range(steps + 1):
        if step:
            ours.step()
        if step % 50 == 0 or step == steps:
            loss, accuracy = ours.score()
            print(
                f"step {step}: test loss {loss:.4f}, accuracy {100 * accuracy:.2f} %, "
                f"C {ours.state.threshold.item():.3g}, rho {ours.state.learning_rate.item():.3g}",
                flush=True,
            )
    epsilon = compute_epsilon(ours.mechanism.ledgers, DELTA)
    print(f"epsilon {epsilon:.2f} at delta {DELTA:g}, from the ledger of {steps} steps")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--turns", type=int, default=15, help="steps of each; 0: none")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--train", type=int, default=0, metavar="STEPS")
    parser.add_argument("--learning-rate", type=float, default=1.0)
    parser.add_argument("--noise-multiplier", type=float, default=0.8)
    parser.add_argument("--output", type=Path, metavar="CSV", help="keep the table's rows")
    options: Any = parser.parse_args(arguments)
    setting = Setting(
        competitor="",
        model="",
        threads=options.threads,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        noise_multiplier=options.noise_multiplier,
    )
    try:
        texts = load_texts(options.data)
        if options.turns:
            rows = measure(setting, texts, options.turns)
            print(*shown(rows), sep="\n", flush=True)
            if options.output:
                write(options.output, rows)
        if options.train:
            torch.set_num_threads(options.threads)
            train(setting, texts, options.train)
    except OsoError as error:
        print(f"transformer: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
