"""AIMET beside hexport in one run: 16a8w with AdaRound on models of the zoo, judged by the same simulator.

    python bench/aimet_peer.py --python VENV/bin/python [--models a,b] [--iterations 500] [--prepared FOLDER]

VENV is an environment with ``aimet-onnx``, made by hand: it brings a torch of its own, which has no place
beside hexport. The same script, started by that interpreter with --child, quantises; this side then measures
as ``quantize.py`` does. Both sides start from the same prepared model and the same 8 calibration samples,
one after the other, and run on the same test inputs. With --own MODEL.onnx CALIB.npz TEST.npz: a model that
is not in the zoo, with as many samples as its archive has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantize_report import Measured
    from quantize_sides import Made

RESULT = Path(__file__).parent / "results" / "aimet.json"
MODELS = "efficientnet-lite0,oww-embedding,ppocrv4-det,ppocrv6-det"
"""Convolutions alone, depthwise ones among them: what AIMET's rounding is made for."""
TARGET, SCHEME, TEST_SAMPLES = "SM8650", "16a8w", 3
CONFIG = "htp_v75"
"""AIMET's own description of the SM8650's generation."""


def child(model: Path, samples: Path, output: Path, iterations: int) -> None:
    """In AIMET's environment: ranges, AdaRound, and a QDQ model in ONNX's own operators."""
    import aimet_onnx  # type: ignore[import-not-found]  # only in the peer's environment
    import numpy as np
    import onnx

    inputs: list[dict[str, Any]] = []
    for path in sorted(samples.glob("*.npz")):
        with np.load(path) as arrays:
            inputs.append(dict(arrays))
    sim = aimet_onnx.QuantizationSimModel(
        onnx.load(model),
        param_type=aimet_onnx.int8,
        activation_type=aimet_onnx.int16,
        config_file=CONFIG,
        providers=["CPUExecutionProvider"],
    )
    if iterations:
        aimet_onnx.apply_adaround(sim, inputs, num_iterations=iterations)
    sim.compute_encodings(inputs)
    onnx.save(sim.to_onnx_qdq(export_int32_bias=True, prequantize_constants=True), output)


def main() -> None:
    """Parse, then be the side that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, metavar="PATH", help="an interpreter that has aimet-onnx")
    parser.add_argument("--models", default=MODELS, metavar="A,B")
    parser.add_argument("--own", nargs=3, type=Path, metavar=("MODEL", "CALIB", "TEST"))
    parser.add_argument("--iterations", type=int, default=500, help="of AdaRound; 0 leaves it out")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="keep prepared models here")
    parser.add_argument("--limit", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--child", nargs=3, type=Path, metavar=("MODEL", "SAMPLES", "OUTPUT"))
    options = parser.parse_args()
    if options.child:
        model, samples, output = options.child
        child(model, samples, output, options.iterations)
    elif options.python is None:
        parser.error("--python is needed")
    elif not _has_aimet(options.python):
        parser.error(f"{options.python} cannot import aimet_onnx")
    else:
        _compare(options)


def _has_aimet(python: Path) -> bool:
    try:
        done = subprocess.run([python, "-c", "import aimet_onnx"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _compare(options: argparse.Namespace) -> None:
    rows = []
    for name in [options.own[0].stem] if options.own else options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="hexport-bench-") as folder:
            for run in _measure(name, Path(folder), options):
                print(f"{name} 16a8w {run.side}: {run}", flush=True)
                rows.append(asdict(run))
    RESULT.parent.mkdir(exist_ok=True)
    document = {"schema_version": 1, "iterations": options.iterations, "runs": rows}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(f"written: {RESULT.parent.name}/{RESULT.name}", file=sys.stderr)


def _measure(name: str, folder: Path, options: argparse.Namespace) -> Iterator[Measured]:
    # Here, because the peer's environment has none of them.
    from hexport import facts
    from quantize_case import Case, OwnCase
    from quantize_sides import by_hexport, prepare

    about = (name, facts.find_target(TARGET), TEST_SAMPLES, folder)
    case = OwnCase(*about, files=options.own) if options.own else Case(*about)
    prepared = (options.prepared or folder) / f"{name}.onnx"
    if not prepared.is_file() and (failure := prepare(case.asked, prepared, TARGET, options.limit).failure):
        sys.exit(f"{name} was not prepared: {failure}")
    samples = case.calibration(prepared)
    yield case.judge("aimet", SCHEME, _by_aimet(prepared, samples, folder / "aimet", options))
    made = by_hexport(
        prepared, samples, folder / "hexport", SCHEME, options.limit, target=TARGET, effort="normal"
    )
    yield case.judge("hexport", SCHEME, made)


def _by_aimet(prepared: Path, samples: Path, folder: Path, options: argparse.Namespace) -> Made:
    from plain_runs import one_line
    from quantize_sides import Made
    from timed_child import run_timed

    folder.mkdir()
    output = folder / "model.onnx"
    asked = ["--iterations", str(options.iterations), "--child", str(prepared), str(samples), str(output)]
    ended = run_timed([str(options.python), __file__, *asked], options.limit)
    if output.is_file():
        return Made(output, ended.seconds, ended.peak_bytes)
    return Made(None, ended.seconds, ended.peak_bytes, one_line(ended.words) or "no file, no message")


if __name__ == "__main__":
    main()
