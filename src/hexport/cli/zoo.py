"""``hexport zoo``: list the models, fetch them, make inputs for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hexport import zoo
from hexport.cli.output import console, json_option, print_json
from hexport.errors import UsageError

if TYPE_CHECKING:
    from hexport.zoo.samples import Split


@click.group(name="zoo")
def command() -> None:
    """Real trained models to try things on, with real inputs.

    Wherever a verb takes MODEL, `zoo:NAME` is one of these.
    """


@command.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """List the models."""
    entries = [zoo.entry(name) for name in zoo.names()]
    if as_json:
        print_json({"schema_version": 1, "models": [_document(e) for e in entries]})
        return
    from rich.table import Table

    table = Table("Name", "What it does", "From", "Licence", "Here", box=None, pad_edge=False)
    for e in entries:
        wheel = e.source.wheel
        here = "✓" if zoo.present(e.name) else ""
        table.add_row(e.name, e.about, f"{wheel.package} {wheel.version}", e.licence, here)
    console().print(table)


@command.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Every model of the zoo.")
@json_option
def get(names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Fetch models into the cache and print their paths, one a line."""
    if bool(names) == everything:
        raise UsageError("give the names of models, or --all", next="`hexport zoo list` shows the names")
    wanted = zoo.names() if everything else list(names)
    for name in wanted:
        zoo.entry(name)  # a name that is wrong should not be found out after a long download
    paths = {}
    for name in wanted:
        paths[name] = str(zoo.get(name))
        if not as_json:
            click.echo(paths[name])
    if as_json:
        found = [_document(zoo.entry(name)) | {"path": path} for name, path in paths.items()]
        print_json({"schema_version": 1, "models": found})


@command.command()
@click.argument("name")
@click.option("-o", "--output", required=True, metavar="F.npz", help="Where to write them.")
@click.option("--count", default=8, show_default=True, help="How many.")
@click.option("--split", type=click.Choice(["calib", "test"]), default="calib", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Same seed, same inputs.")
@json_option
def inputs(name: str, output: str, count: int, split: Split, seed: int, as_json: bool) -> None:
    """Write real inputs for the model NAME: an array per input, the samples along its first axis."""
    import numpy as np

    target = Path(output)
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", next="make it, or choose another for -o")
    feeds = zoo.inputs(name, count=count, split=split, seed=seed)
    arrays = {key: np.stack([feed[key] for feed in feeds]) for key in feeds[0]}
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    if as_json:
        shapes = {key: {"shape": list(a.shape), "dtype": str(a.dtype)} for key, a in arrays.items()}
        print_json(
            {"schema_version": 1, "model": name, "split": split, "file": str(target), "arrays": shapes}
        )
        return
    for key, array in arrays.items():
        click.echo(f"{key}: {array.dtype} {'×'.join(str(n) for n in array.shape)}")
    click.echo(f"{count} {split} inputs for {name} in {target}")


def _document(entry: zoo.Entry) -> dict[str, object]:
    source = entry.source
    return {
        "name": entry.name,
        "about": entry.about,
        "package": source.wheel.package,
        "version": source.wheel.version,
        "member": source.path,
        "sha256": source.sha256,
        "exported": entry.exported,
        "licence": entry.licence,
        "package_licence": source.wheel.licence,
        "dims": entry.dims,
        "inputs": [
            {"name": i.name, "dtype": i.dtype, "dims": list(i.dims), "shape": list(i.shape)}
            for i in entry.inputs
        ],
        "present": zoo.present(entry.name),
    }
