"""The switchboard: a node's harm is what quantising that node alone does to the outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import small_models as small
from hexport.quantization import emitting, switches
from hexport.quantization.htp_sums import htp_sums
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.switches import Harm, harms
from hexport.quantization.workshop import Workshop
from quantised_graphs import ARCH, PLAIN, cnn, normal, quantised, transformer, workshop
from rule_checks import cpu, random_feeds

make = helper.make_node


def measured(shop: Workshop, plan: Plan, recipe: Recipe = PLAIN) -> list[Harm]:
    samples = list(shop.data)[:1]
    return harms(
        shop.model,
        plan,
        shop.activations(recipe.ranges),
        shop.integers(plan, recipe),
        samples,
        shop.folder,
        ARCH,
    )


def noise(proto: onnx.ModelProto, result: onnx.ModelProto) -> np.ndarray:
    """Noise over signal at each output, on the first sample; sums are cut off as on the HTP."""
    feeds, judged = random_feeds(proto), ir.from_proto(result)
    with htp_sums(judged):
        read = ir.to_proto(judged)
    pairs = zip(cpu(proto, feeds), cpu(read, feeds), strict=True)
    return np.array(
        [np.sum((b - a.astype(np.float64)) ** 2) / np.sum(a.astype(np.float64) ** 2) for a, b in pairs]
    )


def alone(shop: Workshop, plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan with all in float but these."""
    cut = plan.copy()
    for name in cut.precisions:
        if name not in names:
            cut.precisions[name] = FLOAT
    return cut


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w", "16a4w"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("proto", [cnn(), transformer()], ids=["cnn", "transformer"])
def test_a_nodes_harm_is_that_of_quantising_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, corrected: bool, proto: onnx.ModelProto
) -> None:
    # fp16 between the float nodes would be noise of its own.
    monkeypatch.setattr(emitting._Emitter, "_fence", lambda self, node: None)
    monkeypatch.setattr(emitting, "feed_split_inputs", lambda model: None)
    shop = workshop(proto, tmp_path)
    plan = plan_for(shop.model, SCHEMES[scheme], ARCH)
    recipe = Recipe("min-max", carry_errors=False, correct_bias=corrected)
    found = {harm.nodes: harm.noise for harm in measured(shop, plan, recipe)}
    assert {name for names in found for name in names} == set(plan.precisions)
    # The first reads what no other node has rounded, so that alone it is what it is among others.
    first = (str(shop.model.graph[0].name),)
    expected = noise(proto, quantised(shop, alone(shop, plan, first), recipe))
    # A rounding or two that falls the other way shows, where the mean error was corrected.
    np.testing.assert_allclose(found[first], expected, rtol=0.2)


def many_operators() -> onnx.ModelProto:
    """Each reads x[1,4,8,8] and makes an output of its own."""
    ones = {"conv": ["w", "b"], "matmul": ["m"], "add": ["m"], "norm": ["gain", "shift"], "product": ["x"]}
    names = {
        "conv": "Conv",
        "matmul": "MatMul",
        "add": "Add",
        "norm": "LayerNormalization",
        "product": "MatMul",
    }
    nodes = [make(names[name], ["x", *rest], [f"{name}_y"], name=name) for name, rest in ones.items()]
    nodes += [make(op, ["x"], [f"{op}_y"], name=op) for op in ("Softmax", "Tanh", "Exp", "GlobalAveragePool")]
    constants = {
        "w": normal(4, 4, 1, 1), "b": normal(4), "m": normal(8, 8), "gain": 1 + normal(8, scale=0.1),
        "shift": normal(8),
    }  # fmt: skip
    return small.model(
        nodes,
        [small.value("x", [1, 4, 8, 8])],
        [small.value(node.output[0], None) for node in nodes],
        [small.constant(name, array) for name, array in constants.items()],
        opset=21,
    )


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w", "16a16w", "16a4w"])
def test_a_node_harms_the_outputs_it_leads_to_and_no_other(tmp_path: Path, scheme: str) -> None:
    proto = many_operators()
    shop = workshop(proto, tmp_path)
    plan = plan_for(shop.model, SCHEMES[scheme], ARCH)
    expected = noise(proto, quantised(shop, plan))
    table = np.array([harm.noise for harm in measured(shop, plan)])
    assert np.all(expected > 0)
    np.testing.assert_allclose(table, np.diag(expected), rtol=0.05)


def test_nodes_that_share_their_weights_are_one(tmp_path: Path) -> None:
    proto = small.model(
        [make("Conv", ["x", "w"], ["a"], name="first"), make("Conv", ["a", "w"], ["y"], name="second")],
        [small.value("x", [1, 4, 8, 8])],
        [small.value("y", None)],
        [small.constant("w", normal(4, 4, 1, 1))],
    )
    shop = workshop(proto, tmp_path)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    (harm,) = measured(shop, plan)
    assert harm.nodes == ("first", "second")
    np.testing.assert_allclose(harm.noise, noise(proto, quantised(shop, plan)), rtol=0.02)


def test_a_reader_in_another_type_rounds_for_itself(tmp_path: Path) -> None:
    """What leaves the first node in 16 bits enters the second in 8."""
    proto = small.model(
        [make("Conv", ["x", "w"], ["a"], name="fine"), make("Conv", ["a", "w2"], ["y"], name="coarse")],
        [small.value("x", [1, 4, 8, 8])],
        [small.value("y", None)],
        [small.constant("w", normal(4, 4, 1, 1)), small.constant("w2", normal(4, 4, 1, 1, seed=1))],
    )
    shop = workshop(proto, tmp_path)
    plan = plan_for(shop.model, SCHEMES["16a16w"], ARCH)
    plan.set("coarse", SCHEMES["8a8w"], "for a test")
    fine, coarse = (harm.noise for harm in measured(shop, plan))
    expected = noise(proto, quantised(shop, alone(shop, plan, ("coarse",))))
    np.testing.assert_allclose(coarse, expected, rtol=0.02)
    assert fine < coarse / 100


def test_many_nodes_are_looked_at_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loud node among quiet ones is found, and the sum is kept."""
    monkeypatch.setattr(switches, "_FIRST_GROUPS", 3)
    names = [f"n{i}" for i in range(17)]
    nodes = [
        make("Mul", ["x" if i == 0 else f"t{i - 1}", "one"], [f"t{i}"], name=name)
        for i, name in enumerate(names)
    ]
    nodes.insert(9, make("Mul", ["t8", "thousandth"], ["s"], name="loud"))
    nodes[10].input[0] = "s"
    nodes.append(make("Concat", ["t16"], ["y"], name="end", axis=0))
    constants = [
        small.constant("one", np.array(1, np.float32)),
        small.constant("thousandth", np.array(1, np.float32)),
    ]
    proto = small.model(nodes, [small.value("x", [64])], [small.value("y", [64])], constants)
    shop = workshop(proto, tmp_path)
    plan = plan_for(shop.model, SCHEMES["16a8w"], ARCH)
    plan.set("loud", SCHEMES["8a8w"], "for a test")
    plan.precisions["loud"] = type(plan.precisions["n0"])(SCHEMES["8a8w"].activation)
    found = {harm.nodes[0]: float(harm.noise[0]) for harm in measured(shop, plan)}
    assert max(found, key=lambda name: found[name]) == "loud"
    expected = noise(proto, quantised(shop, alone(shop, plan, ("loud",))))
    assert found["loud"] == pytest.approx(expected[0], rel=0.02)


def test_outputs_that_are_decisions_zeros_or_no_numbers(tmp_path: Path) -> None:
    nodes = [
        make("Conv", ["x", "w"], ["a"], name="conv"),
        make("ArgMax", ["a"], ["index"], name="argmax", axis=1),
        make("Mul", ["a", "zero"], ["nothing"], name="nothing"),
        make("Log", ["a"], ["logs"], name="log"),
    ]
    outputs = [
        small.value("a", None), small.value("index", None, TensorProto.INT64), small.value("nothing", None),
        small.value("logs", None),
    ]  # fmt: skip
    constants = [small.constant("w", normal(4, 4, 1, 1)), small.constant("zero", np.array(0, np.float32))]
    proto = small.model(nodes, [small.value("x", [1, 4, 8, 8])], outputs, constants)
    shop = workshop(proto, tmp_path)
    plan = plan_for(shop.model, SCHEMES["8a8w"], ARCH)
    plan.set("log", FLOAT, "for a test")
    for harm in measured(shop, plan):
        assert np.isfinite(harm.noise).all()
        assert harm.noise[2] == 0


def test_a_plan_without_integers_harms_nothing(tmp_path: Path) -> None:
    shop = workshop(cnn(), tmp_path)
    assert measured(shop, plan_for(shop.model, FLOAT, ARCH)) == []
