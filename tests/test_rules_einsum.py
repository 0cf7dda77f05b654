"""Einsum → MatMul, Mul and ReduceSum."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexport.rewrite.support.einsum_to_matmul import EinsumToMatMul
from rule_checks import assert_equivalent, cpu_ops, htp_sqnr, random_feeds, rewritten, verdict
from rule_forms import I64, Form, Typed, side_by_side

EQUATIONS = [
    ("i,j->ij", (3,), (4,)),
    ("bi,bj->bij", (2, 3), (2, 4)),
    ("ij,jk->ki", (3, 4), (4, 5)),
    ("bi,bi->b", (2, 3), (2, 3)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ijk,k->ij", (2, 3, 4), (4,)),
    ("bnqd,btnd->bntq", (1, 2, 3, 4), (1, 5, 2, 4)),
    ("i,ij->ij", (2,), (2, 3)),
    ("bci,bcj->bij", (2, 3, 4), (2, 3, 5)),
    ("bkhw,bck->bchw", (1, 4, 3, 3), (1, 5, 4)),
    ("...ij, ...jk", (2, 2, 3, 4), (2, 2, 4, 3)),
    ("abc,bd->ad", (2, 3, 4), (3, 5)),
    ("ij,ij->ij", (1, 3), (4, 3)),
    ("ij,jk->ik", (2, 1), (4, 3)),
    ("ij->ji", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij->ij", (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
]
FORMS = {
    text: Form(EinsumToMatMul, "Einsum", tuple(shapes), {"equation": text}) for text, *shapes in EQUATIONS
}


@pytest.mark.parametrize("text", FORMS)
def test_equivalent(text: str) -> None:
    before = FORMS[text].model()
    after, done = rewritten(before, EinsumToMatMul())
    assert [(a.rule, a.nodes) for a in done] == [("EinsumToMatMul", ("it",))]
    assert_equivalent(before, after, [random_feeds(before, seed) for seed in range(3)], atol=1e-5)


def test_an_old_opset() -> None:
    before = Form(EinsumToMatMul, "Einsum", ((2, 3, 4), (3, 5)), {"equation": "abc,bd->ad"}, opset=12).model()
    after, _ = rewritten(before, EinsumToMatMul())
    assert_equivalent(before, after, [random_feeds(before)], atol=1e-5)


REASONS = {
    "a diagonal": Form(EinsumToMatMul, "Einsum", ((3, 3),), {"equation": "ii->i"}),
    "not known to be float": Form(EinsumToMatMul, "Einsum", (Typed((2, 3), I64),), {"equation": "ij->ji"}),
}


@pytest.mark.parametrize("reason", REASONS)
def test_says_why_not(reason: str) -> None:
    rule = EinsumToMatMul()
    _, done = rewritten(REASONS[reason].model(), rule)
    assert not done
    ((node, why),) = set(rule.missed)
    assert node == "it"
    assert reason in why


def test_the_backend_before_and_after() -> None:
    before = side_by_side([form.model() for form in FORMS.values()])
    refused = {node.name for node in verdict(before).cpu_nodes}
    assert refused == {node.name for node in before.graph.node}
    after, _ = rewritten(before, EinsumToMatMul())
    assert not cpu_ops(after)
    assert htp_sqnr(before, after, [random_feeds(before)]) > 50


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    a = "".join(draw(st.permutations("abcde")))[: draw(st.integers(1, 4))]
    b = "".join(draw(st.permutations("abcde")))[: draw(st.integers(1, 4))]
    labels = draw(st.permutations(sorted(set(a + b))))
    out = "".join(labels[: draw(st.integers(0, len(labels)))])
    sizes = dict(zip("abcde", draw(st.lists(st.integers(1, 3), min_size=5, max_size=5)), strict=True))
    return f"{a},{b}->{out}", tuple(sizes[x] for x in a), tuple(sizes[x] for x in b)


@given(equations())
@settings(max_examples=15, deadline=None)
def test_any_contraction(case: tuple[str, tuple[int, ...], tuple[int, ...]]) -> None:
    equation, a, b = case
    before = Form(EinsumToMatMul, "Einsum", (a, b), {"equation": equation}).model()
    after, done = rewritten(before, EinsumToMatMul())
    assert done
    assert "Einsum" not in {node.op_type for node in after.graph.node}
    assert_equivalent(before, after, [random_feeds(before)], atol=1e-4)
