"""Every operator that the facts call an integer one, every form and rule among them, on the simulator."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from hexport import facts
from hexport.facts.integer_ops import IntegerForm, integer_forms, integer_ops, integer_refusal, integer_rules
from hexport.facts.load import read_table
from operator_cases import IMAGE, SERIES, Array, Case, case, merged, numbers
from operator_forms import every
from operator_runs import CPU, FAILS, FLOAT, INTEGER, Measured, in_scheme, measure

TARGET = facts.find_target("SM8650")
OLDER = facts.find_target("SM8450")
SCHEMES = {"u8/s8": "8a8w", "u16/s8": "16a8w", "u16/s16": "16a16w", "u16/s4": "16a4w"}
WORSE_THAN_THIS_IS_WRONG = 45.0


def precision_of(op: str, wanted: str) -> str:
    """``activation/weight``, or the activation alone for operators without weights."""
    return wanted if integer_ops()[op].weights else wanted.partition("/")[0]


def refusal(one: Case, wanted: str, arch: int) -> str:
    (node,) = (node for node in one.nodes if node.op_type == one.op)
    given = {a.name: list(a.ints) or (a.s.decode() or a.f or a.i) for a in node.attribute}
    rank = next(iter(one.inputs.values())).ndim
    return integer_refusal(
        one.op, precision_of(one.op, wanted), arch=arch, rank=rank, inputs=len(node.input), attributes=given
    )


def taken(wanted: str, arch: int) -> list[Case]:
    """The cases that the facts allow; weights other than s8 are measured where there are weights."""
    return [
        one
        for one in every()
        if (wanted in ("u8/s8", "u16/s8") or integer_ops()[one.op].weights) and not refusal(one, wanted, arch)
    ]


@cache
def results(wanted: str, chip: str) -> dict[str, Measured]:
    target = facts.find_target(chip)
    return measure(taken(wanted, target.htp_arch), in_scheme(SCHEMES[wanted], arch=target.htp_arch), target)


def wanted_of(precision: str) -> str:
    return precision if "/" in precision else f"{precision}/s8"


ENTRIES = [(op, precision) for op, known in integer_ops().items() for precision in known.precisions]


@pytest.mark.parametrize(("op", "precision"), ENTRIES)
def test_an_entry_holds(op: str, precision: str) -> None:
    wanted = wanted_of(precision)
    mine = [one.name for one in taken(wanted, TARGET.htp_arch) if one.op == op]
    assert mine, "every entry is measured in some form"
    for name in mine:
        found = results(wanted, TARGET.chip)[name]
        assert found.place == INTEGER, found
        assert found.db >= integer_ops()[op].floor_db[precision], found


@pytest.mark.parametrize("wanted", ["u16/s8", "u16/s4"])
def test_weights_hold_on_an_older_generation(wanted: str) -> None:
    weighted = [one for one in taken(wanted, OLDER.htp_arch) if integer_ops()[one.op].weights]
    for name, found in measure(weighted, in_scheme(SCHEMES[wanted], arch=OLDER.htp_arch), OLDER).items():
        op = name.split()[0]
        assert (found.place, found.db >= integer_ops()[op].floor_db[wanted]) == (INTEGER, True), found


def test_the_older_generation_has_no_16_bit_weights() -> None:
    assert taken("u16/s16", OLDER.htp_arch) == []
    (matrix,) = (one for one in every() if one.name == "Gemm")
    assert measure([matrix], in_scheme("16a16w"), OLDER)["Gemm"].place == CPU


FORM_CASES = {
    "a 3D convolution": "Conv 3D",
    "4-bit weights": "ConvTranspose grouped",
    "a dilated convolution": "Conv dilated",
    "Gemm with alpha": "Gemm alpha",
    "cubic interpolation": "Resize cubic",
}


def assert_garbage(found: Measured) -> None:
    """Taken as integers without a word, and wrong."""
    assert found.place == INTEGER, found
    assert found.db < WORSE_THAN_THIS_IS_WRONG, found


@pytest.mark.parametrize("form", integer_forms(), ids=lambda form: form.form[:24])
def test_a_form_that_differs(form: IntegerForm) -> None:
    three = case("Max", [SERIES, SERIES, SERIES], form="of three")
    known = {one.name: one for one in [*every(), three]}
    name = next((name for start, name in FORM_CASES.items() if form.form.startswith(start)), three.name)
    wanted = form.precisions[0] if form.precisions else "u16/s8"
    found = measure([known[name]], in_scheme(SCHEMES[wanted], force=True), TARGET)[name]
    if form.effect == "wrong":
        assert_garbage(found)
    elif form.effect == "clips":
        plain = results(wanted, TARGET.chip)["Resize linear"]
        assert found.db_float < plain.db_float - 20, "the result's ends are cut off"
    else:
        assert found.place == {"fails": FAILS, "cpu": CPU, "float": FLOAT}[form.effect], found
    if form.effect != "clips":
        assert refusal(known[name], wanted, TARGET.htp_arch) == form.form


def test_what_is_left_out_of_a_type_is_rightly_left_out() -> None:
    """Log in u16 and CumSum in u8 are garbage, PRelu in u16 fails the session."""
    known = {one.name: one for one in every()}
    assert_garbage(measure([known["Log"]], in_scheme("16a8w", force=True), TARGET)["Log"])
    assert_garbage(measure([known["CumSum"]], in_scheme("8a8w", force=True), TARGET)["CumSum"])
    assert measure([known["PRelu"]], in_scheme("16a8w", force=True), TARGET)["PRelu"].place == FAILS


@pytest.mark.parametrize(("op", "scheme"), [("Log", "16a8w"), ("PRelu", "16a8w"), ("CumSum", "8a8w")])
def test_what_is_left_out_is_not_emitted(op: str, scheme: str) -> None:
    (one,) = (one for one in every() if one.name == op)
    assert not quantizers(in_scheme(scheme)(*merged([one])))


def quantizers(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]


def stored(node: ir.Node, index: int) -> Array:
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()


@pytest.mark.parametrize("wanted", SCHEMES)
def test_weights_are_emitted_without_a_zero_point(wanted: str) -> None:
    weighted = [one for one in taken(wanted, TARGET.htp_arch) if integer_ops()[one.op].kind == "weighted"]
    model = in_scheme(SCHEMES[wanted])(*merged(weighted))
    constants = [node for node in quantizers(model) if "_weight" in str(node.name)]
    assert len(constants) == len(weighted)
    assert all(not stored(node, 2).any() for node in constants)


def test_the_second_factor_is_emitted_as_8_bits() -> None:
    model = in_scheme("16a8w")(*merged([case("MatMul", [(1, 4, 24, 32), (1, 4, 32, 24)])]))
    (product,) = (node for node in model.graph if node.op_type == "MatMul")
    kinds = []
    for value in product.inputs:
        assert value is not None
        maker = value.producer()
        assert maker is not None
        kinds.append(stored(maker, 2).dtype)
    assert kinds == [np.uint16, np.int8]


@pytest.mark.parametrize(("op", "low", "high"), [("Sigmoid", 0, 1), ("HardSigmoid", 0, 1), ("Tanh", -1, 1)])
def test_bounded_results_are_emitted_over_their_whole_range(op: str, low: int, high: int) -> None:
    model = in_scheme("16a8w")(*merged([case(op, [numbers(IMAGE, op, -0.5, 0.5)])]))
    last = quantizers(model)[-1]
    scale, zero = float(stored(last, 1)), int(stored(last, 2))
    assert math.isclose((0 - zero) * scale, low)
    assert math.isclose((65536 - zero) * scale, high)


def test_a_floor_must_be_given_for_every_precision() -> None:
    known = 'names = ["X"]\nkind = "elementwise"\nsource = "s"\n'
    text = f'[[op]]\n{known}types = ["u8", "u16"]\nfloor_db = {{ u8 = 1 }}\n'
    with pytest.raises(facts.FactsError, match="floor_db must be given for u8, u16"):
        read_table(text, "x.toml", "op", facts.IntegerOp)


def test_refusals_say_why() -> None:
    assert integer_refusal("Erf", "u8", arch=75) == "the NPU has no integer Erf"
    assert integer_refusal("Log", "u16", arch=75) == "Log is wrong in u16"
    assert integer_refusal("Conv", "u16/s16", arch=69, rank=4) == "HTP v69 has no s16 weights"
    assert integer_refusal("Conv", "u16/s2", arch=75) == "Conv has no weights in s2"
    assert integer_refusal("Conv", "u16/s16", arch=73, rank=4, attributes={"dilations": [1, 1]}) == ""


def test_gains_by_generation() -> None:
    layer = integer_ops()["LayerNormalization"]
    assert [layer.gain_type("u16", 69), layer.gain_type("u16", 73), layer.gain_type("u8", 79)] == [
        "u8",
        "s16",
        "u8",
    ]
    assert integer_ops()["InstanceNormalization"].gain_type("u16", 68) == "u16"


def test_the_page_has_every_operator_form_and_rule() -> None:
    page = (Path(__file__).parent.parent / "docs" / "numerics.md").read_text("utf-8")
    assert [op for op in integer_ops() if f"| {op} |" not in page] == []
    assert [form.form for form in integer_forms() if form.form not in page] == []
    assert [rule.id for rule in integer_rules().values() if rule.statement not in page] == []
