"""Chips by any of their names: ``57``, ``SM8650``, ``sm8650-ac``, ``Snapdragon 8 Gen 3``, ``8 gen 3``."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from hexport.errors import HexportError
from hexport.facts.load import targets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hexport.facts.load import Soc

# Words that are part of product names and tell no chip from another.
_NOISE = re.compile(r"qualcomm|snapdragon|dragonwing|mobileplatform|computeplatform|processor")
# Speed grades and packages of one chip: SM8650-AC, SM8550-AB, SA8295P.
_GRADE = re.compile(r"p?(?:a[a-f])?")


class UnknownTarget(HexportError, LookupError):
    """No chip, or more than one, goes by that name."""

    code = "HX102"


def find_target(name: str | int) -> Soc:
    """The chip with that id, chip name or product name; case, spaces and dashes do not matter."""
    # A dash in a text is only a dash; a negative number is no id.
    key = _plain(name) if isinstance(name, str) else str(name)
    found = _by_name().get(key) or _by_grade(key)
    if len(found) == 1:
        return found[0]
    raise _unknown(name, key, found)


def select_targets(text: str) -> tuple[Soc, ...]:
    """The chips whose name contains ``text``, or whose HTP generation it is (``v75``)."""
    key = _plain(text)
    exact = _by_name().get(key)
    if exact:
        return exact
    generation = _generation(key)
    matches = generation or tuple(
        soc for soc in targets() if key and any(key in _plain(name) for name in names_of(soc))
    )
    if not matches:
        raise _unknown(text, key, ())
    return matches


def names_of(soc: Soc) -> tuple[str, ...]:
    """Everything the chip is called, its id apart."""
    return (soc.chip, *soc.names)


def _plain(name: str) -> str:
    """Lower case without spaces, dashes and marks; ``plus`` and ``+`` are one."""
    key = re.sub(r"[^a-z0-9+]", "", name.lower()).replace("plus", "+")
    return _NOISE.sub("", key).removesuffix("5g")


@cache
def _by_name() -> dict[str, tuple[Soc, ...]]:
    index: dict[str, tuple[Soc, ...]] = {}
    for soc in targets():
        for key in {str(soc.soc_model), *map(_plain, names_of(soc))}:
            index[key] = (*index.get(key, ()), soc)
    return index


def _by_grade(key: str) -> tuple[Soc, ...]:
    chips = ((soc, _plain(soc.chip)) for soc in targets())
    return tuple(
        soc for soc, chip in chips if key.startswith(chip) and _GRADE.fullmatch(key.removeprefix(chip))
    )


def _generation(key: str) -> tuple[Soc, ...]:
    return tuple(soc for soc in targets() if key == f"v{soc.htp_arch}")


def _unknown(name: str | int, key: str, found: tuple[Soc, ...]) -> UnknownTarget:
    if found:
        why = f"several chips go by it: {_listed(found)}"
    elif generation := _generation(key):
        why = f"{key} is an HTP generation; chips that have it: {_listed(generation)}"
    elif near := _near(key):
        why = f"did you mean {_listed(near)}?"
    else:
        why = "no id, chip name or product name is like it"
    return UnknownTarget(f"there is no target {str(name)!r}", why=why, next="`hexport targets` lists them")


def _near(key: str) -> tuple[Soc, ...]:
    """Chips whose name contains the key, else those spelt most like it."""
    if len(key) > 1:
        inside = [soc for soc in targets() if any(key in _plain(name) for name in names_of(soc))]
        if inside:
            return tuple(inside[:6])
    import difflib

    # An id says nothing by being close to another one.
    names = [known for known in _by_name() if not known.isdecimal()]
    close = difflib.get_close_matches(key, names, n=3, cutoff=0.7)
    return tuple(dict.fromkeys(soc for match in close for soc in _by_name()[match]))


def _listed(socs: Iterable[Soc]) -> str:
    return ", ".join(f"{soc.chip} ({soc.names[0]})" if soc.names else soc.chip for soc in socs)


def float_twin(soc: Soc) -> Soc:
    """A chip of the same generation that has float: the chip itself if it does.

    What a float model needs before it is quantised can only be asked of one that computes in float.
    """
    if soc.float:
        return soc
    return next(other for other in targets() if other.htp_arch == soc.htp_arch and other.float)
