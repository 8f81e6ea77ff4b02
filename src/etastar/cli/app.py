"""How is etastar started, and how does it fail? The verbs together, and one way to say an error."""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from etastar import __version__
from etastar.cli.data import data_app
from etastar.cli.demo import demo_command
from etastar.cli.evaluate import evaluate_command
from etastar.cli.figures import figures_command
from etastar.cli.fit import fit_command
from etastar.cli.flags import flags_command
from etastar.cli.import_ import import_command
from etastar.cli.launch import launch_command
from etastar.cli.merge import merge_command
from etastar.cli.plan import plan_command
from etastar.cli.predict import predict_command
from etastar.cli.report import report_command
from etastar.cli.reproduce import reproduce_command
from etastar.cli.simulate import simulate_command
from etastar.cli.status import status_command
from etastar.cli.theory import theory_command
from etastar.cli.train import train_command
from etastar.cli.verify import verify_command
from etastar.errors import EtastarError

# typer's own base of usage errors, wherever the installed version keeps it
_UsageError: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="etastar",
    help="Find the learning rate for a large pretraining run from runs that cost a fraction of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("import")(import_command)
app.command("fit")(fit_command)
app.command("predict")(predict_command)
app.command("report")(report_command)
app.command("evaluate")(evaluate_command)
app.command("figures")(figures_command)
app.command("reproduce")(reproduce_command)
app.command("simulate")(simulate_command)
app.command("theory")(theory_command)
app.command("plan")(plan_command)
app.command("train")(train_command)
app.command("launch")(launch_command)
app.command("status")(status_command)
app.command("verify")(verify_command)
app.command("merge")(merge_command)
app.add_typer(data_app, name="data")
app.command("flags")(flags_command)
app.command("demo")(demo_command)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(f"etastar {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a bad input is one line and a hint on stderr, and exit code 2."""
    try:
        sys.exit(app(prog_name="etastar", standalone_mode=False) or 0)
    except EtastarError as error:
        _say(error.message, error.hint)
        sys.exit(2)
    except _UsageError as error:
        asked = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.exit(2)  # the help is printed already
        _say(error.format_message(), f"see {asked.command_path if asked else 'etastar'} --help")
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except BrokenPipeError:
        # the reader went away (`| head`): nothing is wrong
        sys.stderr.close()
        sys.exit(0)


def _say(message: str, hint: str) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]error:[/] {escape(_one_line(message))}")
    console.print(f"[bold]hint:[/] {escape(_one_line(hint))}")


def _one_line(text: str) -> str:
    """Control characters of hostile file names or values must not reach the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
