"""Options: what the provider would swallow in silence is refused before it gets there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexport import facts
from hexport.backend.options import InvalidOption, validate_options

OPTIONS = {option.key: option for option in facts.options()}
NEWEST = {"platform": "linux-x86_64", "release": "2.7.0"}

DOCUMENTED = {
    "provider": """
        backend_type backend_path soc_model htp_arch vtcm_mb device_id rpc_control_latency
        htp_performance_mode qnn_context_priority htp_graph_finalization_optimization_mode
        enable_htp_fp16_precision htp_bf16_enable enable_htp_fp16_clamp_overflow
        enable_htp_monolithic_lstm offload_graph_io_quantization
        enable_block_quant_weight_optimization enable_htp_spill_fill_buffer extended_udma
        enable_htp_shared_memory_allocator enable_dx12_shared_memory_allocator
        htp_share_resource_optimization htp_reused_io_limit_mb enable_htp_graph_splitting
        htp_graph_splitting_num_prepare_threads enable_htp_prepare_only enable_htp_prepare_and_load
        num_graph_prepare_threads disable_file_mapped_weights profiling_level profiling_file_path
        dump_json_qnn_graph json_qnn_graph_dir dump_qnn_ep_input_graph dump_qnn_ep_input_graph_dir
        dump_qnn_ir_dlc dump_qnn_ir_dlc_dir qnn_ir_backend_path enable_framework_op_trace
        framework_op_trace_dir op_affinity op_packages qnn_saver_path skip_qnn_version_check
        genie_log_level qnn_context_cache_enable qnn_context_cache_path""",
    "session": """
        ep.context_enable ep.context_file_path ep.context_embed_mode ep.context_node_name_prefix
        ep.share_ep_contexts ep.stop_share_ep_contexts session.disable_cpu_ep_fallback
        session.record_ep_graph_assignment_info session.fail_on_suboptimal_compiled_model""",
    "run": "qnn.htp_perf_mode qnn.htp_perf_mode_post_run qnn.rpc_control_latency qnn.lora_config",
    "dynamic": "ep.dynamic.workload_type ep.dynamic.qnn_htp_performance_mode",
}


def problems_of(*kinds: dict[str, str], **where: str | None) -> str:
    with pytest.raises(InvalidOption) as caught:
        validate_options(*kinds, **{**NEWEST, **where})
    error = caught.value
    assert error.code == "HX103"
    assert error.problems
    assert error.why == "\n".join(error.problems)
    return error.why


def accepts(*kinds: dict[str, str], **where: str | None) -> dict[str, str]:
    return dict(validate_options(*kinds, **{**NEWEST, **where}))


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize(("kind", "keys"), DOCUMENTED.items())
def test_every_documented_key_is_in_the_table(kind: str, keys: str) -> None:
    for key in keys.split():
        assert OPTIONS[key].kind == kind


def test_the_table_and_the_installed_libraries_agree() -> None:
    binaries = b""
    for package, pattern in (
        ("onnxruntime_qnn", "*onnxruntime_providers_qnn*"),
        ("onnxruntime", "capi/onnxruntime_pybind11_state*"),
    ):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            pytest.skip(f"{package} is not installed")
        binaries += b"".join(path.read_bytes() for path in Path(spec.origin).parent.glob(pattern))
    for option in facts.options():
        assert (option.key.encode() in binaries) != bool(option.replaced_by), option.key
        # A word of up to 8 letters may be compared as a number and leave no text behind.
        for value in option.values:
            assert len(value) <= 8 or value.encode() in binaries, (option.key, value)


def test_conditions_speak_of_options_and_values_that_exist() -> None:
    for rule in facts.combinations():
        for condition in (*rule.when, *rule.needs, *rule.forbids):
            key, equals, value = condition.partition("=")
            assert key in OPTIONS
            if equals:
                assert value in (OPTIONS[key].values or ("0", "1"))


def test_every_key_is_in_the_documentation() -> None:
    page = (Path(__file__).parent.parent / "docs" / "options.md").read_text(encoding="utf-8")
    assert [key for key in OPTIONS if f"`{key}`" not in page] == []


# ---------------------------------------------------------------- keys and values


def test_good_options_come_back_ready_to_hand_over() -> None:
    assert accepts({"backend_type": "htp", "soc_model": "SM8650", "vtcm_mb": "8"}) == {
        "backend_type": "htp",
        "soc_model": "57",
        "vtcm_mb": "8",
    }
    assert accepts({}) == {}


@pytest.mark.parametrize("key", [k for k, o in OPTIONS.items() if o.kind == "provider" and not o.replaced_by])
def test_a_misspelt_key_is_told_its_right_spelling(key: str) -> None:
    missing_letter = key[:3] + key[4:]
    assert f"did you mean {key}?" in problems_of({missing_letter: "1"})


@given(st.text(min_size=1, max_size=30).filter(lambda key: key not in OPTIONS))
def test_any_other_provider_key_is_refused(key: str) -> None:
    assert f"{key}: there is no such provider option" in problems_of({key: "1"})


CHOICES = [
    (option, value)
    for option in facts.options()
    if option.kind == "provider" and option.type in ("enum", "bool") and not option.replaced_by
    for value in option.values or ("0", "1")
]


@pytest.mark.parametrize(("option", "value"), CHOICES, ids=lambda x: getattr(x, "key", x))
def test_every_value_is_accepted_by_itself(option: facts.Option, value: str) -> None:
    platform = "windows-arm64"
    supporting = {"soc_model": "88"} if option.key not in ("soc_model", "backend_type") else {}
    session = {"ep.context_enable": "1"} if option.key == "enable_htp_prepare_only" else {}
    if option.key == "skip_backend_op_validation":
        supporting["dump_qnn_ir_dlc"] = "1"
    assert accepts({option.key: value, **supporting}, session, platform=platform)[option.key] == value


@pytest.mark.parametrize(
    ("option", "value"), [c for c in CHOICES if len(c[1]) > 3], ids=lambda x: getattr(x, "key", x)
)
def test_a_near_miss_is_told_the_right_value(option: facts.Option, value: str) -> None:
    for wrong in (value.upper(), value[:-1] + "#"):
        said = problems_of({option.key: wrong})
        assert f"did you mean {value}?" in said
        assert all(choice in said for choice in option.values)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("dump_json_qnn_graph", "true", "it takes 0, 1"),
        ("dump_json_qnn_graph", "", "it takes 0, 1"),
        ("device_id", "-1", "not a whole number"),
        ("rpc_control_latency", "²", "not a whole number"),
        ("vtcm_mb", "8 MB", "not a whole number"),
        ("vtcm_mb", "4,", "not a whole number"),
        ("backend_path", " ", "is empty"),
        ("htp_arch", "85", "it takes 0, 68, 69, 73, 75, 79, 81"),
        ("htp_arch", "v75", "did you mean 75?"),
        ("htp_share_resource_optimization", "0", "it takes 1"),
        ("soc_model", "9999", "there is no target '9999'"),
        ("soc_model", "SM8651", "SM8650"),
        ("soc_model", "57,", "there is no target ''"),
    ],
)
def test_bad_values(key: str, value: str, said: str) -> None:
    assert said in problems_of({key: value})


def test_a_number_instead_of_text_is_named() -> None:
    assert "give text, '57' instead of 57" in problems_of({"soc_model": 57})  # type: ignore[dict-item]


def test_all_problems_are_told_at_once() -> None:
    said = problems_of({"backend_typ": "htp", "soc_model": "43", "vtcm_mb": "64", "profiling_level": "full"})
    assert len(said.splitlines()) == 3
    assert "backend_type" in said
    assert "vtcm_mb: 64" in said
    assert "profiling_level" in said


@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.text(max_size=8), max_size=5))
def test_any_values_are_accepted_or_refused_but_never_crash(provider: dict[str, str]) -> None:
    try:
        accepted = validate_options(provider, **NEWEST)
    except InvalidOption as error:
        assert error.problems  # noqa: PT017 - either outcome is right
    else:
        assert accepted.keys() == provider.keys()


# ---------------------------------------------------------------- the right place, platform and release


def test_options_of_another_kind_are_sent_there() -> None:
    assert "is a session option" in problems_of({"ep.context_enable": "1"})
    assert "is a provider option" in problems_of({}, {"soc_model": "57"})
    assert "use the session option ep.context_enable" in problems_of({"qnn_context_cache_enable": "1"})
    assert "did you mean qnn.htp_perf_mode?" in problems_of({}, {}, {"qnn.perf_mode": "burst"})
    assert "did you mean ep.dynamic.workload_type?" in problems_of(
        {}, {}, {}, {"ep.workload_type": "Default"}
    )


def test_provider_options_in_their_session_form_are_checked_too() -> None:
    assert "soc_modle" in problems_of({}, {"ep.qnnexecutionprovider.soc_modle": "57"})
    assert accepts({}, {"ep.qnnexecutionprovider.soc_model": "57"}) == {"soc_model": "57"}


def test_a_slip_in_a_session_key_is_caught() -> None:
    said = problems_of({}, {"session.disable_cpu_ep_falback": "1"})
    assert "did you mean session.disable_cpu_ep_fallback?" in said


def test_session_keys_of_onnxruntime_itself_pass() -> None:
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        pytest.skip("onnxruntime is not installed")
    library = next(Path(spec.origin).parent.glob("capi/onnxruntime_pybind11_state*")).read_bytes()
    keys = {key.decode() for key in re.findall(rb"\0(session\.[a-z_.]+|ep\.[a-z_.]+)(?=\0)", library)}
    others = keys - set(OPTIONS)
    assert len(others) > 20
    assert accepts({}, dict.fromkeys(others, "1")) == {}


def test_the_wrong_platform_is_refused() -> None:
    assert "only on windows-arm64" in problems_of({"num_graph_prepare_threads": "4"})
    assert accepts({"num_graph_prepare_threads": "4"}, platform="windows-arm64")
    assert accepts({"enable_dx12_shared_memory_allocator": "1"}, platform="windows-x86_64")
    assert "windows" in problems_of({"enable_dx12_shared_memory_allocator": "1"}, platform="linux-aarch64")


def test_an_option_newer_than_the_release_is_refused() -> None:
    assert "came with onnxruntime-qnn 2.7.0" in problems_of({"htp_reused_io_limit_mb": "4"}, release="2.6.0")
    assert accepts({"htp_reused_io_limit_mb": "4"}, release="2.7.0")
    assert accepts({"htp_reused_io_limit_mb": "4"}, release=None)
    assert "critical came with" in problems_of({"qnn_context_priority": "critical"}, release="2.4.0")
    assert accepts({"qnn_context_priority": "high"}, release="2.4.0")
    several = {"soc_model": "57,60"}
    assert "several values came with" in problems_of(several, {"ep.context_enable": "1"}, release="2.4.0")


def test_this_machine_and_its_release_are_the_default() -> None:
    assert dict(validate_options({"soc_model": "57"})) == {"soc_model": "57"}
    assert re.fullmatch(r"[a-z]+-\w+", facts.current_platform())


# ---------------------------------------------------------------- what goes together

CONTEXT = {"ep.context_enable": "1"}


@pytest.mark.parametrize(
    ("provider", "session", "said"),
    [
        ({"backend_type": "htp", "backend_path": "libQnnHtp.so"}, {}, "does not go with backend_path"),
        ({"backend_type": "cpu"}, {}, "no libQnnCpu.so"),
        ({"enable_htp_prepare_only": "1"}, {}, "needs ep.context_enable=1"),
        (
            {"enable_htp_prepare_only": "1", "enable_htp_prepare_and_load": "1"},
            CONTEXT,
            "does not go with enable_htp_prepare_and_load=1",
        ),
        (
            {"enable_htp_prepare_and_load": "1"},
            {"ep.context_file_path": "x.onnx"},
            "needs ep.context_enable=1",
        ),
        ({"enable_htp_fp16_precision": "1"}, {}, "needs soc_model"),
        ({"enable_htp_fp16_precision": "1", "soc_model": "0"}, {}, "needs soc_model"),
        ({"htp_bf16_enable": "1"}, {}, "needs soc_model"),
        ({"htp_bf16_enable": "1", "soc_model": "87"}, {}, "from soc_model 88 on; SM8850 is 87"),
        ({"htp_bf16_enable": "1", "soc_model": "93"}, {}, "needs HTP v81 or newer; QCM6490 is v68"),
        ({"extended_udma": "1", "soc_model": "57"}, {}, "needs HTP v81 or newer; SM8650 is v75"),
        ({"soc_model": "57", "htp_arch": "73"}, {}, "is not SM8650's, v75"),
        ({"soc_model": "43", "vtcm_mb": "16"}, {}, "16 is more than SM8550 has, 8"),
        ({"soc_model": "57,60"}, {}, "several chips need ep.context_enable=1"),
        (
            {"soc_model": "57,60"},
            {**CONTEXT, "ep.share_ep_contexts": "1"},
            "several chips do not go with ep.share_ep_contexts=1",
        ),
        ({"soc_model": "57,60", "htp_arch": "75"}, CONTEXT, "has 1 value for the 2 of soc_model"),
        ({"soc_model": "57,60", "vtcm_mb": "8,8,8"}, CONTEXT, "has 3 values for the 2 of soc_model"),
        ({"soc_model": "57,45", "vtcm_mb": "8,8"}, CONTEXT, "8 is more than SXR1230P has, 2"),
        (
            {},
            {"ep.share_ep_contexts": "1", "ep.context_embed_mode": "1"},
            "needs ep.context_embed_mode=0",
        ),
        ({}, {"ep.stop_share_ep_contexts": "1"}, "needs ep.share_ep_contexts=1"),
        (
            {"offload_graph_io_quantization": "1"},
            {"session.disable_cpu_ep_fallback": "1"},
            "does not go with offload_graph_io_quantization=1",
        ),
        (
            {"enable_htp_graph_splitting": "1", "htp_share_resource_optimization": "1"},
            {},
            "does not go with htp_share_resource_optimization=1",
        ),
        ({"json_qnn_graph_dir": "d"}, {}, "needs dump_json_qnn_graph=1"),
        ({"framework_op_trace_dir": "d"}, {}, "needs enable_framework_op_trace=1"),
        ({"profiling_file_path": "p.csv"}, {}, "needs profiling_level"),
        ({"profiling_file_path": "p.csv", "profiling_level": "off"}, {}, "needs profiling_level"),
        ({"qnn_saver_path": "s.so", "dump_qnn_ir_dlc": "1"}, {}, "does not go with dump_qnn_ir_dlc=1"),
    ],
)
def test_what_does_not_go_together(provider: dict[str, str], session: dict[str, str], said: str) -> None:
    assert said in problems_of(provider, session)


@pytest.mark.parametrize(
    ("provider", "session"),
    [
        ({"enable_htp_prepare_only": "1", "soc_model": "57"}, CONTEXT),
        ({"enable_htp_fp16_precision": "1", "soc_model": "57"}, {}),
        ({"htp_bf16_enable": "1", "soc_model": "88"}, {}),
        ({"extended_udma": "1", "soc_model": "SM8850"}, {}),
        ({"soc_model": "57", "htp_arch": "75"}, {}),
        ({"soc_model": "57", "htp_arch": "0", "vtcm_mb": "0"}, {}),
        ({"soc_model": "SM7325", "vtcm_mb": "64"}, {}),  # its VTCM is not known
        ({"soc_model": "57,60", "htp_arch": "75,73", "vtcm_mb": "8"}, CONTEXT),
        ({}, {"ep.share_ep_contexts": "1", "ep.stop_share_ep_contexts": "1"}),
        ({"offload_graph_io_quantization": "0"}, {"session.disable_cpu_ep_fallback": "1"}),
        ({}, {"session.disable_cpu_ep_fallback": "1"}),
        ({"profiling_file_path": "p.csv", "profiling_level": "basic"}, {}),
        ({"enable_framework_op_trace": "1", "framework_op_trace_dir": "d"}, {}),
        ({"enable_htp_prepare_and_load": "1"}, {**CONTEXT, "ep.context_file_path": "x.onnx"}),
    ],
)
def test_what_goes_together(provider: dict[str, str], session: dict[str, str]) -> None:
    assert accepts(provider, session).keys() == provider.keys()


def test_rules_of_one_platform_leave_others_alone() -> None:
    assert accepts({"enable_htp_fp16_precision": "1"}, platform="windows-arm64")
    assert accepts({"backend_type": "cpu"}, platform="linux-x86_64", release="2.3.0")
    assert "x86_64 only" in problems_of({"soc_model": "57,60"}, CONTEXT, platform="linux-aarch64")
