"""``hexport pack``: a package as one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.output import json_option, print_json, waiting


@click.command()
@click.argument("source", metavar="PKG|FILE.zip", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The zip, or the folder."
)
@click.option("--unpack", "back", is_flag=True, help="From a zip to a package.")
@json_option
def command(source: Path, output: Path, back: bool, as_json: bool) -> int:
    """Make one zip of the package PKG, for transport; with --unpack, a package of such a zip.

    The same package gives the same bytes. Unpacking refuses what is no packed package, was changed, leads
    out of its folder or swells beyond what it says; what it writes is whole, or not there.
    """
    from hexport.packaging import open_package, pack, unpack

    with waiting(f"{'unpacking' if back else 'packing'} {source}"):
        if back:
            manifest = unpack(source, output).manifest
        else:
            pack(source, output)
            manifest = open_package(source, verify=False).manifest
    size = sum(artefact.bytes for artefact in manifest.artefacts)
    written = size if back else output.stat().st_size
    if as_json:
        document = {"source": str(source), "output": str(output), "files": len(manifest.artefacts) + 1}
        print_json({"schema_version": 1, **document, "package_bytes": size, "output_bytes": written})
    else:
        click.echo(f"{output}: {len(manifest.artefacts) + 1} files, {size / 2**20:.2f} MiB", nl=False)
        click.echo("" if back else f", packed to {written / 2**20:.2f} MiB")
    return EXIT_OK
