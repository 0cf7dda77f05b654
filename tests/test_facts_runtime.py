"""The facts behind sessions: lost NPUs, backends and their libraries, who is told which option."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import small_models as small
from hexport import facts
from hexport.compiling.options import CompileOptions
from hexport.compiling.verb import compile_models
from hexport.facts.load import read_table
from hexport.onnxruntime.libraries import library_file

LISTED = {key: use for use in facts.option_uses() for key in use.keys}
simulated = pytest.mark.skipif(
    not facts.simulates_npu(facts.current_platform()), reason="needs the libraries of this platform"
)


def test_every_entry_has_a_source_and_no_key_is_listed_twice() -> None:
    for table in (facts.losses(), facts.backends(), facts.option_uses()):
        assert table
        assert all(entry.source.strip() for entry in table)
    for names in (
        [loss.text for loss in facts.losses()],
        [backend.name for backend in facts.backends()],
        [backend.library for backend in facts.backends()],
        [key for use in facts.option_uses() for key in use.keys],
    ):
        assert len(names) == len(set(names))


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: [ONNXRuntimeError] : 5 : ENGINE_ERROR : NPU crashed. SSR detected.",
        "EngineError: whatever follows",
        "DeviceReset: [ONNXRuntimeError] : 15 : DEVICE_RESET : NPU crashed again after SSR recovery.",
        "Fail: Non-zero status code. Status Message: SSR recovery: graphRetrieve failed for graph: g",
        "Fail: QNN_COMMON_ERROR_SYSTEM_COMMUNICATION",
    ],
)
def test_a_lost_npu_is_told_from_its_error(text: str) -> None:
    found = facts.find_loss(text)
    assert found is not None
    assert found.meaning


@pytest.mark.parametrize(
    "text",
    [
        "InvalidArgument: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x",
        "RuntimeException: Status Message: QNN graph execute error. Error code: 6031",
        "Fail: indices element out of data bounds",
        "",
    ],
)
def test_other_errors_are_no_loss(text: str) -> None:
    assert facts.find_loss(text) is None


@simulated
def test_the_installed_libraries_still_use_these_words() -> None:
    """Each text is in onnxruntime or in the provider, but for QNN's own name, which QNN rarely spells out."""
    found = [importlib.util.find_spec(name) for name in ("onnxruntime", "onnxruntime_qnn")]
    folders = [Path(spec.origin).parent for spec in found if spec is not None and spec.origin]
    paths = [*folders[0].glob("capi/*pybind11_state*"), *folders[1].glob("*onnxruntime_providers_qnn*")]
    assert len(paths) == 2
    words = b"".join(path.read_bytes() for path in paths)
    unseen = [loss.text for loss in facts.losses() if loss.text.encode() not in words]
    assert unseen == ["QNN_COMMON_ERROR_SYSTEM_COMMUNICATION"]


# ---------------------------------------------------------------- backends


def test_backends_are_those_of_the_option() -> None:
    (option,) = (option for option in facts.options() if option.key == "backend_type")
    assert sorted(option.values) == sorted(backend.name for backend in facts.backends())
    paths = {option.key for option in facts.options() if option.type == "path"}
    assert {backend.option for backend in facts.backends() if backend.option} <= paths
    assert facts.find_backend("npu") is None


@simulated
def test_the_installed_package_has_their_libraries() -> None:
    missing = [backend.name for backend in facts.backends() if library_file(backend.name) is None]
    assert missing == ["cpu"]  # which the combination of backend_type=cpu says, too


def test_one_platform_has_the_simulator() -> None:
    platforms = {name for release in facts.releases() for name in release.platforms}
    assert [name for name in sorted(platforms) if facts.simulates_npu(name)] == ["linux-x86_64"]


# ---------------------------------------------------------------- who is told what


def test_listed_options_are_known_ones() -> None:
    kinds = {option.key: option.kind for option in facts.options() if not option.replaced_by}
    assert {kinds[key] for key in LISTED} == {"provider", "session"}
    assert facts.use_of("vtcm_mb") is None


def test_every_entry_about_contexts_is_kept_from_the_session() -> None:
    """A session that loads a context and is told to make one would write over its own files."""
    keys = [option.key for option in facts.options() if option.kind == "session"]
    about = {key for key in keys if key.startswith(("ep.context_", "ep.share_", "ep.stop_"))}
    assert about == {key for key in LISTED if key.startswith("ep.")}
    assert not any(LISTED[key].context or LISTED[key].compiler for key in about)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("", "told to both"),
        ('context = false\ninstead = "other"', "nobody is told"),
        ('compiler = "no"', "expected bool"),
    ],
)
def test_uses_that_say_nothing_are_refused(fields: str, found: str) -> None:
    text = f'[[use]]\nkeys = ["k"]\nwhy = "w"\nsource = "s"\n{fields}\n'
    with pytest.raises(facts.FactsError) as caught:
        read_table(text, "u.toml", "use", facts.OptionUse)
    assert found in caught.value.why


@simulated
def test_what_is_read_at_run_leaves_the_binary_as_it_is(tmp_path: Path) -> None:
    """The fact itself, and that the comparison can fail: less fast memory makes another binary."""
    model = small.save(small.conv_relu(), tmp_path / "m.onnx")
    at_run = {
        "htp_performance_mode": "burst",
        "rpc_control_latency": "100",
        "profiling_level": "basic",
        "profiling_file_path": str(tmp_path / "profile.csv"),
    }
    assert not any(LISTED[key].compiler for key in at_run)
    assert all(LISTED[key].context for key in at_run)
    plain, same, other = (_binary(model, more) for more in ({}, at_run, {"vtcm_mb": "2"}))
    assert same == plain
    assert other != plain


def _binary(model: Path, more: dict[str, str]) -> bytes:
    folder = model.parent / f"with-{len(more)}"
    folder.mkdir()
    (made,) = compile_models([model], ["SM8650"], folder, options=CompileOptions(more=more)).artefacts
    assert made.binary is not None
    return made.binary.read_bytes()
