"""The JAX runtime gives what the TensorFlow runtime gives, and what float64 NumPy gives.

Keras has one backend in each process, so JAX runs in another, on 8 virtual devices.
"""

import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_features import FeatureExtractor, read_features
from bert_features.config.poolings import POOLINGS
from bert_features.errors import ConfigError, DeviceError, MissingExtraError
from bert_features.files import cache_dir
from bert_features.machine import selection
from bert_features.runtime.base import device_errors_explained
from bert_features.runtime.start import make_runtime
from tests import bge_m3, families, multi_vector, sentence_dense, sparse_encoder
from tests.conftest import NUM_DEVICES
from tests.encoder import gradients
from tests.made_up_machine import install
from tests.markers import of_release
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder
from tests.toy import TOY, TOY_VOCAB, random_batch, random_weights

pytest.importorskip("jax", reason="JAX is not installed: pip install '.[jax]'")

from bert_features.runtime import jax as jax_runtime

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["Is this Jacksonville?", "", "the a b", "not a jackson, is it? No. " * 3, "B", "zzz"]
BANKS = ["A bank lends money.", "The bank of the river was muddy after days of heavy rain."]
TOY_SETTINGS = {
    "max_seq_length": 20,
    "buckets": [12],
    "batch_size": NUM_DEVICES,
    "do_lower_case": True,
}
OUTPUTS = [
    {"name": "layers", "layers": [-1, 0, "embeddings"]},
    {"name": "sum", "layers": [-1, -2], "combine": "sum"},
    {"name": "mean", "layers": [-1, -2], "combine": "mean"},
    {"name": "concat", "layers": [-1, -2], "combine": "concat", "dim": 11},
    {"name": "weighted", "layers": [-1, -2], "combine": "weighted", "weights": [0.25, -2.0]},
    {"name": "float16", "layers": [-1], "dtype": "float16"},
    {"name": "bfloat16", "layers": [-1], "dtype": "bfloat16"},
    {"name": "unit", "layers": [-1], "normalize": True},
    *(
        {"name": f"{level} {pooling}", "level": level, "pooling": pooling, "layers": [-1]}
        for level in ("word", "span", "sequence")
        for pooling in POOLINGS[level]
    ),
    {"name": "content", "level": "sequence", "special_tokens": False, "layers": [-1, -2],
     "combine": "sum"},
]  # fmt: skip
SPANS = {"spans": "4/2"}
ATTENTION = [
    {"name": "attention", "kind": "attention", "layers": [-1, 0]},
    {"name": "of words", "kind": "attention", "layers": [1], "level": "word", "heads": "max"},
    {"name": "of [CLS]", "kind": "attention", "layers": [1], "heads": "mean", "pooling": "cls"},
]
# Two units in the last place of values around 2: where the runtimes round to different sides.
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2}


def environment(**changes):
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        # Little is computed, so the compiler may leave it slow.
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={NUM_DEVICES} "
        "--xla_backend_optimization_level=0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **changes,
    }


UNSET = "Set JAX_NUM_PROCESSES and JAX_PROCESS_ID"
# Options and environment of a run that is refused, and what its message has.
REFUSED = [
    ([], {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1"}, UNSET),
    (["--device=gpu"], {}, "no GPU: this machine has none"),
    (["--device=tpu"], {}, "no TPU: this machine has none"),
    (
        ["--shard=auto"],
        {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"},
        "JAX_PROCESS_ID is 2, of",
    ),
    (
        ["--shard=auto"],
        {"JAX_NUM_PROCESSES": "two", "JAX_PROCESS_ID": "1"},
        "JAX_NUM_PROCESSES is 'two'",
    ),
]


@pytest.fixture(scope="module")
def jobs(toy, minilm_dir, family_files, tmp_path_factory):
    toy_settings = {**TOY_SETTINGS, "outputs": [*OUTPUTS, *ATTENTION], **SPANS}
    of_spans = [output for output in OUTPUTS if output["name"] == "span mean"]
    narrow = {**TOY_SETTINGS, "outputs": OUTPUTS[:1] + of_spans, "precision": "bfloat16", **SPANS}
    real = {"layers": [1, "embeddings"], "batch_size": NUM_DEVICES}
    packed = {**TOY_SETTINGS, "outputs": OUTPUTS, "buckets": None, **SPANS}
    dense = sentence_dense.write("two", tmp_path_factory.mktemp("dense"))
    auto = {**sentence_dense.AUTO, "batch_size": NUM_DEVICES}
    splade = str(sparse_encoder.write("splade", tmp_path_factory.mktemp("sparse") / "splade"))
    terms = {"kind": "sparse", "batch_size": NUM_DEVICES}
    masked = str(ROOT / "tests" / "data" / "masked_lm")
    lens = {"kind": "score", "level": "word", "layers": ["embeddings", "all"]}
    lens |= {"batch_size": NUM_DEVICES, "do_lower_case": True}

    late = multi_vector.write("classic", tmp_path_factory.mktemp("late") / "in")
    queries = {**multi_vector.KIND, "prompt": "query", "batch_size": NUM_DEVICES}
    m3 = bge_m3.write(tmp_path_factory.mktemp("m3") / "model", family_files)
    three = {"outputs": bge_m3.OUTPUTS, "batch_size": NUM_DEVICES}
    return {
        "sparse": {"checkpoint": splade, "texts": sparse_encoder.TEXTS, "settings": terms},
        "dense": {"checkpoint": str(dense), "texts": sentence_dense.TEXTS, "settings": auto},
        "m3": {"checkpoint": str(m3), "texts": bge_m3.TEXTS, "settings": three},
        "late": {"checkpoint": str(late), "texts": multi_vector.TEXTS, "settings": queries},
        "toy": {"checkpoint": toy, "texts": TEXTS, "settings": toy_settings},
        "lens": {"checkpoint": masked, "texts": TEXTS[:2], "settings": lens},
        "packed": {"checkpoint": toy, "texts": TEXTS * 12, "settings": packed},
        "bfloat16": {"checkpoint": toy, "texts": TEXTS[:1], "settings": narrow},
        "real": {"checkpoint": str(minilm_dir), "texts": BANKS, "settings": real},
    }


def has_release(request):
    """Whether tests of a release run, which need more jobs."""
    return any(item.get_closest_marker("release") for item in request.session.items)


@pytest.fixture(scope="module")
def on_jax(request, jobs, tmp_path_factory):
    """The folder of what a process on JAX computed; what tests of release need takes 25 seconds."""
    whole = has_release(request)
    jobs = {name: job for name, job in jobs.items() if whole or name != "real"}
    folder = tmp_path_factory.mktemp("on_jax")
    (folder / "in.txt").write_text("a\n")
    refused = [case[:2] for case in REFUSED]
    subprocess.run(
        [sys.executable, "-W", "error::UserWarning:bert_features", "-m", "tests.on_jax"],
        input=json.dumps(
            {"folder": str(folder), "refused": refused, "jobs": jobs, "of_release": whole}
        ),
        text=True,
        check=True,
        timeout=600,
        env=environment(),
    )
    return folder


@pytest.fixture(scope="module")
def facts(on_jax):
    return json.loads((on_jax / "facts.json").read_text())


@pytest.fixture(scope="module")
def of_tensorflow(request, jobs):
    """The features of each text by the TensorFlow runtime; those of packed texts are the toy's."""
    found = {}
    for name in ("toy", "lens", *["real"] * has_release(request)):
        job = jobs[name]
        extractor = FeatureExtractor.from_checkpoint(job["checkpoint"], **job["settings"])
        found[name] = [record.features for record in extractor(job["texts"])]
    attention = ("attention", "of ")  # which packing excludes
    packed = [
        {name: values for name, values in features.items() if not name.startswith(attention)}
        for features in found["toy"]
    ]
    return found | {"packed": packed * 12}


@pytest.mark.slow
@pytest.mark.parametrize("job", ["toy", "lens", "packed", of_release("real")])
def test_every_output_equals_tensorflows(on_jax, of_tensorflow, jobs, job):
    compared = 0
    with np.load(on_jax / f"{job}.npz") as got:
        for i, features in enumerate(of_tensorflow[job]):
            for name, values in features.items():
                tolerance = TOLERANCES.get(name, 1e-5)
                np.testing.assert_allclose(
                    got[f"{i}/{name}"],
                    values.astype(np.float32),
                    rtol=0,
                    atol=tolerance,
                    err_msg=f"{name} of text {i}",
                )
                compared += 1
        assert compared == len(got.files) >= len(jobs[job]["texts"])


@pytest.mark.slow
def test_gradients_of_poolings_equal_tensorflows(on_jax):
    """Also where rows, words and spans are empty."""
    with np.load(on_jax / "gradients.npz") as got:
        for found, wanted in zip(got.values(), gradients.gradients(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_rematerialised_layers_drop_the_same_values_again(facts):
    *found, (loss, kernel) = facts["recomputed"]
    for each in found:
        assert each[0] == pytest.approx(loss, abs=1e-6)
        np.testing.assert_allclose(each[1], kernel, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_the_dense_modules_of_sentence_transformers(on_jax):
    with np.load(on_jax / "dense.npz") as got:
        vectors = [got[f"{i}/features"] for i in range(len(sentence_dense.TEXTS))]
    np.testing.assert_allclose(vectors, sentence_dense.VECTORS["two"], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_queries_for_late_interaction_are_those_of_sentence_transformers(on_jax):
    """Filled with [MASK], which no other token sees."""
    with np.load(on_jax / "late.npz") as got:
        for i, wanted in enumerate(multi_vector.vectors("classic", "query")):
            np.testing.assert_allclose(got[f"{i}/multi_vector"], wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_three_of_bge_m3_equal_float64_numpy(on_jax, jobs):
    reference = bge_m3.Reference(jobs["m3"]["checkpoint"])
    with np.load(on_jax / "m3.npz") as got:
        for i, text in enumerate(bge_m3.TEXTS):
            weights = reference.sparse(text)
            wanted = {"dense": reference.dense(text), "late": reference.late(text)}
            wanted["sparse"] = -np.sort(-weights[weights > 0])[:, None]
            for name, values in wanted.items():
                np.testing.assert_allclose(got[f"{i}/{name}"], values, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.release
def test_verify_passes_for_each_family(facts):
    assert facts["verified"] == {name: ["jax", "reference"] for name in families.RELATIVES}


@pytest.mark.slow
@pytest.mark.release
def test_models_compute_the_same_after_loading(facts):
    """tests/layers/test_saving.py has all kinds of models, on TensorFlow."""
    forms = {".keras": 0.0, "weights": 0.0}
    assert facts["saved"] == {
        "subclassed": forms,
        "functional": forms | {".h5": 0.0},
        "subclassed around custom": forms,
    }


@pytest.mark.slow
def test_weights_of_terms_are_those_of_sparse_encoder(on_jax):
    with np.load(on_jax / "sparse.npz") as got:
        for i, wanted in enumerate(sparse_encoder.VECTORS["splade"]):
            heaviest = -np.sort(-wanted[wanted > 0])
            np.testing.assert_allclose(got[f"{i}/sparse"][:, 0], heaviest, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_layers_equal_float64_numpy(on_jax):
    tokenizer = ReferenceTokenizer.from_tokens(TOY_VOCAB, lower=True)
    tokens = ["[CLS]", *tokenizer.tokenize(TEXTS[0]), "[SEP]"]
    ids = np.array([[tokenizer.vocab[t] for t in tokens]])
    states = NumpyEncoder(TOY, random_weights(TOY))(ids, np.ones_like(ids), np.zeros_like(ids))
    with np.load(on_jax / "toy.npz") as got:
        for name, state in (("layers_0", states[-1]), ("layers_1", states[1])):
            np.testing.assert_allclose(got[f"0/{name}"], state[0], rtol=0, atol=2e-5)


@pytest.mark.slow
def test_bfloat16_stays_close_to_float32(on_jax):
    with np.load(on_jax / "bfloat16.npz") as narrow, np.load(on_jax / "toy.npz") as wide:
        assert len(narrow.files) == 4
        for name in narrow.files:
            a, b = narrow[name], wide[name]
            cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
            assert 0.999 <= cosine.min() < 0.9999999


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("backend", "jax"),
        ("devices", NUM_DEVICES),
        ("described", "running on 8 CPU devices with JAX"),
        ("process", [0, 1]),
        ("numbered", [1, 2]),
        ("visible_to_tensorflow", 0),
        ("placed_on", [NUM_DEVICES]),
        ("replicated", True),
        ("same", True),
        ("done", True),
        ("traces", 2),  # one for each shape
        ("any_shape", False),
        ("timed", [["float32", 3.0], ["bfloat16", 3.0]]),
        ("numbers_right", [True, True]),  # which they are not by itself in jaxlib 0.10.2
        ("fusions", 0),
        ("refusal", "ConfigError: batch_size 12 is not a multiple of the 8 devices; take 16"),
    ],
)
def test_facts_of_a_step_on_all_devices(facts, name, wanted):
    assert facts[name] == wanted


@pytest.mark.slow
def test_a_jaxlib_that_computes_wrong_numbers_is_refused(facts):
    wrong, known = facts["numbers_refused"]
    version = importlib.metadata.version("jaxlib")
    assert wrong == known
    assert known.startswith(f"jaxlib {version} computes wrong numbers on CPUs (github.com/jax-ml")
    assert known.endswith("(pip install 'jax!=0.10.2,!=0.11.*'), or pass runtime='tensorflow'")


@pytest.mark.slow
def test_rows_are_shared_out(on_jax):
    batch = random_batch(TOY, [5, 3, 4, 2, 6, 1, 2, 3], 6)
    want = NumpyEncoder(TOY, random_weights(TOY))(
        batch["input_word_ids"], batch["input_mask"], batch["input_type_ids"]
    )[-1]
    real = batch["input_mask"] == 1
    with np.load(on_jax / "step.npz") as got:
        for name in ("x0", "x1"):
            np.testing.assert_allclose(got[name][real], want[real], rtol=0, atol=2e-5)


@pytest.mark.slow
def test_float32_products_keep_float32_factors(facts):
    """On a TPU or a GPU, where they are rounded by default."""
    products, rounded = facts["rounded_products"]
    assert products >= 6 * TOY.num_hidden_layers
    assert rounded == 0


@pytest.mark.slow
def test_bfloat16_products_ask_for_no_more_than_bfloat16(facts):
    """Asked for more, a TPU's compiler fuses fewer of them (benchmarks/diary.md)."""
    products, rounded = facts["rounded_products_of_bfloat16"]
    assert rounded == products >= 6 * TOY.num_hidden_layers


@pytest.mark.slow
def test_what_is_compiled_for_seconds_is_kept(facts):
    """For TPUs and GPUs; on a CPU nothing is, so that the test asks for it."""
    assert facts["kept"] == [str(cache_dir() / "jax"), "/chosen"]


# The command line.


def vectors(path):
    return {r.unique_id: r.features["layer_output_0"] for r in read_features(path)}


def start(arguments, changes):
    """A command in a process of its own, where nothing sets the backend of Keras."""
    program = "from bert_features.cli import main; main()"
    variables = environment(XLA_FLAGS="--xla_backend_optimization_level=0", **changes)
    del variables["KERAS_BACKEND"]
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def by_slurm(i):
    """JAX asks the variables of a cluster's manager."""
    numbers = {"PROCID": i, "LOCALID": i, "NTASKS": 2, "JOB_ID": 1, "STEP_NUM_TASKS": 2}
    numbers["STEP_NODELIST"] = "localhost"
    return {f"SLURM_{name}": str(value) for name, value in numbers.items()}


@pytest.mark.slow
@pytest.mark.release
def test_processes_of_a_slice_share_out_the_input(toy, tmp_path):
    """As the hosts of a TPU slice: each writes its own share, and waits for no other to end."""
    address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}"}
    output = tmp_path / "out.jsonl"
    arguments = [
        "extract", "-", "-o", output, "--checkpoint", toy, "--runtime=jax", "--shard=auto",
        "--layers=-1", "--max-seq-length=20", "--buckets=12", "--uncased",
    ]  # fmt: skip
    last, first = (start(arguments, {**address, **by_slurm(i)}) for i in range(2))
    texts = "\n".join(TEXTS) + "\n"
    try:
        _, said = first.communicate(texts, timeout=600)  # while the other still waits for its texts
        assert first.returncode == 0, said
        assert last.poll() is None
        _, also_said = last.communicate(texts, timeout=600)
        assert last.returncode == 0, also_said
    finally:
        for process in (first, last):
            process.kill()
    # No warning of JAX's, TensorFlow's or Keras' reaches the terminal. A run that takes long, as on
    # a busy machine, reports its progress too.
    progress = re.compile(r"[\d,]+ (of [\d,]+ )?examples\b.*, .*")
    shard, running, unknown = (line for line in said.splitlines() if not progress.fullmatch(line))
    assert shard == "shard auto is 1/2"
    assert running == "running on the CPU with JAX"
    assert " are [UNK]: " in unknown  # as the toy's vocabulary has few pieces
    shares = [tmp_path / f"out-0000{i}-of-00002.jsonl" for i in range(2)]
    metadata = json.loads(Path(f"{shares[1]}.metadata.json").read_text())
    assert metadata["recipe"]["arithmetic"]["runtime"] == "jax"
    assert "jax" in metadata["recipe"]["versions"]
    found = [vectors(share) for share in shares]
    assert [sorted(share) for share in found] == [[0, 2, 4], [1, 3, 5]]
    wanted = FeatureExtractor.from_checkpoint(toy, **{**TOY_SETTINGS, "layers": (-1,)})(TEXTS)
    for i, record in enumerate(wanted):
        np.testing.assert_allclose(
            found[i % 2][i], record.features["layer_output_0"], rtol=0, atol=2e-5
        )


# What is refused.


@pytest.mark.slow
@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="there is a GPU here")
@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_jax_does_not_find_is_refused_in_one_line(on_jax, facts, case):
    status, stderr = facts["refused"][case]
    assert status == 2
    assert REFUSED[case][2] in stderr
    assert "Traceback" not in stderr
    assert not list(on_jax.glob("out.jsonl*"))


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_what_jax_is_not_set_to_is_refused(device, monkeypatch):
    monkeypatch.setattr(jax_runtime, "_platforms", lambda: "cuda")
    with pytest.raises(ConfigError, match=r"unset JAX_PLATFORMS$"):
        jax_runtime.resolve_devices(device)


def test_a_backend_that_is_no_runtime(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "torch")
    with pytest.raises(ConfigError, match="Keras runs on torch"):
        selection.choose_runtime()
    with pytest.raises(ConfigError, match="KERAS_BACKEND=tensorflow"):
        selection.choose_runtime()


def test_jax_where_keras_runs_on_tensorflow():
    with pytest.raises(ConfigError, match="KERAS_BACKEND=jax"):
        make_runtime("jax", "cpu")


def test_jax_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(selection, "_is_importable", lambda module: module != "jax")
    with pytest.raises(MissingExtraError, match=r"pip install .*\[jax\]"):
        make_runtime("jax")


PLAIN = {"tensorflow": "2.20.0"}
TPU_BUILD = {"tensorflow_tpu": "2.20.0", "libtpu": "0.0.24"}


@pytest.mark.parametrize(
    ("tpus", "gpus", "packages", "device", "expected"),
    [
        (0, 0, {"jax_cuda13_plugin": "0.10"}, "auto", "tensorflow"),
        (1, 0, TPU_BUILD, "auto", "tensorflow"),
        (1, 0, PLAIN | {"libtpu": "0.0.51"}, "auto", "jax"),  # as on Colab
        (1, 0, PLAIN | {"libtpu": "0.0.51"}, "tpu", "jax"),
        (1, 0, PLAIN | {"libtpu": "0.0.51"}, "cpu", "tensorflow"),
        (1, 0, PLAIN | TPU_BUILD, "auto", "jax"),  # the TPU build, overwritten
        (1, 0, PLAIN, "auto", "tensorflow"),  # jax, but not jax[tpu]
        (0, 1, {"jax_cuda13_plugin": "0.10"}, "auto", "jax"),
        (0, 1, {}, "auto", "tensorflow"),
        (0, 1, {"jax_cuda12_plugin": "0.10", "nvidia_cudnn_cu12": "9", "nvidia_cuda_nvcc_cu12":
         "12"}, "gpu", "tensorflow"),
    ],
)  # fmt: skip
def test_auto_takes_what_can_drive_the_device(monkeypatch, tpus, gpus, packages, device, expected):
    install(monkeypatch, **packages)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(selection, "backend_set", lambda: None)
    monkeypatch.setattr(selection, "tpu_chips", lambda: tpus)
    monkeypatch.setattr(selection, "nvidia_gpus", lambda: gpus)
    monkeypatch.setattr(selection, "_is_importable", lambda module: module in {"jax", *packages})
    assert selection.choose_runtime("auto", device) == expected
    monkeypatch.setattr(selection, "_is_importable", lambda module: False)
    assert selection.choose_runtime("auto", device) == "tensorflow"


@pytest.mark.parametrize(
    ("kind", "problem", "plugins", "reason"),
    [
        ("tpu", "process 4711 holds the chips", {"libtpu"}, "process 4711 holds the chips"),
        ("tpu", None, {"libtpu"}, "Backend failed"),
        ("tpu", None, set(), "Backend failed; JAX drives it after: pip install 'jax[tpu]'"),
        ("gpu", None, {"jax_cuda12_plugin"}, "Backend failed"),
        ("gpu", None, set(), "Backend failed; JAX drives it after: pip install 'jax[cuda13]'"),
    ],
)  # fmt: skip
def test_why_jax_does_not_drive_what_is_here(monkeypatch, kind, problem, plugins, reason):
    def fail(backend):
        raise RuntimeError("Backend failed\nand more")

    monkeypatch.setattr(jax_runtime, "_PRESENT", {"tpu": lambda: 4, "gpu": lambda: 4})
    monkeypatch.setattr(jax_runtime, "_platforms", lambda: "")
    monkeypatch.setattr(jax_runtime, "device_problem", lambda: problem)
    monkeypatch.setattr(jax_runtime.jax, "local_devices", fail)
    monkeypatch.setattr(
        jax_runtime.importlib.util, "find_spec", lambda name: name in plugins or None
    )
    with pytest.raises(ConfigError) as caught:
        jax_runtime.resolve_devices(kind)
    assert str(caught.value) == (
        f"no {kind.upper()}: {reason}; pass device='auto' to take what is here"
    )


@pytest.mark.parametrize(
    "message",
    [
        # https://github.com/LargeWorldModel/LWM/issues/60
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
        "hbm. Used 21.95G of 15.48G hbm.",
        # https://github.com/jax-ml/jax/issues/7822
        "Compilation failure: Aborting compilation early because it's unlikely to have enough "
        "memory. Requires 3.47E, has 14.49G available.",
    ],
)
def test_compilers_that_lack_memory(message):
    assert jax_runtime._lacks_memory(jax_runtime.jax.errors.JaxRuntimeError(message))


def test_a_batch_that_does_not_fit():
    batch = {"input_word_ids": np.zeros((6, 50), np.int32)}

    def lacks_memory(error):
        return "RESOURCE_EXHAUSTED" in str(error)

    with (
        pytest.raises(DeviceError, match=r"6 rows .* below 300"),
        device_errors_explained(batch, lacks_memory),
    ):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
    with (
        pytest.raises(DeviceError, match=r"6 rows .*: kill 7$"),
        device_errors_explained(batch, lacks_memory),
    ):
        raise RuntimeError("The TPU is already in use by process with pid 7")
    with pytest.raises(RuntimeError, match="other"), device_errors_explained(batch, lacks_memory):
        raise RuntimeError("other")
