"""Writes the same weights in the best form for each program: Hugging Face files and graphs.

    python -m benchmarking.models FOLDER ARCHITECTURE GRAPH RUNTIME...

A folder holds `config.json`, `model.safetensors`, `vocab.txt` and `tokenizer.json`, and the graphs
that runtimes load: `pooled.*` computes the mean of a text's tokens [B, H], `hidden.*` the last
layer [B, S, H]. Runs in a separate process, so that no other process loads PyTorch.
"""

import json
import logging
import shutil
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT_NAME = {"pooled": "vector", "hidden": "last_hidden_state"}


@dataclass(frozen=True)
class Architecture:
    """The size of a BERT encoder.

    Attributes:
      layers: number of blocks.
      hidden: width of the hidden layers.
      heads: number of attention heads.
      intermediate: width of the feed-forward layer.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int

    def flops_per_token(self, length: int) -> float:
        """Operations of the blocks per token of a row of `length`; a multiply-add counts as two."""
        dense = 4 * self.hidden**2 + 2 * self.hidden * self.intermediate
        attention = 2 * length * self.hidden
        return 2.0 * self.layers * (dense + attention)


ARCHITECTURES = {
    "minilm": Architecture(6, 384, 12, 1536),  # the embedded model's weights
    "random-minilm": Architecture(6, 384, 12, 1536),
    "random-bert-base": Architecture(12, 768, 12, 3072),
    "random-tiny": Architecture(2, 32, 2, 64),
}
_SEED = 20


def main(folder: str, architecture: str, graph: str, *runtimes: str) -> None:
    """Writes the files that are missing in the folder."""
    warnings.simplefilter(
        "ignore"
    )  # they concern tracing and deprecation; the outputs are compared later
    logging.disable(logging.WARNING)
    path = Path(folder)
    if not (path / "model.safetensors").exists():
        _write_model(path, architecture)
    for runtime in runtimes:
        _EXPORTERS[runtime](path, graph, ARCHITECTURES[architecture])


def _write_model(path: Path, architecture: str) -> None:
    from bert_features.checkpoints.find import find_checkpoint

    embedded = find_checkpoint("minilm")
    assert embedded.vocab_file is not None
    path.mkdir(parents=True, exist_ok=True)
    if architecture == "minilm":
        shutil.copy(embedded.weights_path, path / "model.safetensors")
        shutil.copy(embedded.weights_path.with_name("config.json"), path / "config.json")
    else:
        _random_model(ARCHITECTURES[architecture]).save_pretrained(path)
    shutil.copy(embedded.vocab_file, path / "vocab.txt")
    _write_tokenizer(path)


def _random_model(size: Architecture) -> Any:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(_SEED)
    return BertModel(
        BertConfig(
            vocab_size=30522,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=size.intermediate,
        )
    )


def _write_tokenizer(path: Path) -> None:
    from tokenizers import BertWordPieceTokenizer

    BertWordPieceTokenizer(str(path / "vocab.txt"), lowercase=True).save(
        str(path / "tokenizer.json")
    )
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": 512,
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


def _graph_module(path: Path, graph: str, attention: str) -> Any:
    """The encoder as a PyTorch module of (input_ids, attention_mask, token_type_ids)."""
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(
        path, attn_implementation=attention, add_pooling_layer=False, dtype=torch.float32
    )

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            hidden = self.model(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state
            if graph == "hidden":
                return hidden
            mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * mask).sum(1) / mask.sum(1)

    return Graph().eval()


def _example_inputs() -> tuple[Any, Any, Any]:
    import torch

    ids = torch.randint(1000, 2000, (2, 7), dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return ids, mask, torch.zeros_like(ids)


def _export_plain_onnx(path: Path, graph: str, to: Path) -> None:
    """Writes the graph as PyTorch exports it, without fused operators."""
    import torch

    axes = {name: {0: "batch", 1: "length"} for name in INPUT_NAMES}
    axes[OUTPUT_NAME[graph]] = {0: "batch"} | ({1: "length"} if graph == "hidden" else {})
    with torch.inference_mode():
        torch.onnx.export(
            _graph_module(path, graph, "eager"),
            _example_inputs(),
            str(to),
            input_names=list(INPUT_NAMES),
            output_names=[OUTPUT_NAME[graph]],
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,  # the optimizer's patterns know the graphs of the older exporter
        )


def _fused(plain: Path, size: Architecture, *, embeddings: bool = True) -> Any:
    """The graph with fused operators; whether the operator of the embeddings is one of them."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions("bert")
    options.enable_embed_layer_norm = embeddings
    return optimize_model(
        str(plain),
        model_type="bert",
        num_heads=size.heads,
        hidden_size=size.hidden,
        optimization_options=options,
        opt_level=1,
    )


def _export_onnx(path: Path, graph: str, size: Architecture) -> None:
    """Writes the graph with fused attention, layer norm and GELU, and its int8 form.

    Follows ONNX Runtime's documentation on transformers: first its optimizer, then dynamic
    quantization of the fused graph.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    fused, plain = path / f"{graph}.onnx", path / f"{graph}-plain.onnx"
    if (path / f"{graph}-int8.onnx").exists():
        return
    _export_plain_onnx(path, graph, plain)
    optimized = _fused(plain, size)
    fusions = optimized.get_fused_operator_statistics()
    (path / f"{graph}-fusions.json").write_text(json.dumps(fusions))
    optimized.save_model_to_file(str(fused))
    quantize_dynamic(
        str(fused),
        str(path / f"{graph}-int8.onnx"),
        weight_type=QuantType.QInt8,
        per_channel=True,
        # ONNX's shape inference does not know the fused operators.
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    plain.unlink()


def _export_fastembed(path: Path, graph: str, size: Architecture) -> None:
    """Writes the graph of the last layer, fused, with int64 inputs, which fastembed passes."""
    del graph  # fastembed makes the mean itself
    to, plain = path / "fastembed.onnx", path / "fastembed-plain.onnx"
    if to.exists():
        return
    _export_plain_onnx(path, "hidden", plain)
    # The fused operator of the embeddings takes int32.
    _fused(plain, size, embeddings=False).save_model_to_file(str(to))
    plain.unlink()


def _export_openvino(path: Path, graph: str, size: Architecture) -> None:
    """Writes the graph with PyTorch's fused attention, for which OpenVINO has a CPU kernel."""
    import openvino
    import torch

    del size
    if (path / f"{graph}.xml").exists():
        return
    inputs = dict(zip(INPUT_NAMES, _example_inputs(), strict=True))
    with torch.inference_mode():
        model = openvino.convert_model(
            _graph_module(path, graph, "sdpa"),
            example_input=inputs,
            input=[(name, openvino.PartialShape([-1, -1])) for name in INPUT_NAMES],
        )
    openvino.save_model(model, str(path / f"{graph}.xml"), compress_to_fp16=False)


_EXPORTERS = {
    "onnxruntime": _export_onnx,
    "openvino": _export_openvino,
    "fastembed": _export_fastembed,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
