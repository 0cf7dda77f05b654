"""Recipes: the techniques that a candidate is made with, by name, and what the user settles of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hexport.errors import UsageError
from hexport.quantization.clipping import METHODS

TECHNIQUES: Mapping[str, str] = {
    "equalised channels": "equalized",
    "error-carrying rounding": "carry_errors",
    "bias correction": "correct_bias",
    "measured bias": "measure_bias",
}
"""What each is called -> the field of a recipe, in the order in which they are named."""
_RANGES = " ranges"


@dataclass(frozen=True)
class Recipe:
    """The techniques of a candidate; each can be turned on and off."""

    ranges: str = "mse"
    carry_errors: bool = False
    """Round weights one after the other, the rest making up for it."""
    correct_bias: bool = True
    """Take the mean error of rounded weights out of the bias, as computed from the layer's inputs."""
    measure_bias: bool = False
    """Take out what is left of it in the quantised model, as measured."""
    equalized: bool = False
    """From the float model whose channels were given like ranges."""

    def __str__(self) -> str:
        used = (name for name, field in TECHNIQUES.items() if getattr(self, field))
        return ", ".join([f"{self.ranges}{_RANGES}", *used])


def recipe_named(text: str) -> Recipe:
    """The recipe that reads so."""
    ranges, *used = text.split(", ")
    method = ranges.removesuffix(_RANGES)
    if f"{method}{_RANGES}" != ranges or method not in METHODS or not set(used) <= set(TECHNIQUES):
        raise UsageError(
            f"there is no recipe {text!r}",
            why=f"it begins with one of {', '.join(f'{name}{_RANGES}' for name in METHODS)}; "
            f"then, after commas, what is used of {', '.join(TECHNIQUES)}",
            next=f"for example {str(Recipe())!r}; or leave it out, and one is chosen",
        )
    return Recipe(method, **{field: name in used for name, field in TECHNIQUES.items()})


def as_settled(recipes: Iterable[Recipe], ranges: str | None, without: Collection[str]) -> tuple[Recipe, ...]:
    """``recipes`` with those ranges, and none of the techniques that the user does ``without``."""
    _refuse_unknown(ranges, without)
    off = {TECHNIQUES[_spoken(name)] for name in without}

    def settled(recipe: Recipe) -> Recipe:
        used = {field: getattr(recipe, field) and field not in off for field in TECHNIQUES.values()}
        return Recipe(ranges or recipe.ranges, **used)

    return tuple(dict.fromkeys(settled(recipe) for recipe in recipes))


def _refuse_unknown(ranges: str | None, without: Collection[str]) -> None:
    if ranges is not None and ranges not in METHODS:
        raise UsageError(f"there are no ranges {ranges!r}", why=f"there are {', '.join(METHODS)}")
    if unknown := [name for name in without if _spoken(name) not in TECHNIQUES]:
        known = ", ".join(name.replace(" ", "-") for name in TECHNIQUES)
        raise UsageError(f"there is no technique {unknown[0]!r}", why=f"there are {known}")


def _spoken(name: str) -> str:
    """On the command line a name is one word; ``error-carrying rounding`` has a hyphen of its own."""
    return next((known for known in TECHNIQUES if known.replace(" ", "-") == name), name)
