"""Plant every fault of `planted/`, one at a time, and see the tests catch it.

    make mutants                                 # all of them; a table of which test caught which
    make mutants MUTANTS='noise|sum'             # those whose name or file matches
    make mutants MUTANTS='privacy/mechanism'
    make mutants MUTANTS='--one-in 16'           # the first of each sixteen
    make mutants MUTANTS='--kind late --kind books'

Kinds are in `faults.py`. Each fault is planted into a copy of the code; the checkout stays as it
is.
Ends with status 1 if a fault survives, or if the tests fail on the code without any.
"""

import argparse
import queue
import re
import sys
import threading
import time

from checkout import WORKERS, Checkout
from faults import FAULTS, KINDS, Fault


def plant(checkout: Checkout, fault: Fault) -> str | None:
    """The test that caught it, or None."""
    path = checkout.folder / "src" / "oso_dp" / fault.file
    text = path.read_text()
    assert text.count(fault.old) == 1, f"{fault.name}: {fault.old!r} is not once in {fault.file}"
    path.write_text(text.replace(fault.old, fault.new))
    try:
        tested = checkout.run(fault.tests)
    finally:
        path.write_text(text)
    if tested.status == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", tested.output, flags=re.M)
    if tested.status != 1 or not found:
        raise RuntimeError(f"{fault.name}: pytest did not run:\n{tested.output[-3000:]}")
    return found[1]


def work(faults: "queue.SimpleQueue[Fault]", caught: dict[str, str | None], errors: list) -> None:
    with Checkout() as checkout:
        while not errors:
            try:
                fault = faults.get_nowait()
            except queue.Empty:
                return
            try:
                caught[fault.name] = by = plant(checkout, fault)
            except Exception as error:
                errors.append(error)
                return
            print(f"{'caught  ' if by else 'SURVIVED'} {fault.name}", flush=True)


def by_kind(chosen: list[Fault], caught: dict[str, str | None]) -> list[str]:
    """A line of the table for each kind that was planted."""
    lines = []
    for kind, hides in {**KINDS, "": "in sight of the smallest case"}.items():
        planted = [fault.name for fault in chosen if fault.kind == kind]
        seen = sum(caught[name] is not None for name in planted)
        if planted:
            lines.append(f"| {kind or 'others'} | {hides} | {len(planted)} | {seen} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="?", default="", help="regular expression")
    parser.add_argument("--one-in", type=int, default=1, metavar="N")
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="faults of this kind; may be repeated"
    )
    parser.add_argument("--sound", action="store_true", help="the tests have just passed")
    options = parser.parse_args()
    named = [fault for fault in FAULTS if re.search(options.names, f"{fault.file} {fault.name}")]
    of_kinds = [fault for fault in named if not options.kind or fault.kind in options.kind]
    chosen = of_kinds[:: options.one_in]
    began = time.monotonic()
    if not options.sound:
        with Checkout() as checkout:
            sound = checkout.run(" ".join(dict.fromkeys(fault.tests for fault in chosen)))
        if sound.status != 0:
            print(f"the tests fail on the code as it is:\n{sound.output[-3000:]}", file=sys.stderr)
            return 1
        print(f"the code as it is passes ({time.monotonic() - began:.0f} s)", flush=True)

    faults: queue.SimpleQueue[Fault] = queue.SimpleQueue()
    for fault in chosen:
        faults.put(fault)
    caught: dict[str, str | None] = {}
    errors: list[Exception] = []
    threads = [threading.Thread(target=work, args=(faults, caught, errors)) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        print(errors[0], file=sys.stderr)
        return 1

    print("\n| fault | in | caught by |\n|---|---|---|")
    for fault in chosen:
        print(f"| {fault.name} | {fault.file} | {caught[fault.name] or 'NOTHING'} |")
    print("\n| kind | what hides it | planted | caught |\n|---|---|---|---|")
    for row in by_kind(chosen, caught):
        print(row)
    survivors = [name for name, by in caught.items() if by is None]
    seconds = time.monotonic() - began
    print(f"\n{len(caught) - len(survivors)} of {len(caught)} faults caught in {seconds:.0f} s")
    return 1 if survivors else 0


sys.exit(main())
