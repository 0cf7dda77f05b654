"""The zoo's checkpoints as modules, with their real weights; defined as where the zoo exports them."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hexport import zoo
from hexport.zoo import export_torch
from hexport.zoo.catalogue import assets
from hexport.zoo.fetch import ensure

_NUMPY = {"F32": np.float32, "I64": np.int64}
_UNUSED = ("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids")


def minilm() -> nn.Module:
    """all-MiniLM-L6-v2."""
    (checkpoint,) = ensure([zoo.entry("minilm").source])
    model = export_torch.MiniLM()
    weights = {name: one for name, one in _safetensors(checkpoint).items() if name not in _UNUSED}
    model.load_state_dict(weights, strict=True)
    return model.eval()


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-Lite0, by the code that its checkpoint was published with."""
    (checkpoint,) = ensure([zoo.entry("efficientnet-lite0").source])
    _import_as("efficientnet_lite_pytorch", ensure(assets("efficientnet-code")))
    model: nn.Module = export_torch.efficientnet_lite0(checkpoint)[0]
    return model.eval()


def _safetensors(path: Path) -> Mapping[str, Tensor]:
    """The format is a length, a JSON header and the numbers: no package is needed to read it."""
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end])
    header.pop("__metadata__", None)
    found = {}
    for name, one in header.items():
        begin, stop = (end + offset for offset in one["data_offsets"])
        array = np.frombuffer(whole[begin:stop], _NUMPY[one["dtype"]]).reshape(one["shape"])
        found[name] = torch.from_numpy(array.copy())
    return found


def _import_as(name: str, files: list[Path]) -> None:
    """The zoo keeps a package's files in a folder of another name."""
    if name in sys.modules:
        return
    (start,) = (file for file in files if file.name == "__init__.py")
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[str(start.parent)])
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
