"""Histograms on disk: the same model and the same data need not be looked at twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir

from hexport.quantization.histogram import Histogram
from hexport.storage import Store, key_of

_FILE = "histograms.npz"
Histograms = dict[str, Histogram]


def kept_histograms(model: ir.Model, fingerprint: str, observe: Callable[[], Histograms]) -> Histograms:
    """What ``observe`` gives for this model and data, from the cache if it was asked before."""
    key = key_of("observe", model=_digest(model), data=fingerprint)
    made: list[Histograms] = []

    def make(folder: Path) -> None:
        made.append(observe())
        _write(made[0], folder / _FILE)

    folder, _ = Store().get("observe", key, make)
    return made[0] if made else _read(folder / _FILE)


def _digest(model: ir.Model) -> str:
    """Of the nodes, and of the weights one by one: as one message they would be in memory twice more."""
    digest = hashlib.sha256()
    for part in (*model.graph.inputs, *model.graph.outputs, *model.graph, *model.functions.values()):
        digest.update(ir.to_proto(part).SerializeToString(deterministic=True))
    for name, value in sorted(model.graph.initializers.items()):
        if value.const_value is not None:
            digest.update(name.encode())
            digest.update(ir.to_proto(value.const_value).SerializeToString(deterministic=True))
    return digest.hexdigest()


def _write(histograms: Histograms, path: Path) -> None:
    """Bins that hold something, one histogram after the other: a small tensor fills few of them."""
    items = list(histograms.values())
    lengths = np.array([np.count_nonzero(h.counts) for h in items], np.int64)
    widest = np.result_type(np.int16, *{h.counts.dtype for h in items})
    places, counts = np.empty(lengths.sum(), np.uint16), np.empty(lengths.sum(), widest)
    end = 0
    for histogram, length in zip(items, lengths, strict=True):
        begin, end = end, end + int(length)
        places[begin:end] = np.flatnonzero(histogram.counts)
        counts[begin:end] = histogram.counts[places[begin:end]]
    np.savez_compressed(
        path,
        names=np.array(list(histograms), dtype=str),
        ends=np.array([(h.low, h.high, h.width, h.first) for h in items], np.float64).reshape(-1, 4),
        infinite=np.array([h.infinite for h in items], bool),
        arrays=np.array([h.arrays for h in items], np.int64),
        extremes=np.array([x for h in items for x in (*h.lows, *h.highs)], np.float64),
        kept=np.array([len(h.highs) for h in items], np.int64),
        lengths=lengths,
        places=places,
        counts=counts,
    )


def _read(path: Path) -> Histograms:
    found: Histograms = {}
    with np.load(path, allow_pickle=False) as kept:
        # The last piece is what follows the last histogram: nothing. A model may also have none at all.
        cuts = np.cumsum(kept["lengths"])
        parts = (np.split(kept[name], cuts)[:-1] for name in ("places", "counts"))
        extremes = np.split(kept["extremes"], np.cumsum(2 * kept["kept"]))[:-1]
        columns = (kept[name] for name in ("names", "ends", "infinite", "arrays"))
        for name, ends, infinite, arrays, outer, places, counts in zip(
            *columns, extremes, *parts, strict=True
        ):
            low, high, width, first = ends
            histogram = found[str(name)] = Histogram()
            histogram.low, histogram.high, histogram.width = float(low), float(high), float(width)
            histogram.first, histogram.infinite, histogram.arrays = int(first), bool(infinite), int(arrays)
            histogram.lows, histogram.highs = (part.tolist() for part in np.split(outer, 2))
            histogram.fill(places, counts)
    return found
