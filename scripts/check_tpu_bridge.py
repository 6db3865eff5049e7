"""Lowers the TensorFlow runtime's step with TensorFlow's own TPU kernels, without a TPU.

    bash scripts/check_tpu_bridge.sh [--buckets 16,128] [--kinds word] [--self-test]

For every output kind and every batch shape, TensorFlow's TPU bridge turns the step into XLA's HLO,
the input of the TPU compiler. The check fails and names the operation if one has no TPU kernel, if
one runs on a TPU row by row or not at all, or if a float32 product is rounded. The script also
tokenizes with tensorflow-text beside tensorflow-tpu. It does not show that the TPU compiler accepts
the HLO, or that a chip computes it: nothing runs on a TPU here.
"""

import argparse
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any, get_args

# The chips to compile for; without these variables libtpu asks Google Cloud.
os.environ |= {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "KERAS_BACKEND": "tensorflow",
}

import tensorflow as tf

from bert_features.batches.bucketing import BatchShapes, choose_buckets, packed_buckets
from bert_features.config.bert_config import BertConfig
from bert_features.config.extract_config import ExtractConfig
from bert_features.config.features import OutputDtype
from bert_features.config.output_specs import (
    plan_outputs,
)
from bert_features.config.outputs import Combine, OutputConfig
from bert_features.config.poolings import POOLINGS
from bert_features.encoder.forms import traced_for
from bert_features.encoder.step import DeviceStep, Precision
from bert_features.official import modeling
from bert_features.official.graph_step import GraphStep
from bert_features.official.model_fn import EstimatorSpec
from bert_features.runtime import tensorflow_devices
from bert_features.text.tokenization import FullTokenizer

BATCH_TOKENS = 16384  # tokens of a batch on one device, as in a run
PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float32")
# HLO instructions that a TPU runs row by row or leaves to the host.
SLOW = ("scatter", "while", "sort", "custom-call", "infeed", "outfeed", "rng")

TOY = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=512,
)
# The architecture of the embedded model, all-MiniLM-L6-v2.
MINILM = BertConfig(
    vocab_size=30522,
    hidden_size=384,
    num_hidden_layers=6,
    num_attention_heads=12,
    intermediate_size=1536,
    max_position_embeddings=512,
)


@dataclass(frozen=True)
class Kind:
    """A kind of output.

    Attributes:
      name: name in the table.
      settings: settings of its `OutputConfig`.
      one_hot: whether words are looked up by a matrix product.
      config: architecture of the encoder.
      packed: whether several texts share a row.
      tensorflow_1: whether the step is a model_fn as programs for TensorFlow 1 have it; it
        computes every layer in float32 and has no `settings`.
    """

    name: str
    settings: Mapping[str, Any]
    one_hot: bool = False
    config: BertConfig = TOY
    packed: bool = False
    tensorflow_1: bool = False


@dataclass
class Table:
    """The time of each lowering by kind and shape, and the problems found."""

    shapes: Sequence[tuple[int, int]]
    rows: dict[str, list[str]] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def print(self, title: str) -> None:
        """Prints one row per kind."""
        width = max([len(title), *(len(name) for name in self.rows)])
        heads = [f"{rows}x{length}" for rows, length in self.shapes]
        print(f"\n{title:<{width}}", *(f"{head:>8}" for head in heads))
        for name, cells in self.rows.items():
            print(f"{name:<{width}}", *(f"{cell:>8}" for cell in cells))


def kinds() -> list[Kind]:
    """Every level, pooling, combination, dtype and switch, read from the settings' own types."""
    two = {"layers": [-1, "embeddings"]}
    listed = []
    for combine in get_args(Combine):
        weights = {"weights": [0.75, -2.0]} if combine == "weighted" else {}
        listed.append(Kind(f"token, {combine}", {**two, "combine": combine, **weights}))
    for dtype in get_args(OutputDtype):
        listed.append(Kind(f"token, {dtype}", {"layers": [-1], "dtype": dtype}))
    listed.append(Kind("token, normalized", {"layers": [-1], "normalize": True}))
    listed.append(Kind("token, dim", {"layers": [-1], "dim": 3}))
    listed.append(Kind("token, one-hot embeddings", {"layers": [-1]}, one_hot=True))
    for level, poolings in POOLINGS.items():
        for pooling in poolings if level != "token" else ():
            common = {"layers": [-1], "level": level, "pooling": pooling}
            listed.append(Kind(f"{level}, {pooling}", common))
            if level == "sequence" and pooling not in ("cls", "pooler"):
                name = f"sequence, {pooling}, no special tokens"
                listed.append(Kind(name, {**common, "special_tokens": False}))
    return listed


def packed_kinds() -> list[Kind]:
    """The kinds of a run whose texts share rows."""
    return [
        replace(kind, name=f"packed: {kind.name}", packed=True)
        for kind in [*kinds(), *large_kinds()]
        if not kind.tensorflow_1
    ]


def large_kinds() -> list[Kind]:
    """A few kinds at the size of the embedded model."""
    four = {"layers": [-1, -2, -3, -4], "combine": "sum", "dtype": "float16"}
    return [
        Kind("MiniLM: token, sum of four", four, config=MINILM),
        Kind("MiniLM: word, max", {**four, "level": "word", "pooling": "max"}, config=MINILM),
        Kind("MiniLM: sequence, mean", {**four, "level": "sequence"}, config=MINILM),
        Kind("MiniLM: one-hot embeddings", four, one_hot=True, config=MINILM),
        Kind("MiniLM: a model_fn of TensorFlow 1", {}, config=MINILM, tensorflow_1=True),
    ]


def graph_step(kind: Kind) -> GraphStep:
    """The step of a model_fn of TensorFlow 1, with random weights."""

    def model_fn(features: Mapping[str, Any], mode: str) -> EstimatorSpec:
        model = modeling.BertModel(
            kind.config,
            False,
            features["input_ids"],
            features["input_mask"],
            features["input_type_ids"],
            kind.one_hot,
        )
        layers = model.get_all_encoder_layers()
        return EstimatorSpec(mode, {f"layer_output_{i}": layer for i, layer in enumerate(layers)})

    spec = tf.TensorSpec([None, None], tf.int32)
    features = dict.fromkeys(("input_ids", "input_mask", "input_type_ids"), spec)
    return GraphStep(model_fn, features, params={}, config=None)


def model_of(kind: Kind, precision: Precision) -> DeviceStep | GraphStep:
    """The model_fn of one kind, with weights of zero."""
    if kind.tensorflow_1:
        return graph_step(kind)
    outputs = plan_outputs([OutputConfig.of(dict(kind.settings))], kind.config)
    return DeviceStep(
        kind.config,
        None,
        outputs,
        special_ids=(2, 3),
        precision=precision,
        use_one_hot_embeddings=kind.one_hot,
        fuse_qkv=False,  # as on a TPU
        packed=kind.packed,
    )


Step = Callable[[Sequence[Any], Mapping[str, Any]], Mapping[str, Any]]


def lower(step: Step, model_fn: DeviceStep | GraphStep, rows: int, length: int) -> str:
    """The HLO of a step as the runtime traces it for a TPU.

    Weights are arguments, because without a device the bridge refuses resource variables.

    Raises:
      ValueError: an operation has no TPU kernel.
    """

    @tf.function(jit_compile=True, autograph=False)
    def run(weights: list[tf.Tensor], batch: dict[str, tf.Tensor]) -> Mapping[str, Any]:
        with traced_for("tpu"):
            return step(weights, batch)

    weights = [tf.convert_to_tensor(weight.value) for weight in model_fn.weights]
    batch = {name: tf.zeros([rows, length], tf.int32) for name in model_fn.inputs}
    make = run.experimental_get_compiler_ir(weights, batch)
    return str(make(stage="hlo", platform_name="TPU"))


def problem_of(error: ValueError) -> str:
    """The names of the operations without a kernel, or the first line of the bridge's error."""
    missing = sorted(set(re.findall(r"No registered '(\w+)' OpKernel", str(error))))
    if missing:
        return f"no TPU kernel for {', '.join(missing)}"
    return next(iter(str(error).strip().splitlines()), "the bridge failed")


def problems_in(hlo: str, precision: Precision) -> list[str]:
    """Lists what a TPU would compute slowly, or less exactly than requested."""
    instructions = re.findall(r"= \S+ ([\w-]+)\(", hlo)
    problems = [f"a {name} in the HLO" for name in SLOW if name in instructions]
    dots = re.findall(r"= \w+\[.* dot\(.*", hlo)
    if not dots:
        problems.append("no matrix product in the HLO: this is not the step")
    if precision == "float32":
        rounded = sum("operand_precision={highest,highest}" not in dot for dot in dots)
        if rounded:
            problems.append(f"{rounded} of {len(dots)} float32 products round their factors")
    return problems


def check(kinds: Iterable[Kind], shapes: Sequence[tuple[int, int]], precision: Precision) -> Table:
    """Lowers every kind for every shape."""
    table = Table(shapes)
    for kind in kinds:
        model_fn = model_of(kind, precision)
        cells = table.rows[kind.name] = []
        for rows, length in shapes:
            started = time.perf_counter()
            try:
                problems = problems_in(lower(model_fn.step, model_fn, rows, length), precision)
            except ValueError as error:
                problems = [problem_of(error)]
            for problem in problems:
                where = table.problems.setdefault(f"{kind.name}, {precision}: {problem}", [])
                where.append(f"{rows}x{length}")
            cells.append("FAILED" if problems else f"{time.perf_counter() - started:.2f}")
    return table


def check_tokenizer() -> list[str]:
    """Lists the problems of tensorflow-text beside tensorflow-tpu."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "is", "this", "jack", "##son", "?"]
    ids = FullTokenizer(vocab).tokenize("Is this Jackson?")
    wanted = ["is", "this", "jack", "##son", "?"]
    return [] if list(ids) == wanted else [f"tensorflow-text gave {ids}, not {wanted}"]


# Operations that have no TPU kernel and never will, because the host runs them.
WITHOUT_KERNEL: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "EagerPyFunc": lambda x: tf.py_function(lambda y: y, [x], x.dtype),
    "AsString": lambda x: x + tf.cast(tf.strings.length(tf.strings.as_string(x)), x.dtype),
}


def self_test() -> list[str]:
    """Puts operations without a TPU kernel into the step; lists those that the check misses."""
    model_fn = model_of(Kind("token", {"layers": [-1], "dtype": "float32"}), "float32")
    problems = []
    for name, spoil in WITHOUT_KERNEL.items():

        def step(weights: Any, batch: Any, spoil: Any = spoil) -> dict[str, Any]:
            return {key: spoil(value) for key, value in model_fn.step(weights, batch).items()}

        try:
            lower(step, model_fn, 4, 16)
        except ValueError as error:
            print(f"with {name} in the step: {problem_of(error)}")
            if problem_of(error) != f"no TPU kernel for {name}":
                problems.append(f"{name} is not named: {problem_of(error)}")
        else:
            problems.append(f"{name} was lowered")
    # And products that are rounded although they should be float32.
    tf.config.experimental.enable_tensor_float_32_execution(True)
    found = problems_in(lower(model_fn.step, model_fn, 4, 16), "float32")
    print(f"with products of rounded factors: {'; '.join(found)}")
    return problems if found else [*problems, "rounded products were not found"]


def shapes_of(buckets: Sequence[int]) -> list[tuple[int, int]]:
    """The shape of a full batch on one device, for each bucket."""
    shapes = BatchShapes.by_tokens(buckets, BATCH_TOKENS)
    return list(zip(shapes.rows, shapes.buckets, strict=True))


def _lengths(text: str) -> tuple[int, ...]:
    lengths = tuple(sorted({int(part) for part in text.split(",") if part.isdigit()}))
    longest = TOY.max_position_embeddings
    if len(lengths) != text.count(",") + 1 or not 3 <= lengths[0] <= lengths[-1] <= longest:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: lengths of 3 to {longest}, as 16,128")
    return lengths


def main() -> int:
    """Prints the tables; returns 1 if there is a problem."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--buckets",
        type=_lengths,
        default=choose_buckets(
            ExtractConfig(), TOY.max_position_embeddings, any_shape=False, packed=False
        ),
        help="lengths of rows to check; by default those of a run on a TPU",
    )
    parser.add_argument("--kinds", default="", help="check only kinds with this text in their name")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="show that the check finds operations without a kernel",
    )
    arguments = parser.parse_args()
    lists = [
        (arguments.buckets, [*kinds(), *large_kinds()]),
        (packed_buckets(TOY.max_position_embeddings), packed_kinds()),
    ]
    wanted = [
        (buckets, chosen)
        for buckets, each in lists
        if (chosen := [kind for kind in each if arguments.kinds in kind.name])
    ]
    if not wanted:
        parser.error(f"no kind has {arguments.kinds!r} in its name")

    tensorflow_devices.keep_float32()  # as `resolve_devices` does for a TPU
    started = time.perf_counter()
    problems = self_test() if arguments.self_test else check_tokenizer()
    lowered = 0
    for precision, (buckets, chosen) in (
        () if arguments.self_test else itertools.product(PRECISIONS, wanted)
    ):
        table = check(chosen, shapes_of(buckets), precision)
        table.print(f"{precision}, seconds")
        problems += [f"{what} ({', '.join(at)})" for what, at in table.problems.items()]
        lowered += len(chosen) * len(buckets)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems and not arguments.self_test:
        print(
            f"\ntensorflow-text {metadata_version('tensorflow-text')} tokenizes beside "
            f"tensorflow-tpu {metadata_version('tensorflow-tpu')}, libtpu "
            f"{metadata_version('libtpu')}\n{lowered} steps lowered by the TPU bridge in "
            f"{time.perf_counter() - started:.0f} s; nothing ran on a TPU"
        )
    return 1 if problems else 0


def metadata_version(package: str) -> str:
    """The version of an installed package."""
    return metadata.version(package)


if __name__ == "__main__":
    sys.exit(main())
