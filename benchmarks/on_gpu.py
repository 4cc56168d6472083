"""Test, measure and train the study's most valuable runs on a GPU that is available for minutes.

    python benchmarks/on_gpu.py --pack --data-dir DIR     locally: packs build/gpu/
    python benchmarks/on_gpu.py --measure --output OUT    on the GPU machine: first call
    python benchmarks/on_gpu.py --rows --output OUT       further calls; can resume
    tar -xf OUT/rows.tar && oso collect rows/* --store results       locally

`--measure` takes 1.5 minutes for the GPU tests, 3 for step times beside plain SGD and Opacus, half
a minute for a profile, and trains rows in what is left of --minutes. OUT then has log.txt, the
bench's three files, profile.csv, traces.tar.gz and rows.tar.

The machine needs Python 3.11 or newer with torch, numpy, pandas and pyarrow, this repository's
tracked files, and build/gpu/. Runs are trained in the order of config/priorities.toml, as in any
campaign (docs/internals/running_at_scale.md); each row records the commit, the machine's torch and
its GPU.
"""

import argparse
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

PLANS = ("paper/best_points", "paper", "ablations/controls", "ablations/ag_news_subset_controls")
# In the order of their value: what exceeds the limit is left out from the end.
DATASETS = ("mnist", "fashion_mnist", "ag_news_partial", "glyphs")
# For --measure, where the machine lacks them; without what these need themselves.
WHEELS = (
    *("pytest", "iniconfig", "pluggy", "packaging", "pygments", "hypothesis", "sortedcontainers"),
    *("opacus", "opt-einsum"),
)
SECONDS = {"tests": 90, "bench": 180, "profile": 30}  # at most, of --measure
TESTS = {"cuda": ["-m", "gpu"], "cpu": ["tests/privacy/test_ledger.py"]}
PRECISIONS = {"cuda": ["float32", "tf32", "bfloat16"], "cpu": ["float32"]}
MIB = 2**20
SECONDS_TO_PACK_ROWS = 15


def pack(options: argparse.Namespace) -> None:
    """Write the plans, the raw data files and the commit to `options.folder`."""
    changed = _git("status", "--porcelain", "--", "src", "config", "results")
    if changed:
        sys.exit(f"error: commit first, so that rows can name their code:\n{changed}")
    (options.folder / "plans").mkdir(parents=True, exist_ok=True)
    (options.folder / "commit").write_text(_git("rev-parse", "HEAD"))
    for name in options.plans:
        config, plan = ROOT / "config" / f"{name}.yaml", options.folder / "plans" / f"{name}.json"
        plan.parent.mkdir(parents=True, exist_ok=True)
        call = [sys.executable, "-m", "oso_dp", "plan", "--config", config, "--output", plan]
        subprocess.run(call, cwd=ROOT, env=_environment(), check=True)
    if options.wheels:
        lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
        pinned = [one for one in lock if one.partition("==")[0] in WHEELS]
        call = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        folder = options.folder / "wheels"
        subprocess.run([*call, "--dest", folder, *pinned], check=True)
    tracked = _git("ls-files", "-z").split("\0")
    size = sum((ROOT / name).lstat().st_size for name in tracked if (ROOT / name).exists())
    travels = [*options.folder.rglob("*.json"), *options.folder.rglob("*.whl")]
    size += sum(path.stat().st_size for path in travels)
    for dataset in _datasets(options.folder, options.plans):
        files = _compressed(dataset, options.data_dir)
        size += sum(map(len, files.values()))
        if size > options.limit_mib * MIB:
            print(f"{dataset} and what follows it left out: {size / MIB:.1f} MiB with it")
            return
        for name, content in files.items():
            path = options.folder / "raw" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        print(f"{dataset}: {size / MIB:.1f} MiB so far, of at most {options.limit_mib}", flush=True)


def measure(options: argparse.Namespace) -> None:
    """Tests, step times and a profile, each within its seconds; then rows until the end."""
    began = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    device = options.device or "cuda"
    python = [sys.executable]
    output = str(options.output)
    site = options.work / "site"
    install = [*python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site]
    wheels = [*(options.folder / "wheels").glob("*.whl")]
    if wheels:
        subprocess.run([*install, *wheels], check=True)
    environment = _environment(site)
    calls = {
        "tests": [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS[device]],
        "bench": [
            *(*python, "benchmarks", "--device", device, "--output", output),
            *("--seconds", str(options.step_seconds), "--runs", "1", "8", "64"),
            *("--precisions", *PRECISIONS[device]),
            *("--competitors", "sgd", "opacus_hooks", "opacus_ghost", "online"),
            *("--models", *options.models),
        ],
        "profile": [
            *(*python, "benchmarks/profile_steps.py", output, "--device", device),
            *("--models", *options.models),
        ],
    }
    for name, limit in SECONDS.items():
        with open(options.output / "log.txt", "a", encoding="utf-8") as log:
            ended = _call(calls[name], limit * options.time_scale, log, environment)
            print(f"{name}: {ended}, {time.monotonic() - began:.0f} s in all", flush=True)
            print(f"{name}: {ended}", file=log, flush=True)
    options.minutes -= (time.monotonic() - began) / 60
    rows(options)


def _call(call: list[str], seconds: float, log: TextIO, environment: dict[str, str]) -> str:
    """Run a command for so many seconds at most; how it ended."""
    process = subprocess.Popen(
        call, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
    )
    try:
        return f"status {process.wait(seconds)}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"stopped after {seconds:.0f} s"


def rows(options: argparse.Namespace) -> None:
    """Prepare the data, train until the minutes are over, and pack what is complete."""
    began = time.monotonic()
    data, parts = options.work / "data", options.work / "rows"
    plans = [options.folder / "plans" / f"{name}.json" for name in options.plans]
    _prepare(options, data)
    left = options.minutes - (time.monotonic() - began + SECONDS_TO_PACK_ROWS) / 60
    if left <= 0:
        sys.exit(f"error: --minutes {options.minutes}: preparing the data took as long")
    priorities = ROOT / "config" / "priorities.toml"
    named = any(
        f'"{Path(name).name}"' in priorities.read_text(encoding="utf-8") for name in options.plans
    )
    threads = max(1, (os.cpu_count() or 1) // options.processes)
    call = [
        *(sys.executable, "-m", "oso_dp.scheduler", "--minutes", f"{left:.2f}"),
        *("--results", parts, "--existing", ROOT / "results", "--data", data, "--skip-missing"),
        *("--parallel-runs", str(options.parallel_runs), "--threads", str(threads)),
        *(("--priorities", priorities) if named else ()),
        *(("--device", options.device) if options.device else ()),
        *("--plan", *plans),
    ]
    commit = (options.folder / "commit").read_text().strip()
    environment = _environment() | {"OSO_COMMIT": commit, "PYTHONUNBUFFERED": "1"}
    try:
        quiet = [[], *[["--quiet"]] * (options.processes - 1)]
        started = [subprocess.Popen([*call, *q], cwd=ROOT, env=environment) for q in quiet]
        ended = max(abs(process.wait()) for process in started)
    finally:
        done = sorted(path for path in parts.glob("*") if not path.name.startswith("."))
        options.output.mkdir(parents=True, exist_ok=True)
        with tarfile.open(options.output / "rows.tar", "w") as archive:
            for path in done:
                archive.add(path, f"rows/{path.name}")
        print(f"{len(done)} parts after {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(ended)


def _prepare(options: argparse.Namespace, data: Path) -> None:
    """The prepared file of each data set whose raw files travelled, unless it is there."""
    from oso_dp.data import prepare_dataset, sources
    from oso_dp.study.plan import read_plan

    plans = [read_plan(options.folder / "plans" / f"{name}.json") for name in options.plans]
    raw = options.work / "raw"
    for packed in sorted((options.folder / "raw").rglob("*.xz")):
        path = raw / packed.relative_to(options.folder / "raw").with_suffix("")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.decompress(packed.read_bytes()))
    cohorts = {cohort.data_file: cohort for plan in plans for cohort in plan.cohorts}
    for name, cohort in cohorts.items():
        source = getattr(sources, cohort.dataset.upper(), None)
        there = source is None or all(
            (raw / source.dataset / f.name).exists() for f in source.files
        )
        if there and not (data / name).exists():
            data.mkdir(parents=True, exist_ok=True)
            prepare_dataset(cohort.dataset, data / name, raw, **cohort.preparation)


def _datasets(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of the plans, by value."""
    from oso_dp.study.plan import read_plan

    plans = [read_plan(folder / "plans" / f"{name}.json") for name in names]
    planned = {cohort.dataset for plan in plans for cohort in plan.cohorts}
    return [name for name in DATASETS if name in planned]


def _compressed(dataset: str, data_dir: Path | None) -> dict[str, bytes]:
    """A data set's raw files by their place below raw/; none for one that is made on the spot."""
    from oso_dp.data import sources
    from oso_dp.data.catalogue import dataset_info
    from oso_dp.data.download import obtain
    from oso_dp.data.glove import find_vectors

    source = getattr(sources, dataset.upper(), None)
    if source is None:
        return {}
    found = {
        f"{source.dataset}/{name}": file.content
        for name, file in obtain(source, data_dir, Path("build/data/downloads") / dataset).items()
    }
    if source.dataset == "ag_news":
        path, content = find_vectors(data_dir, dataset_info(dataset).vocabularies[0])
        found[f"glove/{path.name.removesuffix('.gz')}"] = content
    return {f"{name}.xz": lzma.compress(content, preset=9) for name, content in found.items()}


def _environment(*site: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", *site)))}


def _git(*arguments: str) -> str:
    call = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--pack", action="store_true", help="at home: write what travels")
    action.add_argument("--measure", action="store_true", help="on the machine: first call")
    action.add_argument("--rows", action="store_true", help="on the machine: train")
    parser.add_argument(
        "--plans", nargs="+", default=PLANS, metavar="NAME", help="config/NAME.yaml"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"), help="what travels")
    pack_options = parser.add_argument_group("--pack")
    pack_options.add_argument("--data-dir", type=Path, help="folder with the official data files")
    pack_options.add_argument("--limit-mib", type=float, default=64, help="tracked files included")
    pack_options.add_argument("--wheels", action="store_true", help="also what --measure needs")
    row_options = parser.add_argument_group("--rows")
    row_options.add_argument("--output", type=Path, help="folder for rows.tar")
    row_options.add_argument(
        "--work", type=Path, default=Path("build/gpu-work"), help="kept to resume"
    )
    row_options.add_argument("--minutes", type=float, default=9.3)
    row_options.add_argument("--processes", type=int, default=10)
    row_options.add_argument("--parallel-runs", type=int, default=8)
    row_options.add_argument("--device", choices=("cpu", "cuda"))
    measure_options = parser.add_argument_group("--measure")
    models = ["cnn", "autoencoder", "bag_of_words", "transformer"]
    measure_options.add_argument("--models", nargs="+", default=models)
    measure_options.add_argument("--step-seconds", type=float, default=1.5, help="for each peer")
    measure_options.add_argument("--time-scale", type=float, default=1.0, help="of the time limits")
    options = parser.parse_args()
    if not options.pack and options.output is None:
        parser.error("--measure and --rows need --output")
    for name in ("folder", "work", "output", "data_dir"):
        path = getattr(options, name)
        setattr(options, name, path if path is None else path.absolute())
    return options


if __name__ == "__main__":
    chosen = _options()
    (pack if chosen.pack else measure if chosen.measure else rows)(chosen)
