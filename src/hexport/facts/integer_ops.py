"""Which operators the HTP computes in integers, in which types, and what must be kept away from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from hexport.facts.load import one_of, read_entries
from hexport.records import RecordError

KINDS = ("weighted", "product", "norm", "elementwise", "pooling", "moving", "deciding")
EFFECTS = ("fails", "cpu", "float", "wrong", "clips")
TYPES = ("u8", "u16", "s8", "s16", "s4")
_ALWAYS_GAIN = "u8"


@dataclass(frozen=True)
class IntegerOp:
    """Operators that are treated alike."""

    names: tuple[str, ...]
    kind: str
    types: tuple[str, ...]
    """What its activations may be: ``u8``, ``u16``."""
    floor_db: Mapping[str, float]
    """By ``activation`` or ``activation/weight``: no form on any chip was further from onnxruntime's CPU."""
    source: str
    range: tuple[float, ...] = ()
    """The least and the most its result can be, for operators that bound it."""
    power_of_two: tuple[str, ...] = ()
    """Types in which it is wrong at a graph's end unless its scale is the range over a power of two."""
    weights: tuple[str, ...] = ()
    """What constant weights may be, always without a zero point."""
    right: Mapping[str, str] = field(default_factory=dict)
    """The activations' type -> the type that a second factor which is not constant must have."""
    gain: Mapping[str, str] = field(default_factory=dict)
    """The activations' type -> the most exact type of a normalisation's gain."""
    min_arch: Mapping[str, int] = field(default_factory=dict)
    """A type of weights or gains -> the first HTP generation that takes it."""
    note: str = ""

    def __post_init__(self) -> None:
        one_of(self.kind, KINDS, "kind")
        for name in (*self.types, *self.weights, *self.right.values(), *self.gain.values(), *self.min_arch):
            one_of(name, TYPES, self.names[0])
        if len(self.range) not in (0, 2):
            raise RecordError(f"{self.names[0]}: a range has two ends")
        if set(self.floor_db) != set(self.precisions):
            raise RecordError(f"{self.names[0]}: floor_db must be given for {', '.join(self.precisions)}")

    @property
    def precisions(self) -> tuple[str, ...]:
        """Every key of ``floor_db``: u16 takes each type of weights, u8 only 8 bits."""
        if not self.weights:
            return self.types
        return tuple(f"{a}/{w}" for a in self.types for w in self.weights if a == "u16" or w == "s8")

    def has(self, type_: str, arch: int) -> bool:
        """Whether generation ``arch`` takes weights or gains of the type."""
        return arch >= self.min_arch.get(type_, 0)

    def gain_type(self, activation: str, arch: int) -> str:
        """The most exact gain that generation ``arch`` takes beside such activations."""
        best = self.gain.get(activation, _ALWAYS_GAIN)
        return best if self.has(best, arch) else _ALWAYS_GAIN


@dataclass(frozen=True)
class IntegerForm:
    """Forms of a listed operator that the HTP does not compute in integers as it does the others."""

    ops: tuple[str, ...]
    effect: str
    """The session ``fails``, it is on the ``cpu`` or in ``float``, is ``wrong``, or ``clips`` its result."""
    form: str
    """Which ones, in words."""
    source: str
    precisions: tuple[str, ...] = ()
    """``activation/weight``; empty for all."""
    ranks: tuple[int, ...] = ()
    """Dims of the first input; empty for all."""
    inputs: int = 0
    """It shows from so many inputs on; 0 for any number."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attribute -> the value, or ``>1`` for any above 1, ``!=1`` for any other than 1."""

    def __post_init__(self) -> None:
        one_of(self.effect, EFFECTS, "effect")

    def fits(self, precision: str, rank: int, inputs: int, attributes: Mapping[str, object]) -> bool:
        """Whether a node is of this form; ``attributes`` are those that the node gives."""
        return (
            (not self.precisions or precision in self.precisions)
            and (not self.ranks or rank in self.ranks)
            and inputs >= self.inputs
            and (not self.attributes or any(_holds(v, attributes.get(k)) for k, v in self.attributes.items()))
        )


@dataclass(frozen=True)
class IntegerRule:
    """What a quantised model must keep to, or the HTP is wrong without a word."""

    id: str
    statement: str
    source: str
    value: float | None = None
    """The number in the statement that programs use."""
    sizes: tuple[int, ...] = ()
    """The sizes that it is about; empty for all."""


def _holds(condition: str, given: object) -> bool:
    values = given if isinstance(given, (list, tuple)) else [given]
    if given is None:
        return False
    if condition == ">1":
        return any(isinstance(v, (int, float)) and v > 1 for v in values)
    if condition == "!=1":
        return any(v != 1 for v in values)
    return any(str(v) == condition for v in values)


def integer_refusal(
    op: str,
    precision: str,
    *,
    arch: int,
    rank: int = 0,
    inputs: int = 0,
    attributes: Mapping[str, object] | None = None,
) -> str:
    """Why a node must not be put in integers as ``activation`` or ``activation/weight``; empty if it may."""
    known = integer_ops().get(op)
    if known is None:
        return f"the NPU has no integer {op}"
    activation, _, weight = precision.partition("/")
    if activation not in known.types:
        return f"{op} is wrong in {activation}"
    if weight and weight not in known.weights:
        return f"{op} has no weights in {weight}"
    if weight and not known.has(weight, arch):
        return f"HTP v{arch} has no {weight} weights"
    for form in integer_forms():
        if op in form.ops and form.effect != "clips" and form.fits(precision, rank, inputs, attributes or {}):
            return form.form
    return ""


@cache
def integer_ops() -> dict[str, IntegerOp]:
    """By the operator's name."""
    entries = read_entries("integer_ops.toml", "op", IntegerOp)
    return {name: entry for entry in entries for name in entry.names}


@cache
def integer_forms() -> tuple[IntegerForm, ...]:
    """Every form that differs."""
    return read_entries("integer_ops.toml", "form", IntegerForm)


@cache
def integer_rules() -> dict[str, IntegerRule]:
    """By id."""
    return {rule.id: rule for rule in read_entries("integer_ops.toml", "rule", IntegerRule)}
