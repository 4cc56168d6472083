"""No command writes over what it reads, or over a file of another kind."""

import os

import pytest

from oso_dp.data.arrays import load_arrays, save_arrays
from oso_dp.errors import OsoError

from .conftest import SMOKE

PLAN = ("plan", "--config", "m.yaml", "--output")
PRICES = (*PLAN, "new.json", "--search-noise-csv")
ACCOUNT = ("account", "store", "--plan", "plan.json", "--output")
AUDIT = ("audit", "--method", "online", "--output")
COSINE = ("diagnose", "cosine", "--plan", "plan.json", "--cohort", "glyphs.online.k2.eps3",
          "--data", "glyphs.npz", "--output")  # fmt: skip
DATA = ("data", "mnist", "--data-dir", "raw", "--output")
OURS = {
    PLAN: '{"version": 2, "config": {}, "cohorts": []}',
    PRICES: "sampling_rate,steps,runs,epsilon,delta,search_accounting,accountant,distribution,"
    "dp_accounting,noise_multiplier\n",
    ACCOUNT: "grid,budget,delta,runs\n",
    AUDIT: "method,fault,delta\n",
    COSINE: "dataset,model,method,k\n",
}
OTHERS = ["thesis.tex", "notes.md", "binary", "list.json", "table.csv", "folder", "dangling",
          "m.yaml", "hard.yaml", "glyphs.npz"]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_long(monkeypatch) -> None:
    """Work that is refused must not begin; work that is allowed need not end."""
    import oso_dp.analysis.search_costs
    import oso_dp.audit.run_audit
    import oso_dp.diagnostics.cosine

    for module, name in (
        (oso_dp.audit.run_audit, "run_audit"),
        (oso_dp.diagnostics.cosine, "measure_similarities"),
        (oso_dp.analysis.search_costs, "write_costs"),
    ):
        monkeypatch.setattr(module, name, begun)


def begun(*_: object, **__: object) -> None:
    raise OsoError("work was begun")


@pytest.fixture
def folder(study, repo):
    """What the commands read, files of every kind, and names that lead to them."""
    (study / "m.yaml").write_text((repo / SMOKE).read_text())
    (study / "thesis.tex").write_text("years of work")
    (study / "notes.md").write_text("\n# An empty line first\n")
    (study / "binary").write_bytes(bytes(range(256)))
    (study / "list.json").write_text("[1, 2]")
    (study / "table.csv").write_text("name,grade\nme,1\n")
    (study / "folder").mkdir()
    os.link(study / "m.yaml", study / "hard.yaml")
    (study / "soft.json").symlink_to("plan.json")
    (study / "dangling").symlink_to("nowhere")
    (study / "store").mkdir()
    return study


def contents(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", [PLAN, PRICES, ACCOUNT, AUDIT, COSINE, DATA])
def test_output_of_other_kind_rejected(oso, folder, command) -> None:
    before = contents(folder)
    for output in OTHERS:
        status, _, error = oso(*command, output)
        assert status == 2
        assert error.startswith("oso: error: ")
        assert error.count("\n") == 1
        assert output in error
        assert "another file" in error
    assert contents(folder) == before


@pytest.mark.parametrize("command", [ACCOUNT, COSINE])
def test_output_equal_to_plan_rejected(oso, folder, command) -> None:
    before = contents(folder)
    for output in ("plan.json", "soft.json", "./folder/../plan.json"):
        assert "another file" in oso(*command, output)[2]
    assert contents(folder) == before


@pytest.mark.parametrize("command", OURS)
def test_output_of_same_kind_accepted(oso, folder, command) -> None:
    for text in ("", OURS[command]):
        (folder / "old").write_text(text)
        assert "another file" not in oso(*command, "old")[2]


def test_data_output_of_other_dataset_rejected(oso, folder) -> None:
    assert "exists and is not a data file of oso for mnist" in oso(*DATA, "glyphs.npz")[2]
    arrays, _ = load_arrays(folder / "glyphs.npz")
    save_arrays(folder / "mnist.npz", arrays, {"dataset": "mnist"})
    assert "data_dir: raw; folder not found; must contain" in oso(*DATA, "mnist.npz")[2]
    content = (folder / "mnist.npz").read_bytes()
    place = content.rindex(b"dataset".decode().encode("utf-32-le"))
    (folder / "mnist.npz").write_bytes(content[:place] + b"x" * 8 + content[place + 8 :])
    assert "data_dir: raw; folder not found; must contain" in oso(*DATA, "mnist.npz")[2]


def test_train_output_with_other_runs_rejected(oso, folder) -> None:
    given = ("--plan", "plan.json", "--data", "glyphs.npz", "--output", "part", "--cohort")
    assert oso("train", *given, "glyphs.no_dp.k2.nonprivate")[0] == 0
    before = contents(folder / "part")
    other = ("train", *given, "glyphs.online.k2.eps3")
    assert "has 2 runs that this job does not resume" in oso(*other)[2]
    assert contents(folder / "part") == before
    assert oso("train", *given, "glyphs.no_dp.k2.nonprivate")[0] == 0  # its own again
    assert oso("collect", "part", "--store", "store")[0] == 0
    assert oso(*other, "--store", "store")[0] == 0
    (folder / "part").rename(folder / "was")
    (folder / "store").rename(folder / "part")
    assert "--output part: is a results store" in oso(*other)[2]
