"""``hexport snippet``: code that calls a package."""

from __future__ import annotations

import click

from hexport.cli.main import EXIT_OK
from hexport.cli.output import json_option, print_json


@click.command()
@click.argument("package", metavar="PKG")
@click.option(
    "--lang",
    required=True,
    type=click.Choice(["cpp", "csharp", "kotlin", "python"]),
    help="The language of the application.",
)
@click.option("--target", help="The chip, by the name in the package. [default: the first]")
@click.option("--bucket", metavar="NAME", help="The sizes, by the name in the package. [default: the first]")
@json_option
def command(package: str, lang: str, target: str | None, bucket: str | None, as_json: bool) -> int:
    """Print a program that calls the package PKG with ONNX Runtime alone.

    It has the package's own names, types, sizes and files. `hexport snippet PKG --lang cpp > main.cpp`
    """
    from hexport.snippets.verb import snippet

    text = snippet(package, lang=lang, target=target, bucket=bucket)
    if as_json:
        print_json({"schema_version": 1, "package": package, "lang": lang, "code": text})
    else:
        click.echo(text, nl=False)
    return EXIT_OK
