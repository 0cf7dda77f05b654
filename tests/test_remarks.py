"""What is said of a result beside its figures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hexport.quantization.candidates import Candidate, Trial
from hexport.quantization.plan import FLOAT, SCHEMES, Plan, plan_for
from hexport.quantization.recipe import Recipe
from hexport.quantization.remarks import remarks
from quantised_graphs import cnn, workshop

TRIED = [
    Trial("8a8w", "mse", 1.0, 0, 30.0),
    Trial("8a8w", "mse", 1.0, 0, 30.0, npu_db=21.2),
    Trial("16a8w", "mse", 2.0, 0, 40.0, npu_db=39.2),
    Trial("16a8w", "mse", 2.0, 0, 40.0, npu_db=39.2, all_db=21.5),
    Trial("16a8w and fp16", "mse", 3.0, 4, 41.0, failure="it crashed"),
    Trial("fp16", "mse", 4.0, 9, 130.0, npu_db=63.0),
]


@pytest.mark.parametrize(("label", "is_float"), [("fp16", True), ("16a8w", False)])
def test_auto_says_why_it_is_nothing_cheaper_than_fp16(tmp_path: Path, label: str, is_float: bool) -> None:
    shop = workshop(cnn(), tmp_path)
    plan = plan_for(shop.model, SCHEMES["16a8w"], shop.arch)
    if is_float:
        plan = Plan({str(node.name): FLOAT for node in shop.model.graph})
    figure = cast(Any, SimpleNamespace(outputs=(), lowest_db=40.0))
    best = Candidate(label, plan, Recipe(), shop.model, 4.0, figure, npu=figure)
    said = list(remarks(shop, "auto", 30.0, best, TRIED))
    assert said == is_float * [
        "100 % of the multiply-accumulates are fp16, because with less of it nothing was enough on the NPU: "
        "8a8w came to 21.2 dB, 16a8w came to 39.2 dB (21.5 dB of all samples), 16a8w and fp16 failed"
    ]
