"""Reading the native log: lines as onnxruntime-qnn 2.7.0 writes them."""

from __future__ import annotations

from pathlib import Path

from hexport.backend.native_log import DdrTraffic, parse_native_log
from hexport.toolchain.last_words import last_words

_STAMP = "2026-11-15 09:02:19.975940121 "
_SUPPORT = _STAMP + "[V:onnxruntime:, qnn_execution_provider.cc:1713 LogNodeSupport] Validation "
_RELAY = _STAMP + "[V:onnxruntime:Default, qnn_backend_manager.cc:519 QnnLogging] "

LOG = f"""\
{_SUPPORT}PASSED for 1 nodes in OrtNodeUnit (Conv) :
\tOperator type: Conv Node name: conv Node index: 0

{_SUPPORT}PASSED for 1 nodes in OrtNodeUnit (Loop) :
\tOperator type: Loop Node name: name with spaces Node index: 4

{_RELAY} <V> Validating Op conv with precision FP16
{_SUPPORT}FAILED for 2 nodes in QDQ (Erf) :
\tOperator type: Erf Node name: e1 Node index: 1
\tOperator type: Erf Node name: e2 Node index: 2
\tREASON : Operators of type `Erf` are not supported by QNN EP.

{_SUPPORT}FAILED for 1 nodes in OrtNodeUnit (Loop) :
\tOperator type: Loop Node name: name with spaces Node index: 4
\tREASON : Cannot get shape
====== DDR bandwidth summary ======
{_RELAY}spill_bytes=1
 fill_bytes=2
 write_total_bytes=30
 read_total_bytes=400
====== DDR bandwidth summary ======
 spill_bytes=10
 fill_bytes=20
 write_total_bytes=300
 read_total_bytes=4000
"""


def test_verdicts_reasons_precision_and_traffic() -> None:
    log = parse_native_log(LOG.splitlines(keepends=True))
    assert log.passed == {"conv"}
    erf = "Operators of type `Erf` are not supported by QNN EP."
    # The later verdict counts: the Loop passed before the layout changed, and failed after.
    assert log.failed == {"e1": erf, "e2": erf, "name with spaces": "Cannot get shape"}
    assert log.precision_of == {"conv": "FP16"}
    assert log.ddr == DdrTraffic(spill=11, fill=22, write_total=330, read_total=4400)
    assert log.setup_failure == ""


def test_a_backend_that_did_not_start() -> None:
    line = (
        f"\x1b[1;31m{_STAMP}[E:onnxruntime:, qnn_execution_provider.cc:2290 GetCapabilityImpl] "
        "QNN SetupBackend failed Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: bad\x1b[m\n"
    )
    expected = "Failed to create device. Error: QNN_DEVICE_ERROR_INVALID_CONFIG: bad"
    assert parse_native_log([line]).setup_failure == expected


def test_parts_that_were_refused() -> None:
    words = "OrtEp::GetCapability() for QNNExecutionProvider set nodes that cannot be fused together."
    place = "[E:onnxruntime:, ep_plugin_provider_interfaces.cc:412 GetCapability]"
    line = f"\x1b[1;31m{_STAMP}{place} {words}\x1b[m\n"
    log = parse_native_log([line])
    assert (log.cut_failure, log.setup_failure) == (words, "")


def test_nothing_said() -> None:
    log = parse_native_log([])
    assert (log.passed, log.failed, log.ddr) == (frozenset(), {}, None)


def test_last_words_prefer_complaints(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"{_RELAY} <V> chatter\n" * 50 + f"{_RELAY} <E> it broke\n" + "more chatter\n" * 50)
    assert last_words(path) == ("<E> it broke",)
    path.write_text("a\n\nb\n")
    assert last_words(path) == ("a", "b")
    assert last_words(tmp_path / "none") == ()
