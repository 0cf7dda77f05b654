"""The catalogue of rules: complete, in order, selectable, and open to users' own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from importlib.metadata import EntryPoint

import pytest

import hexport.rewrite
from hexport.errors import UsageError
from hexport.rewrite import catalogue, offered
from hexport.rewrite.catalogue import RULES, select_rules
from hexport.rewrite.rule import Purpose, Rule
from hexport.rewrite.support.pow_to_mul import PowToMul


def written() -> set[type[Rule]]:
    """Every rule there is a file for: concrete, named, and not only there to be derived from."""
    found: set[type[Rule]] = set()
    for module in pkgutil.walk_packages(hexport.rewrite.__path__, "hexport.rewrite."):
        for member in vars(importlib.import_module(module.name)).values():
            if isinstance(member, type) and issubclass(member, Rule) and member.cures:
                found.add(member)
    return {
        r
        for r in found
        if not inspect.isabstract(r) and not r.__name__.startswith("_") and not r.__subclasses__()
    }


def test_every_rule_is_listed_once() -> None:
    assert written() <= set(RULES)
    assert len(RULES) == len({rule.__name__ for rule in RULES})


def test_every_rule_says_what_it_is_for_and_draws_it() -> None:
    for rule in RULES:
        assert rule.cures, rule
        module = inspect.getmodule(rule)
        assert module is not None
        assert module.__doc__
        if rule.__name__.endswith("LowRank"):
            continue  # a family over many operators: its shared module has the drawing
        assert "►" in module.__doc__ or "→" in module.__doc__, f"{rule.__name__} has no drawing"


def test_folders_are_purposes() -> None:
    folder = {
        Purpose.FAULT: "faults",
        Purpose.SUPPORT: "support",
        Purpose.RANGE: "precision",
        Purpose.INTEGER: "integers",
    }
    astray = [r.__name__ for r in RULES if folder[r.purpose] not in r.__module__.split(".")]
    # Two faults are the other half of a rule for support, and stand in its file.
    assert set(astray) <= {"PadEdgeByGather", "GroupNormOutsideImages"}


def test_selecting() -> None:
    assert [type(rule) for rule in select_rules("PowToMul")(Purpose.SUPPORT)] == [PowToMul]
    assert not select_rules("PowToMul")(Purpose.FAULT)
    without = {type(rule) for rule in select_rules("-PowToMul")(Purpose.SUPPORT)}
    assert PowToMul not in without
    assert len(without) == sum(rule.purpose is Purpose.SUPPORT for rule in RULES) - 1
    with pytest.raises(UsageError, match="no rule 'Nonsense'"):
        select_rules("Nonsense")


class TwiceToAdd(Rule):
    """A user's own rule, as the documentation has it."""

    cures = frozenset({"Twice"})


def test_users_rules_come_through_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    own = EntryPoint("twice", "test_catalogue:TwiceToAdd", offered.ENTRY_POINT)
    monkeypatch.setattr(offered, "entry_points", lambda group: [own])
    assert catalogue.all_rules()[-1].__name__ == "TwiceToAdd"
    wrong = EntryPoint("wrong", "test_catalogue:written", offered.ENTRY_POINT)
    monkeypatch.setattr(offered, "entry_points", lambda group: [wrong])
    with pytest.raises(UsageError, match="offers test_catalogue:written"):
        catalogue.all_rules()
