"""Mechanical mutants, a sample for as long as there is time; `history.csv` keeps what came out.

    make mutation-sample                                        # ten minutes, seed 0
    make mutation-sample MUTATION='--seconds 3600 --seed 7'     # an hour, in another order
    make mutation-sample MUTATION="--groups 'trusted|account'"  # of some groups
    make mutation-sample MUTATION=--again                       # survivors, after new tests
    make mutation-sample MUTATION='--confirm 8'                 # eight killed ones: still killed?
    make mutation-sample MUTATION=--score                       # the score alone; runs nothing

A mutant that changes nothing that anybody could see is `equivalent`: written into the history by
hand, with the reason. Each of the others is planted into a copy of the code; the tests that import
its file, or a neighbour that imports it, are run until one fails. Survivors are shown as diffs, and
end the call with status 1.
"""

import argparse
import difflib
import queue
import random
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import groups  # noqa: E402
import history  # noqa: E402
from checkout import REPO, WORKERS, copy_checkout  # noqa: E402
from forks import NOT_RUN, Forks  # noqa: E402
from mutants import Mutant, Place, digest, functions, mutant, places  # noqa: E402


class Sample:
    """Takes one place after the other until time is up, and notes what became of each.

    outcome: of those that are wanted, by the history; None: those that it does not know.
    """

    def __init__(
        self, chosen: list[Place], seconds: float, outcome: str | None, most: float
    ) -> None:
        self.left: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for place in chosen:
            self.left.put(place)
        self.deadline, self.outcome, self.most = time.monotonic() + seconds, outcome, most
        self.known, self.lock = history.read(), threading.Lock()
        self.tried: dict[str, str] = {}
        self.diffs: list[str] = []
        self.errors: list[Exception] = []
        self.seen: Counter[tuple[Path, str]] = Counter()  # how many mutants of a file a test saw
        self.sound: dict[str, bool] = {}  # whether tests that failed pass without a mutant

    def work(self) -> None:
        try:
            with copy_checkout() as checkout:
                while self._go_on():
                    try:
                        place = self.left.get_nowait()
                    except queue.Empty:
                        return
                    made = mutant(place)
                    if made is not None and self._wanted(made):
                        self._try(checkout, place, made)
        except Exception as error:
            self.errors.append(error)

    def _go_on(self) -> bool:
        left = time.monotonic() < self.deadline and len(self.tried) < self.most
        return left and not self.errors

    def _wanted(self, made: Mutant) -> bool:
        with self.lock:
            known = self.known.get(made.name, {}).get("outcome")
            if known != self.outcome or made.name in self.tried:
                return False
            self.tried[made.name] = ""
            return True

    def _try(self, checkout: Forks, place: Place, made: Mutant) -> None:
        text = place.path.read_text()
        began = time.monotonic()
        outcome = self._outcome(checkout, place.path, made)
        lines = list(difflib.unified_diff(text.splitlines(), made.text.splitlines(), n=3,
                                          lineterm="", fromfile=str(place.path.relative_to(REPO)),
                                          tofile=place.operator))  # fmt: skip
        changed = [line for line in lines[2:] if line[0] in "+-"]
        row = {
            "function": made.function or place.path.stem,
            "content": made.content,
            "mutant": made.name,
            "change": " ".join(line[0] + line[1:].strip() for line in changed)[:160],
            "outcome": outcome,
            "note": "",
        }
        with self.lock:
            self.tried[made.name] = outcome
            self.known[made.name] = row
            history.write(self.known)  # a call that is cut off keeps what it knows
            took = f"{time.monotonic() - began:3.0f} s"
            print(f"{outcome:9} {took} {row['function']}: {row['change']}", flush=True)
            if outcome == "survived":
                self.diffs.append("\n".join(lines))

    def _outcome(self, checkout: Forks, path: Path, made: Mutant) -> str:
        """What the tests say, those first that saw most of the file's other mutants."""
        target = checkout.folder / path.relative_to(REPO)
        while True:
            with self.lock:
                usable = [test for test in groups.tests_of(path) if self.sound.get(test, True)]
                tests = sorted(usable, key=lambda test: -self.seen[path, test])
            target.write_text(made.text)
            try:
                status, output = checkout.run(*tests, "--hypothesis-seed=0")
            finally:
                target.write_text(path.read_text())
            if status == NOT_RUN:
                raise RuntimeError(f"pytest did not run:\n{output[-3000:]}")
            if not status:
                return "timeout" if status is None else "survived"
            failed = set(re.findall(r"^(?:FAILED|ERROR) ([^\s:]+)", output, flags=re.M))
            if all([self._passes(checkout, test) for test in failed]):
                with self.lock:
                    self.seen.update((path, test) for test in failed)
                return "killed"

    def _passes(self, checkout: Forks, test: str) -> bool:
        """Without a mutant. What fails there too would seem to kill every mutant: left out."""
        with self.lock:
            known = self.sound.get(test)
        if known is None:
            known = checkout.run(test, "--hypothesis-seed=0").status == 0
            if not known:
                print(f"fails without a mutant, and is left out: {test}", file=sys.stderr)
            with self.lock:
                self.sound[test] = known
        return known


def report() -> None:
    """The score of the code as it is, by group, as a table."""
    rows = list(history.read().values())
    print("\n| code | mutants | killed | survived | equivalent | killed of the others, 95 % |")
    print("|---|---|---|---|---|---|")
    for group in groups.GROUPS:
        present = {
            (name or path.stem, digest(code))
            for path, of in groups.mutated().items()
            if of == group
            for name, code in functions(path.read_text()).items()
        }
        mine = [row for row in rows if (row["function"], row["content"]) in present]
        killed, survived, equivalent = history.score(mine)
        low, high = history.interval(killed, survived)
        share = (
            f"{100 * killed / max(1, killed + survived):.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
        )
        cells = (group, len(mine), killed, survived, equivalent, share if mine else "")
        print("| " + " | ".join(str(cell) for cell in cells) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", default="", help="regular expression")
    parser.add_argument("--again", action="store_true", help="those that survived")
    parser.add_argument("--confirm", type=int, metavar="N", help="N of those that were killed")
    parser.add_argument("--score", action="store_true", help="run nothing")
    options = parser.parse_args()
    if options.score:
        report()
        return 0
    files = [path for path, of in groups.mutated().items() if re.search(options.groups, of)]
    outcome = "survived" if options.again else "killed" if options.confirm else None
    if outcome is not None:
        rows = history.read().values()
        known = {row["function"] for row in rows if row["outcome"] == outcome}
        files = [path for path in files if known & {path.stem, *functions(path.read_text())}]
    chosen = [place for path in files for place in places(path)]
    random.Random(options.seed).shuffle(chosen)
    print(f"{len(chosen):,} places in {len(files)} files", flush=True)
    sample = Sample(chosen, options.seconds, outcome, options.confirm or float("inf"))
    threads = [threading.Thread(target=sample.work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for diff in sample.diffs:
        print(f"\n{diff}")
    report()
    for error in sample.errors:
        print(error, file=sys.stderr)
    return 1 if sample.diffs or sample.errors else 0


sys.exit(main())
