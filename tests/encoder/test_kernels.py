"""The forms of operations that a CPU's graph takes: equal to float64 NumPy, and fused."""

import functools
import logging
import threading
from collections import Counter
from concurrent.futures import CancelledError

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context  # the only way to the graph that ran

from bert_features.checkpoints.find import find_checkpoint
from bert_features.checkpoints.read import read_weights
from bert_features.config.output_specs import plan_outputs
from bert_features.config.outputs import OutputConfig
from bert_features.encoder import forms, kernels
from bert_features.encoder.attention.by_head import attend_by_head
from bert_features.encoder.modeling import BertEncoder
from bert_features.encoder.outputs import EncoderOutputs
from bert_features.encoder.step import DeviceStep
from bert_features.machine import onednn
from bert_features.runtime import tensorflow as runtime
from bert_features.runtime.tensorflow import TensorFlowRuntime
from bert_features.runtime.tensorflow_devices import Devices
from tests.reference.numpy_encoder import ACTIVATIONS, NumpyEncoder
from tests.toy import TOY, random_batch, random_weights

ONE_CPU = Devices("cpu", 1)


def cpu_step(config, weights, *, layers, precision="float32"):
    outputs = plan_outputs([OutputConfig.of({"layers": layers, "name": "x"})], config)
    model_fn = DeviceStep(config, weights, outputs, precision=precision)
    return TensorFlowRuntime(devices=ONE_CPU).compile(model_fn.step, model_fn.weights)


def run(step, batch):
    return step({name: tf.constant(value) for name, value in batch.items()})()


@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)])
@pytest.mark.parametrize("device_kind", ["cpu", "gpu", "tpu", "few tokens"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 0.03)])
def test_layer_norm(shape, device_kind, dtype, tolerance):
    rng = np.random.default_rng(0)
    x = tf.cast(rng.normal(3, 2, shape), dtype)
    gamma, beta = rng.normal(1, 0.2, 8), rng.normal(0, 0.5, 8)

    @tf.function(input_signature=[tf.TensorSpec([None] * (len(shape) - 1) + [8], x.dtype)])
    def norm(x):
        few_tokens = device_kind == "few tokens"
        with forms.traced_for("cpu" if few_tokens else device_kind, few_tokens=few_tokens):
            return kernels.layer_norm(x, tf.cast(gamma, dtype), tf.cast(beta, dtype), 1e-3)

    wide = x.numpy().astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * gamma + beta
    got = norm(x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.numpy().astype(np.float64), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "products", "has_offset", "rows", "has_batch_norm"),
    [
        ("float32", "onednn", True, None, True),
        ("bfloat16", "onednn", True, None, True),
        ("float32", "onednn", True, 5, False),
        ("float32", "onednn", False, None, False),
        ("bfloat16", "onednn", False, None, False),
        ("bfloat16", "plain", True, None, False),
        ("bfloat16", "refused", True, None, False),
    ],
)
def test_a_layer_norm_that_no_rewrite_knows_is_no_batch_norm(
    monkeypatch, dtype, products, has_offset, rows, has_batch_norm
):
    """The rewrite would leave it as it is, and oneDNN's own writes outside its memory.

    It knows none without an offset, none of a known shape, and none between the casts of bfloat16
    on a CPU that computes in float32 and rounds once.
    """
    monkeypatch.setattr(kernels, "bfloat16_products", lambda: products)
    rng = np.random.default_rng(0)
    x, gamma, beta = (
        tf.cast(rng.normal(size=size), dtype) for size in ((5, 8), 8, 8 if has_offset else 0)
    )

    @tf.function(input_signature=[tf.TensorSpec([rows, 8], dtype)])
    def norm(x):
        with forms.traced_for("cpu"):
            return kernels.layer_norm(x, gamma, beta if has_offset else None, 1e-5)

    traced = norm.get_concrete_function()
    types = {op.type for op in traced.graph.get_operations()}
    assert ("FusedBatchNormV3" in types) is has_batch_norm
    with forms.traced_for("cpu"):
        assert not kernels._fuses_layer_norm(x)  # outside a graph
    if has_batch_norm:  # `test_layer_norm` computes it
        return
    wide, gamma, beta = (array.numpy().astype(np.float64) for array in (x, gamma, beta))
    centred = wide - wide.mean(axis=-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * gamma
    wanted += beta if has_offset else 0
    tolerance = {"rtol": 0, "atol": 1e-5} if dtype == "float32" else {"rtol": 2**-8, "atol": 0}
    np.testing.assert_allclose(traced(x).numpy().astype(np.float64), wanted, **tolerance)


@pytest.fixture(scope="module")
def two_blocks(minilm_dir):
    """The config and the weights of a real checkpoint, of which two blocks are computed."""
    checkpoint = find_checkpoint(minilm_dir)
    return checkpoint.config.model_copy(update={"num_hidden_layers": 2}), read_weights(checkpoint)


@pytest.fixture(scope="module")
def batch_of(two_blocks):
    """A function: a batch with rows of these lengths, and its layers by float64 NumPy."""
    encoder = NumpyEncoder(*two_blocks)

    @functools.cache
    def make(lengths, padded):
        batch = random_batch(two_blocks[0], lengths, padded)
        return batch, encoder(*batch.values())

    return make


@pytest.fixture
def fixed_weights(monkeypatch):
    """oneDNN arranges weights once, whatever this CPU is."""
    if not onednn.is_x86():
        pytest.skip("oneDNN's products are for x86")
    monkeypatch.setattr(onednn, "fixes_weights", lambda dtype: True)
    monkeypatch.setattr(runtime, "bfloat16_products", lambda: "onednn")


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_layer_with_fixed_weights(two_blocks, batch_of, fixed_weights, precision):
    """Twice, because the second run takes the weights that the first arranged."""
    step = cpu_step(*two_blocks, layers=["embeddings", 0, 1], precision=precision)
    for lengths, padded in [((40, 13, 2), 40), ((260, 230, 7), 264)]:
        batch, expected = batch_of(lengths, padded)
        for _ in range(2):
            assert_layers_equal(step.run(batch).values(), expected, batch, precision)


@pytest.mark.parametrize("act", ["gelu_erf", "gelu_tanh", "relu", "silu", "tanh", "linear"])
@pytest.mark.parametrize("with_residual", [True, False])
def test_a_product_with_a_fixed_weight(fixed_weights, act, with_residual):
    """Equal to float64 NumPy; a batch of another size, too."""
    rng = np.random.default_rng(1)
    weight, bias = rng.standard_normal((48, 32)) / 7, rng.standard_normal(32)
    variables = [tf.Variable(value.astype(np.float32)) for value in (weight, bias)]

    @tf.function(input_signature=[tf.TensorSpec([None, 48]), tf.TensorSpec([None, 32])])
    def run(x, residual):
        with forms.traced_for("cpu", fixed_weights=True):
            values = [variable.value() for variable in variables]
            return kernels.dense(x, *values, act, residual if with_residual else None)

    outer = {"tanh": np.tanh, "linear": lambda x: x} | ACTIVATIONS
    for rows in (70, 3):
        x, residual = (rng.standard_normal((rows, n)).astype(np.float32) for n in (48, 32))
        expected = outer[act](x.astype(np.float64) @ weight + bias) + with_residual * residual
        np.testing.assert_allclose(run(x, residual), expected, atol=5e-6, rtol=0)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("lengths", [[9, 9], [9, 5]], ids=["no padding", "padding"])
def test_attention_head_by_head(narrow, lengths):
    """Against float64; without padding no pass over the scores adds a mask."""
    rng = np.random.default_rng(0)
    query, key, value = rng.standard_normal((3, 4, 2, 9, 8)).astype(np.float32)  # [A, B, S, D]
    mask = (np.arange(9) < np.array(lengths)[:, None]).astype(np.int32)
    scores = np.einsum("abqd,abkd->abqk", query.astype(np.float64), key) * 0.3
    weights = np.exp(scores) * mask[:, None]
    expected = np.einsum("abqk,abkd->bqad", weights / weights.sum(-1, keepdims=True), value)

    @tf.function(
        input_signature=[tf.TensorSpec([4, None, None, 8])] * 3 + [tf.TensorSpec(None, "int32")]
    )
    def run(query, key, value, mask):
        with forms.traced_for("cpu", row_limit=0, narrow=narrow):
            return attend_by_head(query, key, value, tf.ensure_shape(mask, (None, None)), 0.3)

    found = []
    nodes = nodes_executed(lambda: found.append(run(query, key, value, mask)))
    np.testing.assert_allclose(found[0], expected.reshape(2, 9, 32), rtol=0, atol=2e-6)
    if rewritten_for_onednn(nodes):
        products = Counter(node.op for node in nodes if "BatchMatMul" in node.op)
        fused = 0 if narrow else 4  # of the branch for padding: the scores of each head
        assert products["_MklFusedBatchMatMulV2"] == fused
        assert products["_MklBatchMatMulV2"] == 16 - fused


def test_a_tensorflow_without_onednn_arranges_no_weights(fixed_weights, monkeypatch):
    assert runtime._forms_on_cpu("float32")["fixed_weights"]
    monkeypatch.setattr(runtime, "bfloat16_products", lambda: "plain")
    assert not runtime._forms_on_cpu("float32")["fixed_weights"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lengths", "padded", "narrow"),
    [
        ((40, 13, 2), 40, False),
        ((260, 230, 7), 264, False),  # long rows, head by head
        ((100, 97, 7), 104, True),  # as well, on a CPU without AVX-512
        ((15, 4, 2), 16, False),  # few tokens
    ],
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_layer_of_the_cpu_step(
    two_blocks, batch_of, monkeypatch, lengths, padded, narrow, precision
):
    """In the forms for CPUs with and without AVX-512, whichever this one is."""
    monkeypatch.setattr(onednn, "is_narrow", lambda: narrow)
    batch, expected = batch_of(lengths, padded)
    step = cpu_step(*two_blocks, layers=["embeddings", 0, 1], precision=precision)
    assert_layers_equal(step.run(batch).values(), expected, batch, precision)


def assert_layers_equal(got, expected, batch, precision):
    real = batch["input_mask"] == 1
    for values, want in zip(got, expected, strict=True):
        a, b = np.asarray(values).astype(np.float64)[real], want[real]
        if precision == "float32":
            np.testing.assert_allclose(a, b, atol=2e-5, rtol=0)
        cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosine.min() > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("fuse_qkv", "lengths", "padded"),
    [
        (False, (64, 13, 2, 30), 64),  # two rows side by side, all four joined
        (True, (136, 13, 2), 136),
    ],
)
def test_every_layer_in_the_forms_for_tpus(
    two_blocks, batch_of, precision, fuse_qkv, lengths, padded
):
    """Computed on the CPU: that they are other ways to the same numbers.

    By XLA, as on a TPU: TensorFlow's own einsum sums in bfloat16 on a CPU without oneDNN.
    test_forms_on_jax has them on JAX.
    """
    config, weights = two_blocks
    batch, expected = batch_of(lengths, padded)
    encoder = BertEncoder(config, dtype=precision, fuse_qkv=fuse_qkv)
    encoder.load_weights_dict(weights)

    @tf.function(jit_compile=True, autograph=False)
    def step(batch):
        with forms.traced_for("tpu"):
            encoded = encoder(batch)
        return EncoderOutputs.from_dict(encoded).states

    got = step({name: tf.constant(values) for name, values in batch.items()})
    assert_layers_equal(got, expected, batch, precision)


def test_steps_side_by_side_keep_to_their_batches():
    """Twice as many started as run at a time, of all kinds of shapes, in two traces."""
    config = TOY.model_copy(update={"max_position_embeddings": 300})
    weights = random_weights(config)
    step = cpu_step(config, weights, layers=[-1])
    batches = [
        random_batch(config, [length, 3], length + 1, seed=length)
        for length in [5, 260, 9, 17, 290, 30, 4, 11]
    ]
    started = [
        step({name: tf.constant(value) for name, value in batch.items()}) for batch in batches
    ]
    for batch, results in zip(batches, started, strict=True):
        expected = NumpyEncoder(config, weights)(
            batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"]
        )[-1]
        real = batch["input_mask"] == 1
        np.testing.assert_allclose(results()["x"][real], expected[real], atol=2e-5, rtol=0)
    assert step.traces == 2


@pytest.mark.parametrize("few_tokens", [False, True])
def test_transpositions_have_gradients(few_tokens):
    """Official programs may ask for them in a batch of few tokens, as attributions do."""
    rng = np.random.default_rng(2)
    x, factors = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(3, 4, 2, 5))

    @tf.function
    def turned(x):
        with forms.traced_for("cpu", few_tokens=few_tokens):
            result = kernels.transpose(x, (1, 2, 0, 3))
        return result, tf.gradients(result * factors.astype("f"), x)[0]

    result, gradient = turned(tf.constant(x, "float32"))
    np.testing.assert_array_equal(result, x.astype("f").transpose(1, 2, 0, 3))
    np.testing.assert_array_equal(gradient, factors.astype("f").transpose(2, 0, 1, 3))


def test_batches_of_few_tokens_have_a_form_of_their_own():
    """Where a step runs alone; among many others a small batch does not repay another trace."""
    config = TOY.model_copy(update={"max_position_embeddings": 300})
    step = cpu_step(config, random_weights(config), layers=[-1])
    few, more, long = (random_batch(config, [length], length) for length in (6, 70, 270))
    for _ in range(2):
        step.run(few)
        assert set(step._traced) == {"few tokens"}
    graph = step._traced["few tokens"].graph
    assert not {op.type for op in graph.get_operations()} & {"FusedBatchNormV3"}
    alone = step.run(more)["x"]
    assert set(step._traced) == {"few tokens", "short rows"}
    np.testing.assert_array_equal(alone, run(step, more)["x"])
    np.testing.assert_array_equal(step.run(long)["x"], run(step, long)["x"])
    np.testing.assert_allclose(step.run(few)["x"], run(step, few)["x"], atol=1e-5, rtol=0)
    assert step.traces == 3


def test_steps_of_a_run_that_is_left_are_dropped(monkeypatch):
    """Those that have not begun; or leaving would take as long as they do."""
    monkeypatch.setattr(runtime, "cores", lambda: 1)
    step = cpu_step(TOY, random_weights(TOY), layers=[-1])
    begun = threading.Event()
    go_on = threading.Event()
    ran = []
    original = runtime._run

    def slow(traced, batch):
        begun.set()
        ran.append(batch)
        assert go_on.wait(20)
        return original(traced, batch)

    monkeypatch.setattr(runtime, "_run", slow)
    batch = {name: tf.constant(value) for name, value in random_batch(TOY, [6], 6).items()}
    first, second = step(batch), step(batch)
    assert begun.wait(20)
    assert not first.done()
    second.cancel()
    go_on.set()
    assert first()["x"].shape == (1, 6, 8)
    assert len(ran) == 1
    with pytest.raises(CancelledError):
        second()


def test_an_error_of_a_step_reaches_who_waits_for_it():
    step = cpu_step(TOY, random_weights(TOY), layers=[-1])
    batch = random_batch(TOY, [6], 6)
    batch["input_word_ids"][0, 0] = 1000  # beyond the vocabulary
    with pytest.raises(tf.errors.InvalidArgumentError, match="1000"):
        run(step, batch)


def nodes_executed(call):
    """The nodes of the graphs that the call runs, as TensorFlow's optimizers left them."""
    state = context.context()
    state.enable_graph_collection()
    try:
        call()
        metadata = state.export_run_metadata()
    finally:
        state.disable_graph_collection()
    graphs = [graph for f in metadata.function_graphs for graph in f.partition_graphs]
    return [node for graph in graphs for node in graph.node]


def rewritten_for_onednn(nodes):
    return any(node.op.startswith("_Mkl") for node in nodes)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_graph_is_fused(precision):
    """Each block: four products with bias and what follows, two for attention, two layer norms."""

    @tf.function
    def plain(x):
        return tf.nn.relu(tf.nn.bias_add(x @ x, x[0]))

    # Asked first: elsewhere a plain product in bfloat16 may end the process.
    if precision == "bfloat16" and kernels.bfloat16_products() != "onednn":
        pytest.skip("oneDNN does not compute in bfloat16 on this CPU")
    if not rewritten_for_onednn(nodes_executed(lambda: plain(tf.ones([64, 64], precision)))):
        pytest.skip("this TensorFlow does not rewrite its graphs for oneDNN on this CPU")
    step = cpu_step(TOY, random_weights(TOY), layers=[-1], precision=precision)
    batch = random_batch(TOY, [6, 4], 6)
    nodes = nodes_executed(lambda: run(step, batch))
    kinds = Counter(node.op for node in nodes)
    blocks = TOY.num_hidden_layers
    fused = Counter(
        tuple(operation.decode() for operation in node.attr["fused_ops"].list.s)
        for node in nodes
        if node.op == "_MklNativeFusedMatMul"
    )
    gelu = {key for key in fused if key[1:] and key[1].startswith("Gelu")}
    assert len(gelu) == 1
    assert fused == {("BiasAdd",): blocks, ("BiasAdd", "Add"): 2 * blocks, gelu.pop(): blocks}
    assert kinds["_MklLayerNorm"] == 2 * blocks + 1
    assert kinds["_MklFusedBatchMatMulV2"] == blocks
    assert kinds["_MklSoftmax"] == blocks
    # What is left to add are the embeddings.
    assert kinds["AddV2"] <= 3
    assert kinds["Mul"] == kinds["Rsqrt"] == kinds["Mean"] == 0


@pytest.mark.parametrize(("slowdown", "told"), [(1.9, True), (0.6, False)])
def test_slow_bfloat16_is_told(toy, monkeypatch, caplog, slowdown, told):
    from bert_features import FeatureExtractor

    monkeypatch.setattr(TensorFlowRuntime, "bfloat16_slowdown", lambda self: slowdown)
    caplog.set_level(logging.WARNING, "bert_features")
    FeatureExtractor.from_checkpoint(toy, layers=-1, precision="bfloat16")
    assert ("1.9 times as long" in caplog.text) is told


@pytest.mark.parametrize(
    ("device_kind", "dtype", "products", "sees_gpu", "expected"),
    [
        ("cpu", "float32", "refused", False, False),
        ("cpu", "bfloat16", "onednn", False, False),
        ("cpu", "bfloat16", "plain", True, True),
        ("cpu", "bfloat16", "refused", True, True),
        ("cpu", "float16", "refused", False, True),
        ("anywhere", "bfloat16", "plain", False, False),
        ("anywhere", "bfloat16", "refused", False, True),
        ("anywhere", "bfloat16", "refused", True, False),
        ("tpu", "bfloat16", "refused", False, False),
    ],
)
def test_where_operations_compute_in_float32(
    monkeypatch, device_kind, dtype, products, sees_gpu, expected
):
    monkeypatch.setattr(kernels, "bfloat16_products", lambda: products)
    monkeypatch.setattr(kernels, "_sees_gpu", lambda: sees_gpu)
    with forms.traced_for(device_kind):
        assert kernels._needs_float32(tf.zeros(1, dtype)) is expected
