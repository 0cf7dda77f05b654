"""``hexport targets``: the chips, and what each can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hexport import facts
from hexport.cli.output import console, json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(name="targets")
@click.argument("filter_text", metavar="[FILTER]", required=False)
@json_option
def command(filter_text: str | None, as_json: bool) -> None:
    """List the chips hexport can compile for.

    FILTER keeps those whose name contains it ("8 gen", "SA8", "IQ"), or one HTP generation ("v75").
    Any name in the table is good wherever a command asks for a target.
    """
    socs = facts.select_targets(filter_text) if filter_text else facts.targets()
    if as_json:
        print_json({"schema_version": 1, "targets": [_document(soc) for soc in socs]})
    else:
        _show(socs)


def _document(soc: facts.Soc) -> dict[str, object]:
    return {
        "soc_model": soc.soc_model,
        "chip": soc.chip,
        "names": list(soc.names),
        "htp_arch": soc.htp_arch,
        "float": soc.float,
        "vtcm_mb": soc.vtcm_mb,
        "note": soc.note,
        "source": soc.source,
    }


def _show(socs: Sequence[facts.Soc]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Chip", no_wrap=True)
    table.add_column("Id", justify="right")
    table.add_column("HTP")
    table.add_column("Float")
    table.add_column("VTCM", justify="right")
    table.add_column("Sold as")
    for soc in socs:
        vtcm = f"{soc.vtcm_mb} MB" if soc.vtcm_mb else "–"
        fp16 = "fp16" if soc.float else "no"
        table.add_row(
            soc.chip, str(soc.soc_model), f"v{soc.htp_arch}", fp16, vtcm, ", ".join(soc.names) or "–"
        )
    screen = console()
    screen.print(table)
    for soc in socs:
        if soc.note:
            screen.print(f"{soc.chip}: {soc.note}")
