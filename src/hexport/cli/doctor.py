"""``hexport doctor``: what works on this machine."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hexport.cli.main import EXIT_OK, EXIT_SHORT
from hexport.cli.output import console, json_option, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from hexport.diagnosis import Report
    from hexport.diagnosis.suggesting import Suggestion

_MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "problem": "[red]✗[/]"}


@click.command()
@click.option(
    "--backend-path",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also try this QNN library in place of the package's own.",
)
@click.option(
    "--native-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep what the native libraries said.",
)
@click.option("--suggest", is_flag=True, help="Only tell which onnxruntime-qnn goes with the NPU driver.")
@click.option("--driver", metavar="SDK", help="For --suggest: the driver of another device, as 2.47.0.")
@json_option
def command(
    backend_path: str | None, native_log: Path | None, suggest: bool, driver: str | None, as_json: bool
) -> int:
    """Look at this machine: what works, what does not, why it matters, and the exact fix.

    Every backend is really started, in a process of its own. Exits with 1 when hexport cannot do its
    main job here, or --suggest finds no release.
    """
    if driver is not None and not suggest:
        raise click.UsageError("--driver goes with --suggest")
    if suggest:
        return _suggest(driver, as_json)
    from hexport.diagnosis import doctor

    report = doctor(backend_path=backend_path, native_log=native_log)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)
    return EXIT_OK if report.ok else EXIT_SHORT


def _suggest(driver: str | None, as_json: bool) -> int:
    from hexport.diagnosis.suggesting import suggest

    suggestion = suggest(driver)
    if as_json:
        print_json(suggestion.to_json())
    else:
        _show_suggestion(suggestion)
    return EXIT_OK if suggestion.found else EXIT_SHORT


def _show_suggestion(suggestion: Suggestion) -> None:
    terminal = console()
    limit = f"QNN {suggestion.driver} ({suggestion.source})" if suggestion.driver else "none was found"
    _line(terminal, "", f"platform {suggestion.platform}; NPU driver or SDK: {limit}")
    if not suggestion.found:
        _line(terminal, "[red]✗[/] ", suggestion.why)
        return
    pair = f"onnxruntime-qnn {suggestion.release} with onnxruntime {suggestion.onnxruntime}"
    _line(terminal, "[green]✓[/] ", f"{pair}; its wheels carry: {', '.join(suggestion.backends)}")
    _line(terminal, "  [dim]why:[/] ", suggestion.why)
    _line(terminal, "  [dim]next:[/] ", suggestion.command or "nothing: hexport's own Python has it")


def _show(report: Report) -> None:
    terminal = console()
    for finding in report.findings:
        _line(terminal, f"{_MARKS[finding.status]} ", finding.found)
        for label, text in (("why", finding.why), ("fix", finding.fix)):
            if text:
                _line(terminal, f"  [dim]{label}:[/] ", text)
    count = {status: sum(f.status == status for f in report.findings) for status in _MARKS}
    verdict = "hexport can work here" if report.ok else "hexport cannot do its main job here"
    terminal.print(
        f"\n{verdict}: {count['ok']} ✓, {count['warning']} !, {count['problem']} ✗ ({report.platform})"
    )


def _line(terminal: Console, head: str, text: str) -> None:
    """One line, wrapped below its own beginning; words are kept whole, so that commands can be copied."""
    from rich.markup import escape
    from rich.text import Text

    indent = Text.from_markup(head).cell_len
    width = max(40, terminal.width - indent)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    terminal.print(head + escape(f"\n{' ' * indent}".join(lines)), soft_wrap=True)
