"""The figure of docs/user/opacus.md from mnist_runs.csv: C, the rate, accuracy, by step.

python docs/opacus/mnist_figure.py
"""

import csv
import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from oso_dp.files import atomic_write
from oso_dp.reporting.figures.chart import plain_ticks, theme

FOLDER = Path(__file__).parent
COLOURS = ["#2F6DB5", "#D9A441", "#3B9C6D", "#B5482F", "#7D5BA6"]
PRODUCT = 0.05  # of rho_0 and C_0
PANELS = {
    "threshold": ("C", "log"),
    "factor": ("factor of the learning rate", "log"),
    "accuracy": ("test accuracy", "linear"),
}


def draw(rows: list[dict[str, str]]) -> bytes:
    """A PNG; plain Opacus's runs are broken lines, epsilon 9 is thin.

    Dotted: Online where rho_0 times C_0 is not that of the others.
    """
    runs = list(dict.fromkeys(row["run"] for row in rows))
    starts = sorted({float(run.split()[2]) for run in runs})
    with theme():
        figure = Figure(figsize=(11, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, (column, (title, scale)) in zip(
            figure.subplots(1, len(PANELS)), PANELS.items(), strict=True
        ):
            for run in runs:
                script, epsilon, start, rate = run.split()
                points = [row for row in rows if row["run"] == run and row[column]]
                online = script == "online"
                alike = abs(float(start) * float(rate) / PRODUCT - 1) < 0.01
                axes.plot(
                    [int(row["step"]) for row in points],
                    [float(row[column]) for row in points],
                    color=COLOURS[starts.index(float(start))],
                    linestyle=("-" if alike else ":") if online else "--",
                    linewidth=1.8 if epsilon == "3" else 0.9,
                    label=f"{'Online, C_0' if online else 'Opacus, C'} = {start}, "
                    f"{'rho_0' if online else 'rho'} = {rate}, ε = {epsilon}",
                )
            axes.set_yscale(scale)
            if scale == "log":
                plain_ticks(axes.yaxis)
            axes.set_xlabel("step")
            axes.set_title(title)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


if __name__ == "__main__":
    with (FOLDER / "mnist_runs.csv").open(newline="") as file:
        picture = draw(list(csv.DictReader(file)))
    with atomic_write(FOLDER / "mnist_runs.png") as file:
        file.write(picture)
