"""The programs of benchmarks/gpu.py: ours on JAX, peers on PyTorch, with the same weights.

Nothing here needs TensorFlow. Shape legend: `B` rows, `S` tokens of a row, `H` hidden_size, `R`
texts, `T` tokens of all texts.
"""

import importlib.metadata
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bert_features.batches.bucketing import BatchShapes, cut_batches, packed_buckets
from bert_features.checkpoints.weights.weight_names import weight_shapes, weights
from bert_features.config.bert_config import BertConfig

Batch = dict[str, np.ndarray]

OURS = "bert_features"
_SEED = 20


def random_weights(config: BertConfig) -> dict[str, np.ndarray]:
    """float32 weights under canonical names, the same in every process."""
    rng = np.random.default_rng(_SEED)
    made = {}
    for name, shape in weight_shapes(config, pooler=False).items():
        values = rng.standard_normal(shape, np.float32) * np.float32(config.initializer_range)
        made[name] = values + np.float32(name.endswith("gamma"))
    return made


def random_batch(config: BertConfig, rows: int, length: int, *, padded: bool, seed: int) -> Batch:
    """Arrays int32 [rows, length]; rows are full or, if `padded`, of many lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, length + 1, rows) if padded else np.full(rows, length)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, (rows, length), np.int32) * mask
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}


def random_texts(config: BertConfig, lengths: np.ndarray) -> Batch:
    """Texts of these lengths, [R], as a megabatch: their ids one after the other, int32 [T]."""
    ids = np.random.default_rng(_SEED).integers(0, config.vocab_size, lengths.sum(), np.int32)
    return {"values": ids, "lengths": lengths, "type_starts": lengths}


def padded_batches(texts: Batch, tokens: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """The numbers of the texts of a batch, [B], and the batch: the longest first, padded to it."""
    lengths, ends = texts["lengths"], np.cumsum(texts["lengths"])
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        length = int(lengths[order[0]])
        rows, order = np.split(order, [max(tokens // length, 1)])
        mask = (np.arange(length) < lengths[rows, None]).astype(np.int32)
        ids = np.zeros_like(mask)
        for row, text in enumerate(rows):
            ids[row, : lengths[text]] = texts["values"][ends[text] - lengths[text] : ends[text]]
        batch = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}
        yield rows, batch


class Program(Protocol):
    """A program with a model loaded."""

    def __init__(self, config: BertConfig, device: str) -> None: ...

    def facts(self) -> dict[str, Any]:
        """The device's name, and versions by package."""

    def run(self, batches: Sequence[Batch]) -> np.ndarray:
        """Batches on the host -> one vector per row on the host, float32 [all rows, H]."""

    def cut(self, texts: Batch, tokens: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """The numbers of the texts of each batch of so many tokens, and the batch."""


class Ours:
    """The device step, compiled and run as the Estimator does it."""

    def __init__(self, config: BertConfig, device: str) -> None:
        from bert_features.config.output_specs import (
            plan_outputs,
        )
        from bert_features.config.outputs import OutputConfig
        from bert_features.encoder.step import DeviceStep
        from bert_features.runtime.jax import JaxRuntime

        wanted = OutputConfig.of({"name": "text", "layers": [-1], "level": "sequence"})
        runtime = JaxRuntime("gpu" if device == "gpu" else "cpu")
        outputs = plan_outputs([wanted], config)
        model_fn = DeviceStep(config, random_weights(config), outputs, precision="bfloat16")
        self._step = runtime.compile(model_fn.step, model_fn.weights)
        packed = DeviceStep(
            config, random_weights(config), outputs, precision="bfloat16", packed=True
        )
        self._packed = runtime.compile(packed.step, packed.weights)
        self._models = model_fn, packed  # the variables live in them
        self._longest = config.max_position_embeddings

    def facts(self) -> dict[str, Any]:
        """See `Program`."""
        import jax

        return {
            "device": jax.local_devices()[0].device_kind,
            "devices": jax.local_device_count(),
            "versions": _versions("jax", "keras", "numpy"),
        }

    def run(self, batches: Sequence[Batch]) -> np.ndarray:
        """See `Program`; keeps as many batches in flight as the Estimator does."""
        started: deque[Callable[[], np.ndarray]] = deque()
        vectors = []
        for batch in batches:
            started.append(self._start(batch))
            if len(started) == self._step.in_flight:
                vectors.append(started.popleft()())
        vectors += [results() for results in started]
        return np.concatenate(vectors)

    def _start(self, batch: Batch) -> Callable[[], np.ndarray]:
        slots = batch.get("slots")
        if slots is None:
            results = self._step(batch)
            return lambda: results()["text"]
        packed = self._packed({name: each for name, each in batch.items() if name != "slots"})
        return lambda: np.concatenate(packed()["text"])[slots]

    def cut(self, texts: Batch, tokens: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """See `Program`; several texts share a row, as in `extract`."""
        shapes = BatchShapes.by_tokens(packed_buckets(self._longest), tokens)
        for members, batch in cut_batches(texts, replace(shapes, whole=True, packed=True)):
            yield members.rows, {**batch, "slots": members.slots}


class Padded:
    """A peer whose batches are padded to their longest text."""

    def cut(self, texts: Batch, tokens: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """See `Program`."""
        return padded_batches(texts, tokens)


class Transformers(Padded):
    """A BertModel with PyTorch's scaled_dot_product_attention, and the mean of its tokens."""

    _attention = "sdpa"

    def __init__(self, config: BertConfig, device: str) -> None:
        import torch

        self._torch = torch
        self._device = "cuda" if device == "gpu" else "cpu"
        model = _bert_model(config, self._attention)
        self._model = model.to(self._device, torch.bfloat16).eval()

    def facts(self) -> dict[str, Any]:
        """See `Program`."""
        return {"versions": _versions("torch", "transformers")}

    def run(self, batches: Sequence[Batch]) -> np.ndarray:
        """See `Program`; no batch waits for the previous one."""
        with self._torch.inference_mode():
            vectors = [self._vectors(self._inputs(batch)) for batch in batches]
            return self._torch.cat(vectors).float().cpu().numpy()

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        names = {
            "input_ids": "input_word_ids",
            "attention_mask": "input_mask",
            "token_type_ids": "input_type_ids",
        }
        return {
            name: self._torch.from_numpy(batch[ours]).to(
                self._device, self._torch.int64, non_blocking=True
            )
            for name, ours in names.items()
        }

    def _vectors(self, inputs: dict[str, Any]) -> Any:
        hidden = self._model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        # The sum is in float32, like ours.
        return (hidden * mask).sum(1, dtype=self._torch.float32) / mask.sum(1)


class Unpadded(Transformers):
    """The same with flash-attention, and the texts of a batch one after the other in one row."""

    _attention = "flash_attention_2"

    def cut(self, texts: Batch, tokens: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """See `Program`."""
        for rows, padded in padded_batches(texts, tokens):
            seen = padded["input_mask"] == 1
            lengths = padded["input_mask"].sum(1)
            positions = np.broadcast_to(np.arange(seen.shape[1], dtype=np.int32), seen.shape)
            ids = padded["input_word_ids"][seen]
            yield rows, {"ids": ids, "positions": positions[seen], "lengths": lengths}

    def _inputs(self, batch: Batch) -> dict[str, Any]:
        if "lengths" not in batch:  # rows of one length, or those of the comparison
            return super()._inputs(batch)
        inputs = {
            name: self._torch.from_numpy(each).to(self._device, non_blocking=True)
            for name, each in batch.items()
        }
        # On the host, because asking the device for it would wait for the batch before.
        return {**inputs, "longest": int(batch["lengths"].max())}

    def _vectors(self, inputs: dict[str, Any]) -> Any:
        if "lengths" not in inputs:
            return super()._vectors(inputs)
        torch, lengths = self._torch, inputs["lengths"]
        ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        ids, longest = inputs["ids"][None].long(), inputs["longest"]
        hidden = self._model(
            input_ids=ids,
            token_type_ids=torch.zeros_like(ids),
            position_ids=inputs["positions"][None].long(),
            cu_seq_lens_q=ends,
            cu_seq_lens_k=ends,
            max_length_q=longest,
            max_length_k=longest,
        ).last_hidden_state[0]
        numbers = torch.arange(len(lengths), device=ids.device)
        rows = torch.repeat_interleave(numbers, lengths, output_size=ids.shape[1])
        sums = hidden.new_zeros(len(lengths), hidden.shape[1], dtype=torch.float32)
        return sums.index_add_(0, rows, hidden.float()) / lengths[:, None]


class SentenceTransformers(Transformers):
    """The same model under a mean Pooling module, called on token ids."""

    def __init__(self, config: BertConfig, device: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer

        self._torch = torch
        self._device = "cuda" if device == "gpu" else "cpu"
        with tempfile.TemporaryDirectory() as folder:
            _bert_model(config, "sdpa").save_pretrained(folder)
            pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
            pieces += [f"[unused{i}]" for i in range(config.vocab_size - len(pieces))]
            Path(folder, "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
            transformer = Transformer(
                folder,
                model_kwargs={"dtype": torch.bfloat16, "attn_implementation": "sdpa"},
            )
        pooling = Pooling(config.hidden_size, pooling_mode="mean")
        modules = [transformer, pooling]
        self._model = SentenceTransformer(modules=modules, device=self._device).eval()

    def facts(self) -> dict[str, Any]:
        """See `Program`."""
        return {"versions": _versions("sentence-transformers")}

    def _vectors(self, inputs: dict[str, Any]) -> Any:
        return self._model(dict(inputs))["sentence_embedding"]


def _bert_model(config: BertConfig, attention: str) -> Any:
    """A Hugging Face BertModel with our weights, float32 on the CPU."""
    import torch
    import transformers

    settings = config.model_dump() | {"hidden_act": "gelu", "attn_implementation": attention}
    model = transformers.BertModel(transformers.BertConfig(**settings), add_pooling_layer=False)
    ours = random_weights(config)
    tensors = {}
    for weight in weights(config, pooler=False):
        value = ours[weight.canonical]
        value = np.ascontiguousarray(value.T if weight.transposed else value)
        tensors[weight.huggingface] = torch.from_numpy(value)
    model.load_state_dict(tensors)  # raises an error if one is missing
    return model


def _versions(*packages: str) -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in packages}


PROGRAMS: dict[str, type[Program]] = {
    OURS: Ours,
    "transformers": Transformers,
    "transformers flash": Unpadded,
    "sentence-transformers": SentenceTransformers,
}
# Peer -> the modules that it needs.
MODULES = {
    "transformers": ("torch", "transformers"),
    "transformers flash": ("torch", "transformers", "flash_attn"),
    "sentence-transformers": ("torch", "transformers", "sentence_transformers"),
}
