"""Recipes: their names, and the techniques that the user settles."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from hexport.building.wishes import Wishes
from hexport.cli import quantize as command
from hexport.errors import UsageError
from hexport.quantization.candidates import EFFORTS
from hexport.quantization.clipping import METHODS
from hexport.quantization.recipe import TECHNIQUES, Recipe, as_settled, recipe_named
from quantised_graphs import cnn
from test_quantize import bytes_of, decisions, done

EVERY = [Recipe(ranges, *used) for ranges in METHODS for used in product((False, True), repeat=4)]


def test_every_recipe_is_found_by_what_it_is_called() -> None:
    assert len({str(recipe) for recipe in EVERY}) == len(EVERY)
    assert [recipe_named(str(recipe)) for recipe in EVERY] == EVERY


@pytest.mark.parametrize(
    "text", ["", "mse", "best ranges", "mse ranges, ", "mse ranges, magic", "bias correction", " ranges"]
)
def test_what_is_called_otherwise_is_no_recipe(text: str) -> None:
    with pytest.raises(UsageError, match="there is no recipe") as caught:
        recipe_named(text)
    assert all(name in caught.value.why for name in (*METHODS, *TECHNIQUES))
    assert recipe_named(str(Recipe())), "what it proposes"


def test_the_command_knows_the_names() -> None:
    assert sorted(command.RANGES) == sorted(METHODS)
    assert [name.replace(" ", "-") for name in TECHNIQUES] == list(command.TECHNIQUES)


@pytest.mark.parametrize("effort", EFFORTS)
def test_without_all_techniques_weights_are_rounded_to_the_nearest(effort: str) -> None:
    recipes = EFFORTS[effort].recipes
    plain = as_settled(recipes, None, command.TECHNIQUES)
    assert set(plain) == {Recipe(recipe.ranges, correct_bias=False) for recipe in recipes}
    assert len(plain) == len(set(plain)), "none is tried twice"
    assert as_settled(recipes, "entropy", command.TECHNIQUES) == (Recipe("entropy", correct_bias=False),)
    assert as_settled(recipes, None, ()) == recipes


def test_each_technique_can_be_left_out_alone() -> None:
    recipes = EFFORTS["high"].recipes
    for option, field in zip(command.TECHNIQUES, TECHNIQUES.values(), strict=True):
        left = as_settled(recipes, None, [option])
        assert {recipe for recipe in recipes if not getattr(recipe, field)} <= set(left)
        assert not any(getattr(recipe, field) for recipe in left)


@pytest.mark.parametrize(("ranges", "without"), [("widest", ()), (None, ["magic"])])
def test_what_is_unknown_is_refused(ranges: str | None, without: list[str]) -> None:
    with pytest.raises(UsageError, match=r"there (are|is) no") as caught:
        as_settled(EFFORTS["fast"].recipes, ranges, without)
    assert caught.value.why


def test_what_is_settled_is_all_that_is_tried(tmp_path: Path) -> None:
    result = done(
        cnn(17), tmp_path, effort="normal", ranges="percentile", without=["error-carrying-rounding"]
    )
    assert {trial.recipe for trial in result.tried} == {"percentile ranges, bias correction"}
    assert decisions(tmp_path)["recipe"] == "percentile ranges, bias correction"


def test_a_technique_left_out_changes_the_model_and_can_be_given_back(tmp_path: Path) -> None:
    done(cnn(17), tmp_path, name="plain", without=["bias-correction"])
    done(cnn(17), tmp_path, name="corrected")
    done(cnn(17), tmp_path, name="back", override=tmp_path / "plain.quant.json")
    assert bytes_of(tmp_path, "plain")[0] != bytes_of(tmp_path, "corrected")[0]
    assert bytes_of(tmp_path, "plain")[0] == bytes_of(tmp_path, "back")[0]


def test_a_build_keeps_results_apart_by_it() -> None:
    asked = [Wishes("8a8w"), Wishes("8a8w", ranges="mse"), Wishes("8a8w", without=("measured-bias",))]
    assert len({str(wishes.by_content()) for wishes in asked}) == len(asked)
    assert [wishes.for_integers for wishes in asked] == [(), ("--ranges",), ("--without",)]
