"""The data files: whole, strict, and right about what was measured."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from hexport import facts
from hexport.facts.load import read_table

# ---------------------------------------------------------------- the files as they are


def test_every_entry_has_a_source() -> None:
    tables = (
        facts.targets(),
        facts.releases(),
        facts.rules(),
        facts.options(),
        facts.combinations(),
        facts.error_codes(),
        facts.advice(),
    )
    for table in tables:
        assert table
        assert all(entry.source.strip() for entry in table)


def test_nothing_is_listed_twice() -> None:
    for keys in (
        [soc.soc_model for soc in facts.targets()],
        [soc.chip for soc in facts.targets()],
        [release.version for release in facts.releases()],
        [rule.id for rule in facts.rules()],
        [option.key for option in facts.options()],
        [(code.kind, code.number) for code in facts.error_codes()],
        [name for code in facts.error_codes() for name in (code.name, *code.aliases)],
    ):
        assert len(keys) == len(set(keys))


def test_facts_import_nothing_heavy() -> None:
    program = (
        "import sys; from hexport import facts; facts.find_target('8 gen 3'); facts.options();"
        "facts.explain('error code 1002'); facts.advise('Erf', '', 'x');"
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'google.protobuf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------- the loader


@dataclass(frozen=True)
class Thing:
    name: str
    size: int
    tags: tuple[str, ...] = ()
    limit: int | None = None


GOOD = '[[thing]]\nname = "a"\nsize = 1\ntags = ["x"]\n'


def test_a_good_file_becomes_records() -> None:
    assert read_table(GOOD, "t.toml", "thing", Thing) == (Thing("a", 1, ("x",)),)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GOOD + 'colour = "red"\n', "thing[0]: unknown field 'colour'"),
        (GOOD + "[[thing]]\nsize = 2\n", "thing[1]: field 'name' is missing"),
        ('[[thing]]\nname = "a"\nsize = "1"\n', "thing[0].size: expected int"),
        ('[[thing]]\nname = "a"\nsize = true\n', "thing[0].size: expected int, found bool"),
        ("[[thing]]\nname = 3\nsize = 1\n", "thing[0].name: expected str"),
        ('[[thing]]\nname = "a"\nsize = 1\ntags = "x"\n', "thing[0].tags: expected a list"),
        ('[[thing]]\nname = "a"\nsize = 1\ntags = [1]\n', "thing[0].tags[0]: expected str"),
        ('[[thing]]\nname = "a"\nsize = 1\nlimit = 1.5\n', "thing[0].limit: expected int"),
        ('[[other]]\nname = "a"\n', "no [[thing]] entries"),
        ('[thing]\nname = "a"\nsize = 1\n', "no [[thing]] entries"),
        ("[[thing]\n", "not TOML"),
    ],
)
def test_each_schema_violation_names_file_entry_and_field(text: str, found: str) -> None:
    with pytest.raises(facts.FactsError) as caught:
        read_table(text, "t.toml", "thing", Thing)
    assert caught.value.code == "HX101"
    assert caught.value.why.startswith("t.toml: ")
    assert found in caught.value.why


@pytest.mark.parametrize(
    ("kind", "fields", "found"),
    [
        (facts.Option, 'key = "k"\nkind = "user"\ntype = "bool"\nmeaning = "m"', "kind: 'user'"),
        (facts.Option, 'key = "k"\nkind = "run"\ntype = "list"\nmeaning = "m"', "type: 'list'"),
        (facts.Option, 'key = "k"\nkind = "run"\ntype = "enum"\nmeaning = "m"', "values belong"),
        (
            facts.Option,
            'key = "k"\nkind = "run"\ntype = "enum"\nmeaning = "m"\nvalues = ["a"]\n'
            'newer_values = { b = "2.5.0" }',
            "'b' is not among its values",
        ),
        (facts.Advice, 'cause = "c"\nadvice = "a"\nmatch = "("', "not a regular expression"),
        (facts.ErrorCode, 'number = 1\nname = "n"\nmeaning = "m"\ncure = "c"\nkind = "k"', "kind: 'k'"),
        (
            facts.Rule,
            'id = "i"\nstatement = "s"\nsymptom = "y"\ncure = "c"\nneeds = "a newer driver"',
            "needs: 'a newer driver'",
        ),
    ],
)
def test_words_outside_the_vocabulary_are_refused(kind: type, fields: str, found: str) -> None:
    with pytest.raises(facts.FactsError) as caught:
        read_table(f'[[x]]\n{fields}\nsource = "s"\n', "x.toml", "x", kind)
    assert caught.value.why.startswith("x.toml: x[0]")
    assert found in caught.value.why


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("release", "sdk"),
    [
        ("1.15.1", "2.9"),
        ("1.20.0", "2.27"),
        ("1.20.1", "2.28.2"),
        ("1.20.2", "2.28.2"),
        ("1.22.1", "2.33.2"),
        ("1.22.2", "2.36.1"),
        ("1.23.2", "2.37.1"),
        ("1.24.1", "2.42.0"),
        ("2.0.0", "2.42.0"),
        ("2.1.0", "2.45.40"),
        ("2.1.1", "2.45.41"),
        ("2.7.0", "2.51.0"),
        ("9.0.0", None),
    ],
)
def test_sdk_of_a_release(release: str, sdk: str | None) -> None:
    assert facts.sdk_of(release) == sdk


def test_releases_are_in_order() -> None:
    sdks = [facts.parse_version(release.sdk) for release in facts.releases()]
    assert sdks == sorted(sdks)


@pytest.mark.parametrize(
    ("driver", "newest"),
    [
        ("2.40.0.251030", "1.23"),  # the first-hand report: 1.24.1 (2.42) dies on it, 1.23.2 runs
        ("2.42.0", "2.0.0"),
        ("2.42", "2.0.0"),
        ("v2.28.2", "1.20"),
        ("2.27.5", "1.20.0"),
        ("99.0", "2.7.0"),
        ("2.8", None),
    ],
)
def test_newest_release_for_a_driver(driver: str, newest: str | None) -> None:
    found = facts.newest_release_for(driver)
    assert (found.version if found else None) == newest


def test_newest_release_can_be_asked_for_a_platform() -> None:
    assert facts.newest_release_for("2.46.9", "linux-x86_64") is None
    found = facts.newest_release_for("2.47.0", "linux-x86_64")
    assert found is not None
    assert found.version == "2.3.0"


@pytest.mark.parametrize(
    ("release", "present", "platform", "broken"),
    [
        ("2.7.0", {"onnxruntime": "1.31.1", "glibc": "2.35"}, "linux-x86_64", set()),
        ("2.7.0", {"onnxruntime": "1.24.1"}, "linux-x86_64", {"host-runtime"}),
        ("2.3.0", {"onnxruntime": "1.27.0"}, "linux-x86_64", {"2.3.0-host-ceiling"}),
        ("2.3.0", {"onnxruntime": "1.26.0"}, "linux-x86_64", set()),
        ("2.4.0", {"onnxruntime": "1.31.1"}, "linux-x86_64", set()),
        ("2.7.0", {"glibc": "2.31"}, "linux-aarch64", {"glibc"}),
        ("2.7.0", {"glibc": "2.31"}, "windows-arm64", set()),
        ("1.23.2", {"onnxruntime": "1.19.0"}, "windows-arm64", {"one-module-name"}),
        ("1.24.1", {"driver": "2.40.0"}, "windows-arm64", {"driver-not-older"}),
        ("1.23.2", {"driver": "2.40.0"}, "windows-arm64", set()),
        ("2.7.0", {}, "linux-x86_64", set()),
    ],
)
def test_broken_rules(release: str, present: dict[str, str], platform: str, broken: set[str]) -> None:
    assert {rule.id for rule in facts.broken_rules(release, present, platform)} == broken


def test_versions_compare_by_number() -> None:
    assert facts.parse_version("2.9") < facts.parse_version("2.13.1") < facts.parse_version("v2.37")
    assert facts.parse_version("2.42") == facts.parse_version("2.42.0")
    assert facts.parse_version("2.8.0.dev1") == (2, 8)
    with pytest.raises(ValueError, match="version number"):
        facts.parse_version("newest")


# ---------------------------------------------------------------- error codes


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1002, "QNN_COMMON_ERROR_MEM_ALLOC"),
        (1100, "QNN_COMMON_ERROR_GENERAL"),
        (3110, "QNN_OP_PACKAGE_ERROR_VALIDATION_FAILURE"),
        (6001, "QNN_GRAPH_ERROR_INVALID_HANDLE"),
        (6031, "QNN_GRAPH_ERROR_ABORTED"),
        (7004, "QNN_TENSOR_ERROR_INVALID_TENSOR_PARAM"),
        (14001, "QNN_DEVICE_ERROR_INVALID_CONFIG"),
        (30010, "QNN_SYSTEM_CONTEXT_ERROR_MALFORMED_BINARY"),
        (127, "exit 127"),
        (0xABCD_0000_0000 + 1002, "QNN_COMMON_ERROR_MEM_ALLOC"),  # only the low 16 bits are the code
    ],
)
def test_error_code(number: int, name: str) -> None:
    code = facts.error_code(number)
    assert code is not None
    assert code.name == name
    assert code.meaning
    assert code.cure


def test_an_unknown_code_is_none() -> None:
    assert facts.error_code(4242) is None
    assert facts.error_code(0) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Failed to finalize QNN graph. Error code: 1002", [1002]),
        (
            "backendValidateOpConfig() failed for node `p` of type `ElementWisePower` with error code 3110",
            [3110],
        ),
        ("(graphFinalize fails with error 1002 / QNN_COMMON_ERROR_MEM_ALLOC).", [1002]),
        ("QNN_GRAPH_ERROR_MEM_ALLOC then QNN_BACKEND_ERROR_CANNOT_INITIALIZE", [1002, 4000]),
        ("deviceCreate status: 0x36b1", [14001]),
        ("error=6031 and later Error code: 6001", [6031, 6001]),
        ("the worker ended with exit code 127", [127]),
        ("exit status 139", [-11]),
        ("exited with -9", [-9]),
        ("killed by SIGABRT", [-6]),
        ("3110 nodes in 1002 ms", []),
        ("error: 3 of 1002 failed", []),
        ("", []),
    ],
)
def test_explain_finds_codes_in_native_text(text: str, numbers: list[int]) -> None:
    assert [code.number for code in facts.explain(text)] == numbers
