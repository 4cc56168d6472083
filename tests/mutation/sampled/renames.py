"""What is known of mutants, carried over to code in which only names have changed.

    python tests/mutation/sampled/renames.py HEAD    # before committing a rename

Files may have moved, as `git diff --find-renames` sees it.
Where a function differs from one of that revision in nothing but names of variables, attributes and
arguments, each replaced by one that was not there, its mutants, taken in order, are the same. That
the names still stand for the same things is for the caller to know.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import groups  # noqa: E402
import history  # noqa: E402
import mutants  # noqa: E402

_NAME = re.compile(r"\b(id|attr|arg|name)='(\w+)'")


def only_names(before: str, after: str) -> bool:
    """Whether two dumps of code are the same but for names, each replaced by a new one."""
    if _NAME.sub("", before) != _NAME.sub("", after):
        return False
    olds, news = _NAME.findall(before), _NAME.findall(after)
    changed = {(old, new) for old, new in zip(olds, news, strict=True) if old != new}
    lost, fresh = [old for old, _ in changed], [new for _, new in changed]
    once = len(set(lost)) == len(lost) and len(set(fresh)) == len(fresh)
    return once and not set(lost) & set(news) and not set(fresh) & set(olds)


def carry(old: Path, new: Path, known: dict[str, history.Row]) -> int:
    """Renames the rows of a file's functions in `known`; how many."""
    was, now = (mutants.functions(path.read_text()) for path in (old, new))
    tried = {row["content"] for row in known.values()}
    renamed = {
        name: after
        for name, code in was.items()
        if mutants.digest(code) in tried and code not in now.values()
        for after in sorted(now, key=lambda other: other != name)
        if only_names(code, now[after])
    }
    if not renamed:
        return 0
    before, after = _by_function(old, set(renamed)), _by_function(new, set(renamed.values()))
    count = 0
    for name, made in before.items():
        for operator, ones in made.items():
            twins = after[renamed[name]][operator]
            for one, twin in zip(ones, twins, strict=True):
                if one.name in known:
                    row = known.pop(one.name)
                    function = twin.function or new.stem
                    row |= {"function": function, "content": twin.content, "mutant": twin.name}
                    known[twin.name] = row
                    count += 1
    return count


def _by_function(path: Path, names: set[str]) -> dict[str, dict[str, list[mutants.Mutant]]]:
    found: dict[str, dict[str, list[mutants.Mutant]]] = defaultdict(lambda: defaultdict(list))
    for place in mutants.places(path):
        made = mutants.mutant(place)
        if made is not None and made.function in names:
            found[made.function][place.operator].append(made)
    return found


def old_paths(revision: str) -> dict[str, str]:
    """The old path of each file that moved since the revision."""
    command = ["git", "diff", "--name-status", "--find-renames=30%", "--diff-filter=R", revision]
    lines = subprocess.run(command, cwd=groups.REPO, capture_output=True, text=True, check=True)
    moved = (line.split("\t") for line in lines.stdout.splitlines())
    return {new: old for _, old, new in moved}


def main(revision: str) -> int:
    known, moved = history.read(), old_paths(revision)
    for path in groups.mutated():
        name = path.relative_to(groups.REPO).as_posix()
        name = moved.get(name, name)
        shown = subprocess.run(["git", "show", f"{revision}:{name}"], cwd=groups.REPO,
                               capture_output=True, text=True)  # fmt: skip
        if shown.returncode or shown.stdout == path.read_text():
            continue
        with tempfile.TemporaryDirectory() as folder:
            old = Path(folder) / path.name
            old.write_text(shown.stdout)
            if count := carry(old, path, known):
                print(f"{name}: {count} mutants")
    history.write(known)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
