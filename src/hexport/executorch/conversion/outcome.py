"""What converting came to, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class ConvertedTensor:
    """An input or output on both sides; quantised ones are integers with a scale and a zero point."""

    pte: str
    """Its name in the ``.pte``, or its number."""
    graph: str
    """In the context binary, and so in the ONNX model."""
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None

    def __str__(self) -> str:
        text = f"{self.pte} = {self.graph}: {self.dtype}[{','.join(map(str, self.shape))}]"
        if self.scale is None:
            return text
        return f"{text}, real = {self.scale:.9g} · (integer − {self.zero_point})"


@dataclass(frozen=True)
class Proof:
    """Both sides run on the simulator, on the same inputs."""

    identical: bool | None
    """To the last bit; None: it could not be tried."""
    why: str = ""


@dataclass(frozen=True)
class Conversion:
    """The result of ``convert``."""

    source: str
    files: tuple[str, ...]
    """What was written; the first is what was asked for."""
    method: str
    """Of the ``.pte``, and the graph's name in the binary."""
    chip: str
    sdk: str
    """That compiled it; empty: it was not asked."""
    inputs: tuple[ConvertedTensor, ...]
    outputs: tuple[ConvertedTensor, ...]
    proof: Proof
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        from hexport.records import to_plain

        plain: dict[str, object] = to_plain(self)
        return {"schema_version": 1, **plain}


def show(done: Conversion, console: Console) -> None:
    """Print it."""
    from rich.markup import escape

    where = f"for {done.chip}" if done.chip else "for a chip that it does not name"
    console.print(f"[bold]{escape(done.source)}[/] → [bold]{escape(done.files[0])}[/]")
    sdk = f", QNN SDK {done.sdk}" if done.sdk else ""
    console.print(f"  {escape(done.method)}, {escape(where)}{escape(sdk)}")
    for label, tensors in (("in ", done.inputs), ("out", done.outputs)):
        for tensor in tensors:
            console.print(f"  {label} {escape(str(tensor))}")
    if len(done.files) > 1:
        console.print(f"  beside it: {escape(', '.join(done.files[1:]))}")
    for note in done.notes:
        console.print(f"[yellow]![/] {escape(note)}")
    match done.proof.identical:
        case True:
            console.print("[green]✓[/] both give the same bits on the simulator")
        case False:
            console.print(f"[red]✗[/] {escape(done.proof.why)}")
        case None:
            console.print(f"[yellow]–[/] not compared: {escape(done.proof.why)}")
