"""Which schemes are tried, and in what order: the cheapest that is enough wins."""

from __future__ import annotations

from math import inf

from hexport import facts
from hexport.quantization.candidates import Candidate
from hexport.quantization.plan import SCHEMES
from hexport.quantization.search import Search
from hexport.quantization.shares import FLOAT_SHARE

_GOALS_FOR_A_METRIC = (15.0, 20.0, 25.0, 30.0, 40.0)


def find_best(search: Search, scheme: str, soc: facts.Soc) -> Candidate:
    """One scheme, or the cheapest that is enough."""
    if search.most_drop is None:
        return _at_goal(search, scheme, soc)
    # A metric says whether a model is good, not how far it is from it: ask for more until it is.
    best: Candidate | None = None
    for search.goal_db in _GOALS_FOR_A_METRIC:
        found = _at_goal(search, scheme, soc)
        if best is None or _lost(found) < _lost(best):
            best = found
        if search.is_enough(best) or found.sqnr_db < search.goal_db:
            break
    assert best is not None
    return best


def _lost(candidate: Candidate) -> float:
    return inf if candidate.drop is None else candidate.drop


def _at_goal(search: Search, scheme: str, soc: facts.Soc) -> Candidate:
    if scheme == "fp16":
        return search.in_float()
    if scheme != "auto":
        return search.pursue(SCHEMES[scheme], scheme)
    search.expect(3 if soc.float else 2)
    found: list[Candidate] = []
    for name in ("8a8w", "16a8w"):
        # Not more in fp16 than a named scheme may have: the next scheme is cheaper than that.
        found.append(search.within(SCHEMES[name], name, FLOAT_SHARE))
        if search.is_enough(found[-1]):
            return found[-1]
    if soc.float:
        found.append(search.within(SCHEMES["16a8w"], "16a8w and fp16", 1.0))
        if not search.is_enough(found[-1]):
            found.append(search.in_float())
    enough = [candidate for candidate in found if search.is_enough(candidate)]
    return min(enough, key=lambda c: c.cost) if enough else max(found, key=lambda c: c.standing)
