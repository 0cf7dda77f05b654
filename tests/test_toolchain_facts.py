"""What goes together: the table, the plan made from it, and what the doctor suggests."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from hexport import facts
from hexport.diagnosis.libraries import Libraries, Library
from hexport.diagnosis.suggesting import _limit, suggest, suggest_for
from hexport.environments.failures import DoesNotFit
from hexport.environments.requirements import Surroundings, make_plan, read_pins
from hexport.errors import UsageError
from hexport.facts.toolchains import Plugin
from hexport.records import RecordError
from made_machines import APPLE_SILICON, BOARD, LINUX_PC, SNAPDRAGON_X
from test_imports import HEAVY, loaded, run_verb

LINUX = Surroundings("3.12.1", "linux-x86_64")


def test_every_release_of_2_is_in_both_tables() -> None:
    known = {release.version for release in facts.releases() if facts.parse_version(release.version) >= (2,)}
    assert {plugin.version for plugin in facts.plugins()} == known
    for plugin in facts.plugins():
        assert facts.find_release(plugin.version) is not None
        assert plugin.sdk == facts.sdk_of(plugin.version)


@pytest.mark.parametrize("plugin", facts.plugins(), ids=lambda plugin: plugin.version)
def test_the_tested_pair_breaks_no_rule(plugin: Plugin) -> None:
    for platform in plugin.platforms:
        broken = facts.broken_rules(plugin.version, {"onnxruntime": plugin.tested}, platform)
        assert [rule.id for rule in broken] == []


def test_the_rules_of_versions_and_the_ranges_agree() -> None:
    for plugin in facts.plugins():
        for host in ("1.24.1", "1.24.4", "1.26.0", "1.27.0", "1.31.1"):
            if facts.broken_rules(plugin.version, {"onnxruntime": host}):
                assert not plugin.accepts(host), (plugin.version, host)


def test_hexports_own_pair_is_one_of_them() -> None:
    from importlib import metadata

    plugin = facts.find_plugin(metadata.version("onnxruntime-qnn"))
    assert plugin is not None
    assert plugin.accepts(metadata.version("onnxruntime"))


def test_executorch_names_releases_that_are_known() -> None:
    for release in facts.executorch_releases():
        plugin = facts.find_plugin(release.plugin)
        assert plugin is not None
        assert set(release.platforms) <= set(plugin.platforms)


@pytest.mark.parametrize("bounds", ["1.26", ">=1.24,!=1.25", "~=1.26"])
def test_ranges_that_nobody_reads_are_refused(bounds: str) -> None:
    with pytest.raises(RecordError):
        replace(facts.plugins()[0], onnxruntime=bounds)
    with pytest.raises(RecordError, match="tested"):
        replace(facts.plugins()[0], onnxruntime="<1.0")


def test_a_plan_has_the_pair_from_the_table() -> None:
    plan = make_plan(["Onnxruntime_QNN == 2.3"], LINUX)
    plugin = facts.find_plugin("2.3.0")
    assert plugin is not None
    assert plan.pins == {"onnxruntime-qnn": "2.3.0", "onnxruntime": plugin.tested}
    assert plan.steps == (plan.requirements,)
    assert make_plan(["onnxruntime-qnn==2.3.0", "onnxruntime==1.25.1"], LINUX).pins["onnxruntime"] == "1.25.1"


def test_a_release_newer_than_the_table_is_left_to_pip() -> None:
    plan = make_plan(["onnxruntime-qnn==2.99.0"], LINUX)
    assert plan.pins == {"onnxruntime-qnn": "2.99.0"}
    assert "not in this hexport's table" in plan.notes[0]


def test_executorch_comes_with_its_libraries_and_without_its_dependencies() -> None:
    (release,) = facts.executorch_releases()
    plan = make_plan([f"executorch=={release.version}"], LINUX)
    alone, beside = plan.steps
    assert alone[0] == "--no-deps"
    assert f"onnxruntime-qnn=={release.plugin}" in alone
    assert set(beside) == set(release.beside)
    assert plan.pins["torch"] == read_pins(spec for spec in release.beside if "==" in spec)["torch"]
    other = make_plan([f"executorch=={release.version}", "torch==2.12.0"], LINUX)
    assert other.pins["torch"] == "2.12.0"
    assert not any(spec.startswith("torch==2.13") for spec in other.steps[1])


def test_a_name_alone_is_its_newest_release_and_said() -> None:
    for name, releases in (("executorch", facts.executorch_releases()), ("onnxruntime-qnn", facts.plugins())):
        version = max((one.version for one in releases), key=facts.parse_version)
        plan = make_plan([f" {name.upper()}"], LINUX)
        assert plan.pins == make_plan([f"{name}=={version}"], LINUX).pins
        assert plan.pins[name] == version
        assert plan.notes == (f"{name} {version}: the newest release that this hexport knows of",)
    assert make_plan(["executorch", "torch==2.12.0"], LINUX).pins["torch"] == "2.12.0"
    # Of those that have a wheel there.
    for platform in sorted({one for plugin in facts.plugins() for one in plugin.platforms}):
        fitting = facts.plugin_for(None, platform)
        assert fitting is not None
        around = Surroundings(f"{fitting.pythons[-1]}.0", platform)
        assert make_plan(["onnxruntime-qnn"], around).pins["onnxruntime-qnn"] == fitting.version
    with pytest.raises(UsageError) as refused:
        make_plan(["executorch>=1"], LINUX)
    assert f"executorch=={facts.executorch_releases()[-1].version}" in refused.value.next


@pytest.mark.parametrize(
    ("specs", "around", "said"),
    [
        (["onnxruntime-qnn==1.23.0"], LINUX, "1.x is built into"),
        (["onnxruntime-qnn==2.0.0"], LINUX, "wheels for windows"),
        (["onnxruntime-qnn==2.7.0"], replace(LINUX, platform="darwin-aarch64"), "wheels for linux"),
        (["onnxruntime-qnn==2.7.0"], replace(LINUX, python="3.10.1"), "wheels for 3.11"),
        (["onnxruntime-qnn==2.3.0", "onnxruntime==1.31.1"], LINUX, ">=1.24.2,<1.27"),
        (["executorch==0.1.0"], LINUX, "known: 1.5.1"),
        (["executorch==1.5.1", "onnxruntime-qnn==2.7.0"], LINUX, "14001"),
        (["executorch==1.5.1"], replace(LINUX, platform="linux-aarch64"), "wheels for linux-x86_64"),
        (["executorch"], replace(LINUX, platform="linux-aarch64"), "wheels for linux-x86_64"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    specs: list[str], around: Surroundings, said: str
) -> None:
    with pytest.raises(DoesNotFit) as caught:
        make_plan(specs, around)
    assert said in caught.value.why
    assert caught.value.next


@pytest.mark.parametrize(
    "specs",
    [
        ["torch"],
        ["onnxruntime-qnn>=2.3"],
        ["executorch~=1.5"],
        ["numpy==2.0.0"],
        ["../x==1"],
        ["--user==1"],
        [],
    ],
)
def test_what_is_no_pin_is_a_usage_error(specs: list[str]) -> None:
    with pytest.raises(UsageError):
        make_plan(specs, LINUX)
    with pytest.raises(UsageError, match="two versions"):
        read_pins(["a==1", "A==2"])


def test_the_driver_of_a_board_decides() -> None:
    found = suggest_for(BOARD, "2.48.40.260101", "the driver", "2.7.0")
    assert found.release == "2.4.0"
    assert found.command == "hexport toolchain add onnxruntime-qnn==2.4.0"
    plugin = facts.find_plugin(found.release)
    assert plugin is not None
    assert (found.sdk, found.onnxruntime) == (plugin.sdk, plugin.tested)
    assert suggest_for(BOARD, "2.46.0", "the driver", "").release == "2.2.0"
    assert suggest_for(SNAPDRAGON_X, "2.42.0", "the driver", "").release == "2.0.0"


def test_without_a_driver_the_newest_and_nothing_to_do_if_it_is_there() -> None:
    newest = facts.plugins()[-1].version
    assert suggest_for(LINUX_PC, "", "", newest).command == ""
    assert newest in suggest_for(LINUX_PC, "", "", "2.3.0").command
    old_python = replace(LINUX_PC, python=(3, 10, 1))
    assert "--python PATH-OF-PYTHON-3.14" in suggest_for(old_python, "", "", "").command


def test_no_release_is_old_enough_or_none_is_for_this_platform() -> None:
    old = suggest_for(SNAPDRAGON_X, "2.40.0", "the driver", "")
    assert (old.found, old.command) == (False, "")
    assert "update the device's NPU driver" in old.why
    assert "no release" in suggest_for(APPLE_SILICON, "", "", "").why


def test_where_the_limit_comes_from() -> None:
    store = (Library("a/QnnHtp.dll", "2.38.0"), Library("b/QnnHtp.dll", "2.40.0"), Library("c/QnnHtp.dll"))
    assert _limit(Libraries(system=store, sdk_root="2.47.0"))[0] == "2.40.0"
    assert _limit(Libraries(sdk_root="2.47.0")) == ("2.47.0", "QNN_SDK_ROOT")
    assert _limit(Libraries()) == ("", "")


def test_a_driver_that_is_no_version() -> None:
    with pytest.raises(UsageError, match="not a version"):
        suggest("newest")
    assert suggest("2.47.0").release == "2.3.0"


def test_the_command_suggests() -> None:
    def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hexport", "doctor", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = doctor("--suggest", "--driver", "2.47.0", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["release"] == "2.3.0"
    assert document["command"] == "hexport toolchain add onnxruntime-qnn==2.3.0"
    assert doctor("--suggest", "--driver", "2.1").returncode == 1
    assert doctor("--suggest", "--driver", "x").returncode == 2
    assert doctor("--driver", "2.47.0").returncode == 2


def test_looking_at_toolchains_is_light() -> None:
    assert not loaded(run_verb("toolchain", "list", "--json")) & HEAVY
    assert not loaded(run_verb("toolchain", "--help")) & HEAVY
