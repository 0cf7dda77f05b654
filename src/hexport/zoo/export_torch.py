"""A checkpoint becomes an ONNX file. Run as a script inside the exporter's environment, never imported.

    python -I export_torch.py MODEL CHECKPOINT OUT [CODE]

leaves in OUT: ``model.onnx``, and ``check.npz`` with an example's inputs (``in:NAME``) and what torch
answered to it (``out:NAME``), which the caller compares with ONNX Runtime before the file counts.
CODE is a folder to import the model's own definition from.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]  # only in the exporter's environment
from torch import Tensor, nn

OPSET = 18  # what torch writes without a conversion step


class SelfAttention(nn.Module):  # type: ignore[misc]
    """BERT's attention, written out: no fused operator hides the mask from what compiles the graph."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)


class Layer(nn.Module):  # type: ignore[misc]
    """One encoder layer; module names are the checkpoint's, so that it loads strictly."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        norm = {"eps": 1e-12}
        self.attention = nn.ModuleDict(
            {
                "self": SelfAttention(width, heads),
                "output": nn.ModuleDict(
                    {"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, **norm)}
                ),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(inner, width), "LayerNorm": nn.LayerNorm(width, **norm)}
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        joined = self.attention["output"]
        x = joined["LayerNorm"](x + joined["dense"](self.attention["self"](x, mask)))
        inner = nn.functional.gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](x + self.output["dense"](inner))


class MiniLM(nn.Module):  # type: ignore[misc]
    """all-MiniLM-L6-v2: a six-layer BERT, and the mean over the tokens that are not padding."""

    def __init__(self) -> None:
        super().__init__()
        width = 384
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(30522, width),
                "position_embeddings": nn.Embedding(512, width),
                "token_type_embeddings": nn.Embedding(2, width),
                "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }
        )
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer(width, 1536, 12) for _ in range(6))})
        self.register_buffer("positions", torch.arange(512)[None], persistent=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        table = self.embeddings
        x = table["word_embeddings"](input_ids) + table["token_type_embeddings"](token_type_ids)
        x = x + table["position_embeddings"](self.positions[:, : input_ids.shape[1]])
        x = table["LayerNorm"](x)
        # The additive mask with the lowest float, as transformers makes it: a value that neither fp16
        # nor any quantised range holds. It stays, because the graphs that users bring have it.
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        weight = attention_mask[:, :, None].to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return x, nn.functional.normalize(mean, dim=1)


Example = dict[str, Tensor]
Dims = dict[str, dict[int, str]]


def minilm(checkpoint: Path) -> tuple[nn.Module, Example, Dims, list[str]]:
    from safetensors.torch import load_file  # type: ignore[import-not-found]

    weights = load_file(checkpoint)
    # Not used for sentence embeddings, and the position ids are a plain count.
    for unused in ("pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"):
        weights.pop(unused, None)
    model = MiniLM()
    model.load_state_dict(weights, strict=True)
    ids = torch.randint(1000, 30000, (2, 16), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    example = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return (
        model,
        example,
        {n: {0: "batch", 1: "sequence"} for n in example},
        ["last_hidden_state", "sentence_embedding"],
    )


def efficientnet_lite0(checkpoint: Path) -> tuple[nn.Module, Example, Dims, list[str]]:
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-not-found]  # from CODE

    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True), strict=True)
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    return model, {"inputs": images}, {"inputs": {0: "batch"}}, ["logits"]


MODELS: dict[str, Any] = {"minilm": minilm, "efficientnet-lite0": efficientnet_lite0}


def main(name: str, checkpoint: str, out: str, code: str | None = None) -> None:
    if code is not None:
        sys.path.insert(0, code)
    model, example, dims, outputs = MODELS[name](Path(checkpoint))
    model.eval()
    with torch.no_grad():
        answer = model(**example)
    answers = answer if isinstance(answer, tuple) else (answer,)
    torch.onnx.export(
        model,
        (),
        str(Path(out) / "model.onnx"),
        kwargs=example,
        dynamic_shapes=dims,
        input_names=list(example),
        output_names=outputs,
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
    )
    tensors = {f"in:{k}": v.numpy() for k, v in example.items()}
    tensors |= {f"out:{k}": v.numpy() for k, v in zip(outputs, answers, strict=True)}
    np.savez(Path(out) / "check.npz", **tensors)


if __name__ == "__main__":
    main(*sys.argv[1:])
