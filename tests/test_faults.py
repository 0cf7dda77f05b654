"""The list of the compiler's mistakes fits the rules that cure them."""

from __future__ import annotations

import pytest

from hexport.facts import FactsError
from hexport.facts.faults import Fault, faults
from hexport.facts.load import read_table
from hexport.rewrite.catalogue import RULES
from hexport.rewrite.pinning import PinRule
from hexport.rewrite.rule import Purpose


@pytest.mark.parametrize(
    "fault", [fault for fault in faults() if fault.rule], ids=lambda fault: f"{fault.op}-{fault.rule}"
)
def test_names_a_rule_that_is_for_it(fault: Fault) -> None:
    rule = {rule.__name__: rule for rule in RULES}[fault.rule]
    assert rule.purpose is Purpose.FAULT
    assert fault.op in rule.cures
    assert issubclass(rule, PinRule) == fault.pin


def test_every_test_is_listed_once() -> None:
    listed = [test for fault in faults() for test in fault.tests]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('effect = "odd"\nrule = "R"', "'odd' is none of wrong, fails, kills"),
        ('effect = "wrong"\npin = true\nnote = "n"', "pin belongs to a rule"),
        ('effect = "wrong"', "needs a note"),
    ],
)
def test_refuses_what_does_not_fit(text: str, why: str) -> None:
    entry = f'[[fault]]\nop = "X"\nform = "f"\nsource = "s"\n{text}'
    with pytest.raises(FactsError) as error:
        read_table(entry, "faults.toml", "fault", Fault)
    assert why in str(error.value.why)
