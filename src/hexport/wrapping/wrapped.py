"""What wrapping came to, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class WrappedTensor:
    """An input or output; quantised ones are integers with a scale and a zero point."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero_point: int | None = None

    def __str__(self) -> str:
        text = f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"
        if self.scale is None:
            return text
        return f"{text}, real = {self.scale:.9g} · (integer − {self.zero_point})"


@dataclass(frozen=True)
class WrappedGraph:
    """One graph of the binary, and the model that calls it."""

    graph: str
    model: str
    inputs: tuple[WrappedTensor, ...]
    outputs: tuple[WrappedTensor, ...]
    loads: bool | None
    """Whether the simulator loaded it; None: it cannot be tried here."""
    loads_why: str = ""


@dataclass(frozen=True)
class Wrapping:
    """The result of ``wrap``."""

    binary: str
    """The copy that the models name."""
    sdk: str
    soc_models: tuple[int, ...]
    htp_archs: tuple[int, ...]
    graphs: tuple[WrappedGraph, ...]

    def to_json(self) -> dict[str, object]:
        """The document of ``--json``."""
        from hexport.records import to_plain

        plain: dict[str, object] = to_plain(self)
        return {"schema_version": 1, **plain}


def show(result: Wrapping, console: Console) -> None:
    """Print it."""
    from rich.markup import escape

    chips = ", ".join(f"SoC {n}" for n in result.soc_models) or "no chip named"
    console.print(f"[bold]{escape(result.binary)}[/] for {chips}, QNN SDK {escape(result.sdk)}")
    for graph in result.graphs:
        mark = "[yellow]–[/]" if graph.loads is None else "[green]✓[/]" if graph.loads else "[red]✗[/]"
        console.print(f"{mark} {escape(graph.graph)} → [bold]{escape(graph.model)}[/]")
        for label, tensors in (("in ", graph.inputs), ("out", graph.outputs)):
            for tensor in tensors:
                console.print(f"    {label} {escape(str(tensor))}")
        if graph.loads_why:
            said = "not proved" if graph.loads is None else "the simulator does not load it"
            console.print(f"    {said}: {escape(graph.loads_why)}")
