"""Chips by name, and ``hexport targets``."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hexport import facts
from hexport.cli.targets import command

SOCS = facts.targets()


def test_the_chips_that_were_measured_are_all_there() -> None:
    measured = {
        68: "30 SM8350,32 SM7350,34 SM8325,35 SM7325,37 SC8280X,38 SM7315,39 SA8295,"
        "62 SA8540,63 AIC100,93 QCM6490",
        69: "36 SM8450,41 SM7450,42 SM8475,53 SXR2230P,54 SM7475",
        73: "43 SM8550,45 SXR1230P,46 SSG2115P,50 SM6450,52 SA8255,58 SSG2125P,60 SC8380XP,"
        "61 SM7435,64 SM7550,"
        "66 QCS8550,68 SM8635,70 SM7675,73 SM7635,74 SM6650,76 SM6475,77 QCS9100,78 QCM6690,"
        "85 SM8735,86 SM7750",
        75: "57 SM8650,67 SA8620P,82 QCS8300",
        79: "69 SM8750,75 SXR2330P",
        81: "72 SA8797,87 SM8850,88 SC8480XP,95 SAR2230P,96 SW6100,97 SM8845",
        85: "103 SM8975",
    }
    expected = {
        (int(row.split()[0]), row.split()[1], arch)
        for arch, rows in measured.items()
        for row in rows.split(",")
    }
    assert {(soc.soc_model, soc.chip, soc.htp_arch) for soc in SOCS} == expected


def test_what_a_chip_can_do() -> None:
    assert {soc.chip: soc.vtcm_mb for soc in SOCS if soc.vtcm_mb} == {
        **dict.fromkeys(("QCM6490", "SXR1230P", "SSG2115P", "SSG2125P"), 2),
        **dict.fromkeys(("SM8350", "SAR2230P", "SW6100"), 4),
        **dict.fromkeys(("SA8295", "SM8450", "SM8475", "SXR2230P", "SM8550", "SA8255", "SC8380XP"), 8),
        **dict.fromkeys(("QCS9100", "SM8650", "SM8750", "SXR2330P", "SM8850", "SM8845"), 8),
        "SA8797": 16,
    }
    assert not facts.find_target("QCM6490").float
    assert facts.find_target("SM8650").float
    assert "v85" in facts.find_target("SM8975").note


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("SM8650", "SM8650"),
        ("sm8650", "SM8650"),
        ("57", "SM8650"),
        (57, "SM8650"),
        ("snapdragon 8 gen 3", "SM8650"),
        ("Qualcomm® Snapdragon™ 8 Gen 3 Mobile Platform", "SM8650"),
        ("8 gen 3", "SM8650"),
        ("8gen3", "SM8650"),
        ("SM8650-AC", "SM8650"),
        ("8+ Gen 1", "SM8475"),
        ("8 plus gen 1", "SM8475"),
        ("8 Gen 1", "SM8450"),
        ("8 Elite", "SM8750"),
        ("8 Elite Gen 5", "SM8850"),
        ("X Elite", "SC8380XP"),
        ("x-plus", "SC8380XP"),
        ("X2 Elite", "SC8480XP"),
        ("888", "SM8350"),
        ("Snapdragon 888 5G", "SM8350"),
        ("SA8295P", "SA8295"),
        ("IQ9", "QCS9100"),
        ("qcs6490", "QCM6490"),
    ],
)
def test_find_target(name: str | int, chip: str) -> None:
    assert facts.find_target(name).chip == chip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sm8651", "SM8650"),
        ("8 gen 33", "SM8650 (Snapdragon 8 Gen 3)"),
        ("elite", "SM8750"),
        ("v75", "SM8650"),
        ("snapdragon", "no id"),
        ("", "no id"),
        ("58.0x", "no id"),
        (-57, "no id"),
        (True, "no id"),
    ],
)
def test_an_unknown_target_says_what_is_near_and_what_to_do(name: str | int, said: str) -> None:
    with pytest.raises(facts.UnknownTarget) as caught:
        facts.find_target(name)
    assert caught.value.code == "HX102"
    assert said in caught.value.why
    assert "hexport targets" in caught.value.next


def test_a_name_that_two_chips_have_is_refused_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    from hexport.facts import naming

    twins = (facts.find_target("SM8650"), facts.find_target("SM8550"))
    monkeypatch.setattr(naming, "_by_name", lambda: {"twin": twins})
    with pytest.raises(facts.UnknownTarget) as caught:
        naming.find_target("twin")
    assert "SM8650" in caught.value.why
    assert "SM8550" in caught.value.why


def test_no_two_chips_share_a_name() -> None:
    for soc in SOCS:
        for name in facts.names_of(soc):
            assert facts.find_target(name) == soc


@st.composite
def spelt_anyhow(draw: st.DrawFn) -> tuple[facts.Soc, str]:
    """A known name with its case, and what stands between its parts, changed."""
    soc = draw(st.sampled_from(SOCS))
    name = draw(st.sampled_from((str(soc.soc_model), *facts.names_of(soc))))
    parts = re.findall(r"[A-Za-z]+|\d+|\+", name)
    joints = st.sampled_from(["", " ", "-", "_", "  ", " - ", "/", "\t"])
    spelt = "".join(
        draw(joints) + draw(st.sampled_from([part, part.upper(), part.lower(), part.title()]))
        for part in parts
    )
    return soc, spelt + draw(joints)


@given(spelt_anyhow())
def test_any_spelling_of_a_known_name_finds_its_chip(case: tuple[facts.Soc, str]) -> None:
    soc, name = case
    assert facts.find_target(name) == soc


@given(st.one_of(st.text(max_size=30), st.integers(), st.text("0123456789sSmMvV +-gen", max_size=12)))
def test_garbage_is_never_worse_than_unknown(name: str | int) -> None:
    try:
        found = facts.find_target(name)
    except facts.UnknownTarget as error:
        assert error.next  # noqa: PT017 - either outcome is right; an error must say what to do
    else:
        assert found in SOCS


# ---------------------------------------------------------------- the verb


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_table_has_every_chip() -> None:
    output = run()
    assert all(soc.chip in output for soc in SOCS)
    assert "Snapdragon 8 Gen 3" in output
    assert "v85 skeleton" in output


def test_json_has_every_field() -> None:
    document = json.loads(run("--json"))
    assert document["schema_version"] == 1
    assert len(document["targets"]) == len(SOCS)
    one = next(t for t in document["targets"] if t["chip"] == "SM8550")
    assert (one["soc_model"], one["htp_arch"], one["float"], one["vtcm_mb"]) == (43, 73, True, 8)
    assert one["names"] == ["Snapdragon 8 Gen 2"]
    assert next(t for t in document["targets"] if t["chip"] == "SM7325")["vtcm_mb"] is None


@pytest.mark.parametrize(
    ("text", "chips"),
    [
        ("v79", {"SM8750", "SXR2330P"}),
        ("iq", {"QCS9100", "QCS8300"}),
        ("8 gen 3", {"SM8650"}),
        ("57", {"SM8650"}),
        ("SXR", {"SXR1230P", "SXR2230P", "SXR2330P"}),
    ],
)
def test_a_filter_keeps_what_it_names(text: str, chips: set[str]) -> None:
    assert {target["chip"] for target in json.loads(run("--json", text))["targets"]} == chips


def test_a_filter_that_keeps_nothing_is_an_error() -> None:
    with pytest.raises(facts.UnknownTarget):
        run("zzz")
