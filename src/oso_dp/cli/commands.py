"""The commands, one file each, in the order in which `oso --help` lists them.

Heavy rooms are imported when a command needs them, to keep `oso --help` quick.
"""

from typing import Annotated

import typer

from oso_dp import __version__
from oso_dp.cli.account import account
from oso_dp.cli.audit import audit
from oso_dp.cli.budget import budget
from oso_dp.cli.calibrate import calibrate
from oso_dp.cli.collect import collect
from oso_dp.cli.cosine import cosine
from oso_dp.cli.data import data
from oso_dp.cli.epsilon import epsilon
from oso_dp.cli.plan import plan
from oso_dp.cli.publish import publish
from oso_dp.cli.recommend import recommend
from oso_dp.cli.report import report
from oso_dp.cli.schema import schema
from oso_dp.cli.signs import signs
from oso_dp.cli.summary import summary
from oso_dp.cli.train import train
from oso_dp.cli.verify import verify

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"oso {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Say which this is."),
    ] = False,
) -> None:
    """Private learning with Online Sensitivity Optimization: the study's commands."""


for command in (
    *(calibrate, epsilon, recommend, account, audit, cosine, signs),
    *(data, plan, train, collect, verify, report, summary, schema),
):
    app.command()(command)
for hidden in (budget, publish):  # an older name; for the workflow
    app.command(hidden=True)(hidden)
