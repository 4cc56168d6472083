"""The commands, in the order in which `oso --help` lists them.

Each imports heavy packages when it runs, so that `oso --help` is fast.
"""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from oso_dp import __version__
from oso_dp.cli.account import account
from oso_dp.cli.audit import audit
from oso_dp.cli.calibrate import calibrate
from oso_dp.cli.collect import collect
from oso_dp.cli.data import data
from oso_dp.cli.diagnose import cosine, series, signs, updates
from oso_dp.cli.epsilon import epsilon
from oso_dp.cli.pate import account_students, collect_students, label, published, student, votes
from oso_dp.cli.plan import plan
from oso_dp.cli.publish import publish
from oso_dp.cli.report import report
from oso_dp.cli.schema import schema
from oso_dp.cli.summary import summary
from oso_dp.cli.train import train
from oso_dp.cli.verify import verify
from oso_dp.option_types import integer, path, real_number

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

diagnose = typer.Typer(
    name="diagnose",
    help="Look into runs on public data: true gradients, users' updates, groups of test examples.",
    rich_markup_mode=None,
)

pate = typer.Typer(
    name="pate",
    help="Private aggregation of teacher ensembles, a study of its own (config/pate.yaml).",
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"oso {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Differentially private learning with Online Sensitivity Optimization."""


def _with_types(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, with the parser of its type set for each option."""
    hints = get_type_hints(command, include_extras=True)
    command.__annotations__ = hints  # resolve annotations that are strings
    for hint in hints.values():
        for info in getattr(hint, "__metadata__", ()):
            if isinstance(info, ParameterInfo) and info.parser is None:
                info.parser = _parser(get_args(hint)[0], info)
    return command


def _parser(hint: Any, info: ParameterInfo) -> Callable[[Any], Any] | None:
    """The parser for a type; None for types that need none, such as text."""
    if isinstance(hint, types.UnionType):
        hint = next(member for member in get_args(hint) if member is not type(None))
    hint = get_args(hint)[0] if get_origin(hint) is list else hint
    if hint is Path:
        return path
    makers: dict[Any, Callable[..., Any]] = {int: integer, float: real_number}
    return makers[hint](info.min, info.max) if hint in makers else None


for command in (
    *(calibrate, epsilon, account, audit),
    *(data, plan, train, collect, verify, report, summary, schema),
):
    app.command()(_with_types(command))
app.add_typer(diagnose)
diagnose.command()(_with_types(cosine))
diagnose.command()(_with_types(signs))
diagnose.command()(_with_types(updates))
diagnose.command()(_with_types(series))
app.add_typer(pate)
pate.command()(_with_types(votes))
pate.command()(_with_types(label))
pate.command()(_with_types(student))
pate.command("collect")(_with_types(collect_students))
pate.command("account")(_with_types(account_students))
pate.command()(_with_types(published))
app.command(hidden=True)(_with_types(publish))  # for the workflow
