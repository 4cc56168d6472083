"""Every option of every command: by its kind, and what cannot be meant by it."""

import os
import shlex
import shutil
import signal
import socket
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.models import ArgumentInfo

from oso_dp.cli.commands import app
from oso_dp.option_types import MAX_AT_ONCE, path

from .conftest import COHORT, content, refused

CALIBRATE = "calibrate --epsilon 3 --examples 6000"
EPSILON = "epsilon --noise-multiplier 1 --examples 6000"
STUDY = "calibrate --config study.yaml"
STOPPED = "--search-accounting random-stopping"
SCALED = "--search-accounting linear-scaling --runs 9"
TRAIN = "train --plan plan.json --data none.npz --output new"
CASES = [
    (f"{CALIBRATE} --query-noise-ratio 3", "--query-noise-ratio: 3; needs --show-noise-split; set"),
    (f"{CALIBRATE} --stopping-distribution geometric", "--stopping-distribution: geometric; needs"),
    (f"{STUDY} --stopping-distribution poisson", "--stopping-distribution: needs --search-account"),
    (f"{STUDY} --epsilon 3", "--epsilon: set by --config study.yaml; leave it out"),
    ("plan --config study.yaml --search-noise-csv p.csv", "--search-noise-csv: needs --output"),
    ("data ag_news --words 0 --output x.npz", "words: 0; must be one of 15, 25 for ag_news"),
    ("data ag_news --oov-words '' --output x.npz", "oov_words: ''; must be one of zeros, skipped "),
    ("data glyphs --words 15 --output x.npz", "'glyphs': words, oov_words and vocabulary are for "),
    ("calibrate --examples 6000", "--epsilon: missing"),
    ("plan", "--config"),
    ("account", "results/runs.parquet: no such results"),
    ("collect . --store new", ".: not a shard but a folder of 2; name each, as part"),
    ("account part --results store", "--results: store; differs from the argument part; set only"),
    ("epsilon --runs abc", "--runs': abc: must be an integer"),
    ("calibrate --search-accounting random", "--search-accounting: random; must be one of composi"),
    ("calibrate --epsilon 0 --examples 6000", "epsilon: 0; must be > 0 and finite"),
    ("calibrate --epsilon inf --examples 6000", "epsilon: inf; must be > 0 and finite"),
    (f"{CALIBRATE} --delta 1", "delta: 1; must be > 0 and < 1"),
    (f"{CALIBRATE} --batch-size 6001", "--batch-size: 6001; must be 1 to 6000, the number of"),
    (f"{CALIBRATE} --epochs 0", "--epochs: 0; must be > 0 and <= 1e6"),
    (f"{CALIBRATE} --runs 0", "runs: 0; must be >= 1 and <= 1e+09"),
    (f"{CALIBRATE} --examples 0", "--examples: 0; must be >= 1"),
    (f"{EPSILON} --noise-multiplier 0", "noise_multiplier: 0; must be >= 0.05 and <= 10000"),
    (f"{EPSILON} --accountant magic", "--accountant: magic; must be one of rdp, pld"),
    (
        f"{EPSILON} --show-noise-split --query-noise-ratio inf",
        "--query-noise-ratio: inf; must be finite",
    ),
    (f"{CALIBRATE} {STOPPED}", "runs: 1; must be > 1 (the mean) for search_accounting"),
    (
        f"{CALIBRATE} {STOPPED} --runs 9 --stopping-distribution -1",
        "stopping_eta: -1; must be >= 0",
    ),
    (
        f"{CALIBRATE} {STOPPED} --runs 9 --accountant pld",
        "accountant: 'pld'; must be 'rdp' for random s",
    ),
    (f"{TRAIN} --cohort nobody", "cohort: 'nobody'; not in the plan"),
    (f"{TRAIN} --cohort {COHORT}", "none.npz"),
    ("account nothing", "nothing/runs.parquet: no such results"),
    ("account part --plan study.yaml", "study.yaml: not a plan"),
    ("collect nothing --store store", "nothing/runs.parquet: no such results"),
    ("summary --results nothing", "nothing: no such results folder"),
    ("report --results part --output new --plan study.yaml", "study.yaml: "),
    ("plan --nonsense", "No such option"),
    ("calibrate --epsilon 1e-09 --examples 6000", "epsilon: 1e-09; no noise multiplier from 0.05 "),
    (f"{CALIBRATE} --noise-multiplier 1", "No such option: --noise-multiplier"),
    ("data mnist --output x.npz --data-dir nowhere", "nowhere"),
    (f"{CALIBRATE} --trial-fractions 0.1,0.2", "--trial-fractions: 0.1,0.2; needs --search-accoun"),
    (
        f"{CALIBRATE} {SCALED} --trial-fractions 0.1",
        "--trial-fractions: 0.1; must be two numbers o",
    ),
    (
        f"{CALIBRATE} {SCALED} --trial-fractions 0.1,x",
        "--trial-fractions: 0.1,x; must be numbers, su",
    ),
    (
        f"{CALIBRATE} {SCALED} --stopping-distribution poisson",
        "--stopping-distribution: poisson; needs --sea",
    ),
]


@pytest.mark.parametrize("group", [(), ("diagnose",), ("pate",)])
def test_options_absent_command_listed(group, oso) -> None:
    status, listed, error = oso(*group)
    assert (status, error) == (0, "")
    usage = listed.splitlines()[0]
    assert usage.endswith(" ".join(["oso", *group, "[OPTIONS] COMMAND [ARGS]..."]))
    assert "\nCommands:\n" in listed


@pytest.mark.parametrize(("command", "said"), CASES)
def test_options_wrong_value_rejected(command, said, place, oso) -> None:
    before = content(place)
    refused(oso(*shlex.split(command)), said)
    assert content(place) == before


scheduler = import_module("oso_dp.scheduler.__main__")


AT_ONCE = {"threads", "workers", "processes"}


def leaf(kind: Any) -> Any:
    """What one value of an option is: int, of `list[int] | None`."""
    while get_args(kind):
        kind = next(part for part in get_args(kind) if part is not type(None))
    return kind


def options() -> list[tuple[str, str, Any]]:
    """Command, option as it is given, and type; an argument has no name."""
    found = []
    for command in app.registered_commands:
        for name, hint in command.callback.__annotations__.items():
            kind, *infos = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
            for info in infos:
                stated = [info.default, *(info.param_decls or ())]  # where typer finds the name
                names = [one for one in stated if isinstance(one, str) and one.startswith("--")]
                named = next(iter(names), f"--{name.replace('_', '-')}")
                given = "" if isinstance(info, ArgumentInfo) else named
                found.append((command.callback.__name__, given, leaf(kind)))
    return found


NUMBERS = [(c, o, k) for c, o, k in options() if k in (int, float)]
PATHS = [(c, o) for c, o, k in options() if k is Path]


@pytest.mark.parametrize("text", ["1_000", "١", "1" * 400, "1" * 5000, "", "0x10", "1e999"])
@pytest.mark.parametrize(("command", "option", "kind"), NUMBERS)
def test_options_odd_numbers_rejected(command, option, kind, text, oso) -> None:
    """A float of 400 digits is infinite; the command rejects it with a message of its own."""
    infinite = kind is float and text in ("1" * 400, "1" * 5000, "1e999")
    refused(
        oso(command, *["glyphs"] * (command == "data"), option, text), *[option] * (not infinite)
    )


@pytest.mark.parametrize(("command", "option"), PATHS)
def test_options_empty_path_rejected(command, option, place, oso) -> None:
    before = content(place)
    for empty in ("", " "):
        first = ["glyphs"] * (command == "data")
        given = [f"{option}={empty}"] if option else [empty]
        refused(oso(command, *first, *given), f"{empty!r}: must name a file or folder")
    assert content(place) == before


@pytest.mark.parametrize(
    ("command", "option"), [(c, o) for c, o, _ in NUMBERS if o.lstrip("-") in AT_ONCE]
)
@pytest.mark.parametrize("number", [MAX_AT_ONCE + 1, 10**6, 10**7])
def test_options_excessive_parallelism_rejected(command, option, number, oso) -> None:
    refused(oso(command, option, number), option, f"must be an integer >= 1 and <= {MAX_AT_ONCE}")


def campaign_options(kind: object) -> list[str]:
    actions = scheduler.make_parser()._actions
    return [action.option_strings[0].lstrip("-") for action in actions if action.type is kind]


@pytest.mark.parametrize("name", campaign_options(path))
def test_scheduler_empty_path_rejected(name, capsys) -> None:
    assert scheduler.main(["--minutes", "1", f"--{name}", ""]) == 2
    assert f"argument --{name}: '': must name a file or folder" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1_000", "١", "1" * 400, "1" * 5000, "nan", "1e999", "0", "-0"])
@pytest.mark.parametrize("name", ["minutes", "threads", "parallel-runs"])
def test_scheduler_odd_numbers_rejected(name, text, capsys) -> None:
    assert scheduler.main([f"--{name}={text}", "--minutes", "1", "--results", "x"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"oso: error: argument --{name}: {text[:80]}")
    assert error.count("\n") == 1


# A valid call of each command that reads a file, with what each path option names.
PLANNED = {"--plan": "plan.json", "--data": "glyphs.npz"}
CALLS: dict[str, tuple[list[str], dict[str, str]]] = {
    "account": ([], {"": "store", "--results": "store", "--plan": "plan.json", "--output": "x"}),
    "calibrate": ([], {"--config": "study.yaml"}),
    "collect": ([], {"": "part", "--store": "new", "--plan": "plan.json", "--data": "glyphs.npz"}),
    "cosine": (["--cohort", COHORT], {**PLANNED, "--output": "x.csv"}),
    "signs": (["--cohort", COHORT], {**PLANNED, "--output": "x.csv"}),
    "train": (["--cohort", COHORT], {**PLANNED, "--output": "out", "--store": "store"}),
    "data": (["glyphs"], {"--output": "x.npz", "--data-dir": "."}),
    "plan": ([], {"--config": "study.yaml", "--output": "p.json", "--search-noise-csv": "p.csv"}),
    "publish": ([], {"": "report", "--output": "other"}),
    "report": ([], {"": "store", "--results": "store", "--output": "o", "--plan": "plan.json"}),
    "summary": ([], {"": "store", "--results": "store"}),
    "verify": ([], {"": "store", "--results": "store", "--data": ".", "--data-dir": "."}),
    "audit": ([], {"--output": "x.csv"}),
}
UNREAD = {("summary", "--report"), ("data", "--data-dir"), ("verify", "--data-dir")}
SPECIAL = ("pipe", "device", "socket", "folder")


@pytest.fixture(params=SPECIAL)
def special(request, place) -> str:
    """The name of what is no regular file; to open it may never end, so an alarm is set."""
    held = socket.socket(socket.AF_UNIX)
    if request.param == "pipe":
        os.mkfifo("special")
    elif request.param == "device":
        Path("special").symlink_to("/dev/zero")
    elif request.param == "socket":
        held.bind("special")
    else:
        Path("special").mkdir()
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it does not end"))
    signal.alarm(20)
    yield request.param
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    held.close()


@pytest.mark.parametrize(
    ("command", "option", "special"),
    [
        (command, option, kind)
        for command, option in sorted({*PATHS} - UNREAD)
        for kind in SPECIAL
        if kind != "folder" or "." in CALLS[command][1][option][1:]  # others name a folder
    ],
    indirect=["special"],
)
def test_options_special_file_rejected(command, option, special, place, oso) -> None:
    others, paths = CALLS[command]
    if command == "publish":
        Path("report").mkdir()
        Path("report/manifest.json").write_text('{"store": "../store", "files": {}}')
    given = {**paths, option: "special"}
    given = {key: value for key, value in given.items() if key != "--results" or option == key}
    if option == "--results":
        given.pop("")
    words = [word for key, value in given.items() for word in ([key, value] if key else [value])]
    refused(oso(command, *others, *words), "special")


@pytest.mark.parametrize(
    ("name", "special"),
    [
        (name, kind)
        for name in ("runs.parquet", "evaluations.parquet", "plan.json", "search_noise.csv")
        for kind in SPECIAL
        if kind != "folder" or not name.endswith("parquet")  # a table may be a folder
    ],
    indirect=["special"],
)
def test_store_special_file_rejected(name, special, place, oso) -> None:
    target = Path("store", name)
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    if name == "search_noise.csv":
        shutil.copy("plan.json", "store/plan.json")
    if special == "device":
        target.symlink_to("/dev/zero")
    else:
        Path("special").rename(target)
    refused(oso("report", "store", "--output", "o"), name)
    if name != "search_noise.csv":
        refused(oso("account", "store"), name)
