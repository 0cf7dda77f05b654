"""Options of the documented pages: each of them is taken, and told to whom it concerns."""

from __future__ import annotations

import gc
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexport.onnxruntime as onnxruntime
import small_models as small
from hexport import facts
from hexport.backend.options import InvalidOption
from hexport.errors import HexportError
from hexport.onnxruntime import rehearsal
from hexport.onnxruntime import session as sessions
from hexport.onnxruntime.asking import understand

CHIP = {"backend_path": "QnnHtp.dll", "soc_model": "57"}
MODES = (
    "burst balanced default high_performance high_power_saver low_balanced low_power_saver power_saver "
    "sustained_high_performance"
)
# The tables of the two pages, 1.16's and 1.20's, word by word.
TABLES: dict[str, tuple[str, ...]] = {
    "backend_path": ("libQnnCpu.so", "QnnCpu.dll", "libQnnHtp.so", "QnnHtp.dll"),
    "profiling_level": ("off", "basic", "detailed"),
    "rpc_control_latency": ("0", "100"),
    "vtcm_mb": ("0", "8"),
    "htp_performance_mode": tuple(MODES.split()),
    "qnn_saver_path": ("QnnSaver.dll", "libQnnSaver.so"),
    "qnn_context_priority": ("low", "normal", "normal_high", "high"),
    "htp_graph_finalization_optimization_mode": ("0", "1", "2", "3"),
    "soc_model": ("0", "57", "60"),
    "htp_arch": ("0", "75"),
    "device_id": ("0",),
    "enable_htp_fp16_precision": ("0", "1"),
    "offload_graph_io_quantization": ("0", "1"),
    "qnn_context_cache_enable": ("0", "1"),
    "qnn_context_cache_path": ("/path/to/context/cache",),
}


@pytest.mark.filterwarnings("ignore::hexport.onnxruntime.QnnWarning")
@pytest.mark.parametrize(("key", "value"), [(key, value) for key in TABLES for value in TABLES[key]])
def test_every_value_of_the_pages_tables_is_taken(key: str, value: str) -> None:
    provider = {**CHIP, key: value}
    if key == "htp_arch":
        provider = {"htp_arch": value}
    wish = understand(provider, {})
    assert wish.backend == ("cpu" if "Cpu" in value else "htp")
    assert wish.recorded_only == ("Saver" in value)


def test_a_profile_has_its_file(tmp_path: Path) -> None:
    wish = understand({**CHIP, "profiling_level": "basic", "profiling_file_path": "profile.csv"}, {})
    assert wish.provider["profiling_file_path"] == str(Path("profile.csv").absolute())
    with pytest.raises(InvalidOption, match="profiling_level"):
        understand({**CHIP, "profiling_file_path": "profile.csv"}, {})


@pytest.mark.filterwarnings("ignore::hexport.onnxruntime.QnnWarning")
def test_each_option_is_told_to_whom_it_concerns() -> None:
    """Every boolean, enum and number of the provider that goes with one chip on this platform."""
    given = {}
    for option in facts.options():
        if option.kind != "provider" or option.replaced_by or option.key == "backend_path":
            continue
        value = option.default or (option.values[0] if option.values else "1")
        try:
            given[option.key] = dict(understand({**CHIP, option.key: value}, {}).provider)[option.key]
        except HexportError:
            continue
    assert len(given) > 20
    assert {"profiling_level", "dump_json_qnn_graph", "vtcm_mb"} <= set(given)
    for key, value in given.items():
        wish, use = understand({**CHIP, key: value}, {}), facts.use_of(key)
        assert (key in wish.compiler_options) == (use is None or use.compiler), key
        assert (key in wish.context_provider) == (use is None or use.context), key


def test_entries_about_contexts_are_not_the_sessions() -> None:
    entries = {
        "ep.context_enable": "1",
        "ep.share_ep_contexts": "1",
        "ep.stop_share_ep_contexts": "1",
        "ep.qnnexecutionprovider.vtcm_mb": "4",
        "hexport.prepare": "0",
        "session.disable_cpu_ep_fallback": "1",
        "session.intra_op.allow_spinning": "0",
    }
    wish = understand(CHIP, entries)
    assert set(wish.session_entries) == {"session.disable_cpu_ep_fallback", "session.intra_op.allow_spinning"}
    assert set(wish.sharing) == {"ep.share_ep_contexts", "ep.stop_share_ep_contexts"}
    assert wish.compiler_options["vtcm_mb"] == "4"


@pytest.mark.parametrize(
    ("provider", "entries"),
    [
        ({"enable_htp_prepare_only": "1"}, {"ep.context_enable": "1"}),
        ({"enable_htp_prepare_and_load": "1"}, {}),
        ({"enable_framework_op_trace": "1"}, {}),
        ({}, {"ep.context_node_name_prefix": "a"}),
    ],
)
def test_options_without_effect_are_said_and_their_defaults_are_not(
    provider: dict[str, str], entries: dict[str, str], recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.warns(onnxruntime.QnnWarning, match="no effect here"):
        understand({**CHIP, **provider}, entries)
    understand({**CHIP, **dict.fromkeys(provider, "0")}, {})
    assert len(recwarn) == 0


# ---------------------------------------------------------------- sessions that share a context


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three context models of one binary, and a fourth of another, really compiled."""
    monkeypatch.setenv("HEXPORT_CACHE", str(tmp_path / "cache"))
    made = []
    for names in (("a", "b", "c"), ("d",)):
        for name in names:
            model = small.save(small.conv_relu(), tmp_path / f"{name}.onnx")
            entries = {"ep.context_enable": "1", "ep.share_ep_contexts": "1", "hexport.prepare": "0"}
            if name == names[-1]:
                entries["ep.stop_share_ep_contexts"] = "1"
            _session(model, entries)
            made.append(tmp_path / f"{name}_ctx.onnx")
    return made


def _session(model: Path, entries: dict[str, str]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(model, options, [("QNNExecutionProvider", CHIP)])


SHARE = {"ep.share_ep_contexts": "1"}


class Real:
    """Stands for the native session of a device, which the simulator has not."""

    def __init__(self, name: str, ended: list[str]) -> None:
        self.name, self.ended = name, ended

    def __del__(self) -> None:
        self.ended.append(self.name)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_first_of_those_that_share_ends_last(
    order: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the caller lets them go; and a session of another binary holds none of them."""
    ended: list[str] = []

    def start(self: Any, model: Path, *_: Any) -> None:
        self._sess = Real(model.stem, ended)

    monkeypatch.setattr(sessions.InferenceSession, "_start", start)
    monkeypatch.setattr(rehearsal, "is_context", lambda _: True)
    monkeypatch.setattr(rehearsal, "cpu_nodes", lambda _: ())
    monkeypatch.setattr(rehearsal, "rehearse_context", lambda *_: None)
    monkeypatch.setattr(rehearsal, "binaries", lambda model: [model.with_name(f"{model.stem[0]}.bin")])
    held: list[Any] = [_session(tmp_path / f"a{i}.onnx", SHARE) for i in range(3)]
    other = _session(tmp_path / "b0.onnx", SHARE)
    for index in order:
        held[index] = None
    gc.collect()
    assert ended == ["a2", "a1", "a0"]
    del other
    assert ended[3:] == ["b0"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the simulator")
def test_real_sessions_that_share_close_in_any_order(contexts: list[Path]) -> None:
    """Every order of three that share, beside one of another binary that goes on."""
    ones = {"x": np.ones((1, 3, 16, 16), np.float32)}
    for order in itertools.permutations(range(3)):
        with pytest.warns(onnxruntime.QnnWarning, match="compiled apart"):
            held: list[Any] = [_session(context, SHARE) for context in contexts]
        results = [one.run(None, ones)[0] for one in held]
        for index in order:
            held[index] = None
            gc.collect()
            np.testing.assert_array_equal(held[3].run(None, ones)[0], results[3])
        assert all(np.array_equal(results[0], result) for result in results)
