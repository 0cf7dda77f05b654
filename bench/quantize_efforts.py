"""Time and memory of ``hexport quantize --effort fast`` beside the stock methods, at few and many samples.

Called by ``quantize.py --efforts``: the same prepared model, the same samples, 8a8w. Stock's min-max is the
documented default; percentile and entropy are its histogram methods.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hexport import zoo
from hexport.model import read
from quantize_sides import Made, by_hexport, by_stock, prepare, without_metadata, write_samples

COUNTS = (8, 512)
SCHEME = "8a8w"
METHODS = ("MinMax", "Percentile", "Entropy")
OURS = "hexport fast"
RESULT = Path(__file__).parent / "results" / "quantize-efforts.json"
Costs = dict[tuple[str, str, int], Made]
"""By model, who, and how many samples."""


def compare_efforts(
    names: Sequence[str], thoroughly: Sequence[str], kept: Path | None, target: str, limit: float
) -> None:
    """Measure every model at 8 samples beside min-max, those to look at ``thoroughly`` also at 512 samples
    and beside the other methods; print the table, write the JSON."""
    costs: Costs = {}
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="hexport-bench-") as temporary:
            prepared = (kept or Path(temporary)) / f"{name}.onnx"
            if not prepared.is_file() and (
                failure := prepare([f"zoo:{name}"], prepared, target, limit).failure
            ):
                print(f"{name} is not prepared: {failure}")
                continue
            for count in COUNTS if name in thoroughly else COUNTS[:1]:
                methods = METHODS if name in thoroughly else METHODS[:1]
                costs |= _measure(name, prepared, count, methods, Path(temporary, str(count)), target, limit)
        _write(costs)
    show(costs, names)


def _measure(
    name: str, prepared: Path, count: int, methods: Sequence[str], folder: Path, target: str, limit: float
) -> Costs:
    inputs = set(read(prepared).graph.inputs)
    samples = write_samples(zoo.inputs(name, split="calib", count=count), folder / "calib", inputs)
    bare = without_metadata(prepared, folder / "bare.onnx")
    found: Costs = {
        (name, method, count): by_stock(bare, samples, folder / method, SCHEME, limit, method)
        for method in methods
    }
    found[name, OURS, count] = by_hexport(
        prepared, samples, folder / "hexport", SCHEME, limit, target=target, effort="fast"
    )
    return found


def show(costs: Mapping[tuple[str, str, int], Made], names: Sequence[str]) -> None:
    """One line a model and a side: seconds and peak memory, over min-max at as many samples, and growth."""
    heads = "".join(f"{f'{n} samples':>16} {'× MinMax':>9}" for n in COUNTS)
    print(f"{'model':20} {'':14}{heads} {'memory grows':>14}")
    for name in names:
        for who in (*METHODS, OURS):
            made = [costs.get((name, who, n)) for n in COUNTS]
            if not any(made):
                continue
            first = [costs.get((name, METHODS[0], n)) for n in COUNTS]
            cells = "".join(f"{_cost(m):>16} {_ratio(m, f):>9}" for m, f in zip(made, first, strict=True))
            print(f"{name:20} {who:14}{cells} {_growth(made[0], made[-1]):>14}")
            for one in made:
                if one is not None and one.failure:
                    print(f"{'':20} {'':14}{one.failure}")


def _cost(made: Made | None) -> str:
    if made is None or made.failure:
        return "fails" if made else ""
    memory = "" if made.peak_bytes is None else f", {made.peak_bytes / 1e6:.0f} MB"
    return f"{made.seconds:.1f} s{memory}"


def _ratio(made: Made | None, other: Made | None) -> str:
    if made is None or other is None or made.failure or other.failure:
        return ""
    return f"{made.seconds / other.seconds:.2f}"


def _growth(few: Made | None, many: Made | None) -> str:
    if few is None or many is None or few.failure or many.failure:
        return ""
    return f"{many.peak_bytes / few.peak_bytes:.2f}×" if many.peak_bytes and few.peak_bytes else ""


def _write(costs: Costs) -> None:
    rows = [
        {
            "model": name,
            "side": who,
            "samples": count,
            "seconds": made.seconds,
            "peak_bytes": made.peak_bytes,
            "failure": made.failure,
        }
        for (name, who, count), made in costs.items()
    ]
    RESULT.parent.mkdir(exist_ok=True)
    document = {"schema_version": 1, "scheme": SCHEME, "runs": rows}
    RESULT.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
