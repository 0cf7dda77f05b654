"""The ``hexport`` command: finds the verb, and turns errors into messages and exit codes.

Verbs are imported only when called, so that ``hexport --help`` answers at once.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

import click

from hexport.errors import HexportError
from hexport.version import __version__

EXIT_OK = 0
EXIT_SHORT = 1
"""It does not hold: the gate for CI."""
EXIT_ERROR = 2
"""It could not be done."""

_LONGEST_LOG_LINE = 300

# verb -> its line in `hexport --help`; the module is hexport.cli.<verb>, its click command `command`.
VERBS: dict[str, str] = {
    "doctor": "Look at this machine: what works, what does not, and the exact fix.",
    "targets": "List the chips hexport can compile for.",
    "zoo": "Real trained models to try things on.",
    "check": "Ask Qualcomm's compiler what of a model runs on the NPU, and why the rest does not.",
    "prepare": "Rewrite a model until the NPU runs all of it, and prove each change.",
    "build": "From a model to a package: prepare, quantise, compile, verify.",
    "quantize": "Write a model in integers, as exact as asked for, judged on the NPU's own arithmetic.",
    "compile": "Compile models for chips, and prove from the binaries what they are.",
    "run": "Run a package or a model on arrays, and tell what ran where.",
    "verify": "Compare a package or a model with its reference on the same inputs.",
    "compare": "Take a model through two compilers or backends, and tell whether the second is worse.",
    "inspect": "Tell what a file or folder is, and what is inside.",
    "pack": "Make one zip of a package, and a package of such a zip.",
    "snippet": "Print a program that calls a package, in C++, C#, Kotlin or Python.",
    "convert": "Turn a .pte into an ONNX model that calls its code, or the other way round.",
    "wrap": "Make ONNX models that call a context binary of Qualcomm's own tools.",
    "toolchain": "Environments of their own for native code, each with one compiler version.",
    "cache": "See and clear what hexport keeps on this machine.",
    "debug": "Cut a failing model down, or record its QNN calls, for a bug report.",
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"hexport.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hexport")
def hexport() -> None:
    """Any ONNX or PyTorch model to a verified, fast deployment on Qualcomm's NPU.

    Exit codes: 0 it holds, 1 it does not, 2 it could not be done.
    """


def main() -> None:
    """Run a verb; no error of ours and no bad input ends in a traceback."""
    as_json = "--json" in sys.argv
    # Ended politely, we clean up as after Ctrl-C: temp folders go, workers end.
    signal.signal(signal.SIGTERM, _end_by_signal)
    try:
        code = hexport.main(standalone_mode=False)
    except HexportError as error:
        _show_error(error, as_json)
        code = EXIT_ERROR
    except click.ClickException as error:
        _show_usage(error, as_json)
        code = EXIT_ERROR
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except BrokenPipeError:
        # The reader (`| head`) has gone. Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_ERROR
    except Exception as error:
        if os.environ.get("HEXPORT_DEBUG"):
            raise
        _show_error(_bug(error), as_json)
        code = EXIT_ERROR
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _end_by_signal(number: int, _: object) -> None:
    sys.exit(128 + number)


def _bug(error: Exception) -> HexportError:
    return HexportError(
        f"hexport itself failed: {type(error).__name__}",
        why=str(error),
        next="this is a defect of hexport; set HEXPORT_DEBUG=1 to see where, and please report it",
    )


def _show_error(error: HexportError, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "error": error.to_json()}, ensure_ascii=False, indent=2))
        return
    label = click.style(f"error {error.code}", fg="red", bold=True)
    click.echo(f"{label}: {error.what}", err=True)
    if error.why:
        click.echo(f"  why:  {error.why}".replace("\n", "\n        "), err=True)
    if error.next:
        click.echo(f"  next: {error.next}".replace("\n", "\n        "), err=True)
    for line in getattr(error, "native_log", ()):
        click.echo(click.style(f"  log:  {line[:_LONGEST_LOG_LINE]}", dim=True), err=True)


def _show_usage(error: click.ClickException, as_json: bool) -> None:
    if as_json:
        document = {"code": "HX001", "what": error.format_message(), "why": "", "next": "hexport --help"}
        click.echo(json.dumps({"schema_version": 1, "error": document}, ensure_ascii=False, indent=2))
    else:
        error.show()
