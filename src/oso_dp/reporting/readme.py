"""How the reproduction stands, in the README: `make report` writes it, from `results/` alone.

python -m oso_dp.reporting.readme README.md results
"""

import sys
from pathlib import Path

from oso_dp.analysis.claims import judged
from oso_dp.analysis.load import read_study
from oso_dp.analysis.study import Study
from oso_dp.analysis.verdict_matrix import verdict_matrix
from oso_dp.errors import OsoError
from oso_dp.exits import ended
from oso_dp.files import atomic_write
from oso_dp.reporting.page import headline, matrix
from oso_dp.reporting.table import markdown_rows
from oso_dp.reporting.tables.claims import in_short
from oso_dp.study.plan import plans_of

BEGIN = "<!-- status: `make report` writes these lines from results/ -->"
END = "<!-- end of the status -->"


def status(study: Study) -> str:
    """The verdict, the claims and the matrix, as Markdown."""
    claims = judged(study)
    cells = verdict_matrix(study)
    ours = headline.ours_alone(study)
    blocks = [
        f"**{headline.verdict(study, claims)}**",
        headline.scope(study),
        "\n".join(markdown_rows(in_short(claims, "C"))),
        "\n".join(matrix.markdown(cells)),
        " ".join(["In brackets: the number of our seeds.", *matrix.momentum(cells)]),
        *(f"What the paper does not have: {line}" for line in ours),
    ]
    return "\n\n".join(blocks)


def write_status(readme: Path, study: Study) -> None:
    """Replace what stands between the two marks; OsoError where they are not there once each."""
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise OsoError(f"{readme}: needs the lines {BEGIN!r} and {END!r}, once each, in this order")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    with atomic_write(readme) as file:
        file.write(f"{before}{BEGIN}\n\n{status(study)}\n\n{END}{after}".encode())


def main(readme: Path, results: Path) -> None:
    write_status(readme, read_study(results, plans_of(results, None)))


if __name__ == "__main__":
    sys.exit(ended(lambda: main(*map(Path, sys.argv[1:3]))))
