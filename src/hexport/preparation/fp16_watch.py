"""What fp16 cannot hold, before the rules and after them: which dangers they cured, and which remain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hexport.errors import HexportError
from hexport.preparation.ranges import Danger, Finding, Range, find_dangers, measure_ranges
from hexport.preparation.workbench import Workbench

_SHOWN = 2
# Danger → what is said of one finding; the tensor, its operator and its node are named with it.
_SAYS = {
    Danger.OVERFLOW: "tensor `{tensor}` reaches {value:.3g} at {op} `{node}`, fp16 ends at 65504",
    Danger.UNDERFLOW: "tensor `{tensor}` is at most {value:.3g} at {op} `{node}`, fp16 loses it below 6e-5",
    Danger.LOST_FLOOR: "the floor `{tensor}` of {op} `{node}` is {value:.3g}, which is 0 in fp16",
    Danger.GIANT_CONSTANT: "the constant `{tensor}` of {op} `{node}` is {value:.3g}, fp16 ends at 65504",
}


@dataclass(frozen=True)
class Fp16Danger:
    """One finding, and what became of it."""

    danger: str
    tensor: str
    op: str
    node: str
    value: float
    cured: bool


class LazyRanges(Mapping[str, Range]):
    """The ranges of the model on the bench as it is when the first of them is asked for.

    Most rules never ask, and rules that came before have given tensors other names.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._ranges: dict[str, Range] | None = None

    def __getitem__(self, name: str) -> Range:
        return self._measured()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._measured())

    def __len__(self) -> int:
        return len(self._measured())

    def _measured(self) -> dict[str, Range]:
        if self._ranges is None:
            self._ranges = _measure(self._bench)
        return self._ranges


def look(bench: Workbench) -> tuple[Finding, ...]:
    """What fp16 cannot hold of the model on the bench, by its samples."""
    return find_dangers(bench.model, _measure(bench))


def _measure(bench: Workbench) -> dict[str, Range]:
    return measure_ranges(bench.model, bench.samples, folder=bench.folder, limits=bench.limits)


def look_again(bench: Workbench, before: Sequence[Finding]) -> tuple[Fp16Danger, ...]:
    """The findings of before, each cured or not, and those that are new."""
    if not before:
        return ()
    return judge(before, look(bench))


def judge(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Fp16Danger, ...]:
    """Pair what was found before the rules with what is found after them.

    A rule gives tensors other names, so what is found under a new name takes the place of one of its kind.
    """
    known = {(found.danger, found.tensor) for found in after}
    gone = [found for found in before if (found.danger, found.tensor) not in known]
    old = {(found.danger, found.tensor) for found in before}
    for moved in [found for found in after if (found.danger, found.tensor) not in old]:
        partner = next((found for found in gone if found.danger is moved.danger), None)
        if partner is not None:
            gone.remove(partner)
    return (*(_record(f, cured=False) for f in after), *(_record(f, cured=True) for f in gone))


def _record(found: Finding, *, cured: bool) -> Fp16Danger:
    return Fp16Danger(found.danger.value, found.tensor, found.op, found.node, found.value, cured)


def sentences(dangers: Sequence[Fp16Danger]) -> list[str]:
    """A line for each kind that remains, with the first few, and one for all that were cured."""
    said: list[str] = []
    for kind, form in _SAYS.items():
        found = [danger for danger in dangers if danger.danger == kind.value and not danger.cured]
        if found:
            more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            shown = "; ".join(form.format(**vars(danger)) for danger in found[:_SHOWN])
            said.append(f"fp16 {kind.value}: {shown}{more}")
    cured = [danger for danger in dangers if danger.cured]
    if cured:
        names = ", ".join(f"{d.danger} at {d.op} `{d.node}`" for d in cured[:_SHOWN])
        more = f" and {len(cured) - _SHOWN} more" if len(cured) > _SHOWN else ""
        said.append(f"cured by the rules: {names}{more}")
    return said


def not_measured(error: HexportError) -> str:
    """What is said when the ranges could not be found out: the model is prepared all the same."""
    return f"what fp16 cannot hold was not looked for: {error.what}: {error.why}".splitlines()[0]
