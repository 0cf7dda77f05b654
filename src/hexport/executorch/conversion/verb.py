"""``convert``: code for the NPU between ExecuTorch's ``.pte`` and ONNX Runtime's EPContext models."""

from __future__ import annotations

from pathlib import Path

from hexport.errors import UsageError
from hexport.executorch.conversion.outcome import Conversion
from hexport.executorch.pte.failures import NotConvertible
from hexport.inspection.verb import kind_of
from hexport.toolchain import Limits
from hexport.whole_file import refuse_missing_folder

__all__ = ["Conversion", "convert"]

_FROM_PTE = (".onnx", ".bin", ".dlc")
_COMPILED = {"ep_context": True, "context_binary": False}


def convert(
    thing: str | Path,
    *,
    output: str | Path,
    method: str | None = None,
    delegate: int | None = None,
    graph: str | None = None,
    target: str | int | None = None,
    toolchain: str | None = None,
    limits: Limits | None = None,
) -> Conversion:
    """Turn ``thing`` into what the suffix of ``output`` says, and compare the two on the simulator.

    A ``.pte`` becomes an EPContext model (``.onnx``), or only its data is taken out (``.bin``, ``.dlc``);
    ``method`` and ``delegate`` choose among several. An EPContext model or a context binary becomes a
    ``.pte``; ``graph`` chooses among several, and ``target`` names the chip where the binary does not.
    """
    source, result = Path(thing), Path(output)
    refuse_missing_folder(result)
    kind, suffix = kind_of(source), result.suffix.lower()
    if kind == "pte":
        _refuse_suffix(source, suffix, _FROM_PTE)
        _refuse_wishes({"--graph": graph, "--target": target}, "a .pte says it itself")
        from hexport.executorch.conversion.to_onnx import to_onnx

        return to_onnx(source, result, method=method, delegate=delegate, limits=limits)
    if kind in _COMPILED:
        _refuse_suffix(source, suffix, (".pte",))
        _refuse_wishes({"--method": method, "--delegate": delegate}, "only a .pte has those")
        from hexport.executorch.conversion.to_pte import to_pte

        return to_pte(
            source,
            result,
            compiled_model=_COMPILED[kind],
            graph=graph,
            target=target,
            toolchain=toolchain,
            limits=limits,
        )
    raise NotConvertible(
        f"{source} is a {kind.replace('_', ' ')}",
        why="what is converted is code for the NPU: a .pte, an EPContext model or a context binary",
        next="hexport compile makes an EPContext model of an ONNX model",
    )


def _refuse_suffix(source: Path, suffix: str, taken: tuple[str, ...]) -> None:
    if suffix not in taken:
        raise UsageError(
            f"-o: {source} does not become a file {suffix or 'without a suffix'}",
            why=f"it becomes {' or '.join(taken)}",
            next="hexport wrap makes ONNX models of a context binary" if suffix == ".onnx" else "",
        )


def _refuse_wishes(wishes: dict[str, object], why: str) -> None:
    for name, value in wishes.items():
        if value is not None:
            raise UsageError(f"{name} {value} has no meaning here", why=why, next=f"leave {name} out")
