"""``compare``: one model through two compilers or backends, and whether the second is worse."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hexport.backend.where import HTP
from hexport.comparison.failures import NothingCompared
from hexport.comparison.measuring import Measured, measure
from hexport.comparison.numerics import loaded_rows, numeric_rows
from hexport.comparison.outcome import SideBySide
from hexport.comparison.package import open_package_subject
from hexport.comparison.regression import compiled_rows, new_cpu_nodes
from hexport.comparison.sides import Side, make_sides
from hexport.comparison.subject import Subject, open_model
from hexport.comparison.tolerance import MAX_DROP_DB, MAX_MORE, Tolerance, make_tolerance
from hexport.comparison.wishes import Wishes
from hexport.errors import UsageError
from hexport.model.dims import Shape
from hexport.toolchain import Limits

__all__ = ["SideBySide", "compare"]


def compare(
    thing: str | Path,
    *,
    toolchains: Sequence[str] = (),
    backends: Sequence[str] = (),
    target: str | int | None = None,
    reference: str | Path | None = None,
    inputs: str | Path | None = None,
    max_more: str | float = MAX_MORE,
    max_drop_db: float = MAX_DROP_DB,
    bucket: str | None = None,
    samples: int | None = None,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    limits: Limits | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SideBySide:
    """Compile and run ``thing``, a model or a package, on both sides, and hold their figures side by side.

    A side that fails is a part of the result; that both fail is an error. ``say`` is told what is done.
    """
    started = time.perf_counter()
    tolerance = make_tolerance(max_more, max_drop_db)
    a, b = make_sides(toolchains, backends)
    wishes = Wishes(
        target,
        reference,
        None if inputs is None else Path(inputs),
        samples,
        bucket,
        dims or {},
        input_shapes or {},
        limits or Limits(),
    )
    say("the original on the CPU")
    if Path(thing).is_dir():
        subject = open_package_subject(thing, wishes)
    else:
        _refuse_chip(thing, target, (a, b))
        subject = open_model(thing, wishes)
    say(f"A, {a.backend} of {a.toolchain}")
    left = measure(a, subject, wishes.limits)
    say(f"B, {b.backend} of {b.toolchain}")
    right = measure(b, subject, wishes.limits)
    _refuse_two_failures(left, right)
    return _outcome(subject, left, right, tolerance, time.perf_counter() - started)


def _outcome(subject: Subject, a: Measured, b: Measured, tolerance: Tolerance, seconds: float) -> SideBySide:
    rows = [
        *compiled_rows(a, b, tolerance),
        *numeric_rows(subject.expected, a, b, tolerance),
    ]
    if a.loaded is not None and b.loaded is not None:
        rows += loaded_rows(subject.expected, a.loaded, b.loaded, tolerance)
    return SideBySide(
        subject=subject.given,
        compiled=subject.what,
        reference=subject.reference,
        target=subject.soc.chip if subject.soc else None,
        bucket=subject.bucket,
        input_shapes=dict(subject.shapes),
        samples=len(subject.samples),
        inputs=subject.inputs.origin,
        real_inputs=subject.inputs.real,
        a=a.side,
        b=b.side,
        failures={name: one.failure for name, one in (("a", a), ("b", b)) if one.failure is not None},
        rows=tuple(rows),
        new_cpu_nodes=new_cpu_nodes(a, b),
        tolerance=tolerance,
        notes=(*subject.inputs.notes, *subject.notes, *_warnings(a, b)),
        seconds=seconds,
    )


def _refuse_chip(thing: str | Path, target: str | int | None, sides: Sequence[Side]) -> None:
    """Of a model: a package has chips of its own."""
    on_npu = any(side.backend == HTP for side in sides)
    if on_npu and target is None:
        raise UsageError(
            f"for which chip shall {thing} be compiled?",
            why="the NPU's compiler makes code for one chip",
            next=f"hexport compare '{thing}' --target SM8650 …; `hexport targets` lists them",
        )
    if target is not None and not on_npu:
        raise UsageError(
            f"--target {target} has no meaning here",
            why=f"neither {sides[0].backend} nor {sides[1].backend} compiles for a chip",
            next="leave it out",
        )


def _refuse_two_failures(a: Measured, b: Measured) -> None:
    if a.failure is None or b.failure is None:
        return
    told = [
        f"{one.side.backend} of {one.side.toolchain}: {one.failure.code} {one.failure}"
        for one in (a, b)
        if one.failure is not None
    ]
    raise NothingCompared(
        "neither side could compile and run the model",
        why="\n".join(told),
        next="what each says above; hexport check with its --toolchain tells more",
    )


def _warnings(a: Measured, b: Measured) -> list[str]:
    """Of both sides, with the one that said it where the other did not."""
    said = [_said(one) for one in (a, b)]
    both = [warning for warning in said[0] if warning in said[1]]
    alone = [f"{name}: {w}" for name, own in zip("AB", said, strict=True) for w in own if w not in both]
    return [*both, *alone]


def _said(measured: Measured) -> list[str]:
    doubt = measured.side.doubt
    return [
        *([f"the last test of the toolchain failed: {doubt}"] if doubt else []),
        *(measured.verdict.warnings if measured.verdict else ()),
    ]
