"""A build for people."""

from __future__ import annotations

from math import inf

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hexport.building.outcome import Built
from hexport.observe.decibels import decibels
from hexport.packaging.manifest import CONTEXT_BINARY, OutputFigure


def show(built: Built, console: Console) -> None:
    """What was made, how exact it is, how large, and what to know."""
    manifest = built.manifest
    console.print(f"{escape(manifest.source.name)} → {escape(str(built.output))}, {manifest.scheme}")
    table = Table("target", "bucket", "binary", "SQNR", "worst output", "", box=None, pad_edge=False)
    for one in manifest.verification:
        binary = sum(
            a.bytes
            for a in manifest.artefacts
            if a.role == CONTEXT_BINARY
            and one.target in a.targets
            and (not a.buckets or one.bucket in a.buckets)
        )
        worst = min(one.outputs, key=_decibels)
        name = one.bucket if not one.true_dims else f"{one.bucket}, filled up from {_listed(one.true_dims)}"
        told = decibels(_decibels(worst))
        mark = "✓" if one.passed else "✗"
        table.add_row(one.target, name, _megabytes(binary), told, escape(worst.name), mark)
    console.print(table)
    for proof in built.proofs:
        if proof.padded:  # the others are among the notes
            console.print(escape(proof.sentence()))
    console.print(
        f"size {_megabytes(built.source_bytes)} → {_megabytes(built.package_bytes)}, {built.seconds:.0f} s"
        + (f", {sum(built.steps_taken.values())} steps from the cache" if built.steps_taken else "")
    )
    for note in manifest.notes:
        console.print(f"! {escape(note)}")
    for shortfall in built.shortfalls:
        console.print(f"✗ {escape(shortfall)}")
    if built.met:
        console.print("✓ built, and verified on the simulator")
    console.print(f"next: hexport inspect '{escape(str(built.output))}'")


def _decibels(figure: OutputFigure) -> float:
    value = figure.sqnr_db
    if isinstance(value, str):
        return inf if value == "exact" else -inf
    return value


def _listed(dims: dict[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
