"""The command line: what it prints, what it writes, how it fails."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from bert_features import read_features
from bert_features.checkpoints.find import find_checkpoint
from bert_features.cli import app
from bert_features.config.extract_config import ExtractConfig
from bert_features.extraction import job
from bert_features.text.tokenization import FullTokenizer
from bert_features.text.vocabulary import read_vocab
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB, random_weights

pytestmark = pytest.mark.usefixtures("one_device")

SMALL = ["--uncased", "--max-seq-length", "16", "--batch-size", "8"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    return str(write_directory(folder, TOY, TOY_VOCAB, random_weights(TOY), kind="tf1"))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("is this jacksonville ? ||| no it is not .\n\nthe a b\n")
    return path


@pytest.fixture
def out(tmp_path):
    """Where outputs go: a folder of their own, so that leftovers show."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def program(*arguments, **options):
    """The console script in a process of its own."""
    command = [sys.executable, "-m", "bert_features", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_CPP")}
    options = {"stdin": subprocess.DEVNULL, "text": True, "env": environment} | options
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_help_and_import_do_not_load_the_frameworks():
    check = (
        "import sys, bert_features, bert_features.cli\n"
        "try: bert_features.cli.app(['extract', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tensorflow', 'keras', 'jax', 'tensorflow_text', 'numpy', 'pyarrow', 'h5py'}\n"
        "sys.exit(sorted(heavy & sys.modules.keys()) or None)"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "--max-seq-length" in result.stdout


def test_every_setting_is_an_option():
    help_text = re.sub(r"\x1b\[[0-9;]*m", "", run("extract", "--help").output)
    names = {"do_lower_case": "--uncased", "outputs": "--output-spec"}
    import typer

    command = typer.main.get_command(app).commands["extract"]
    options = {o for p in command.params for o in [*p.opts, *p.secondary_opts]}
    for name in ExtractConfig.model_fields:
        assert names.get(name, "--" + name.replace("_", "-")) in options, name
    assert {"--cased", "--overwrite", "--config", "--output", "--debug"} <= options
    assert "INPUT" in help_text


def test_extract_prints_a_summary(toy, text, out):
    path = out / "o.parquet"
    result = run("extract", text, "-o", path, "--checkpoint", toy, "--layers=-1,embeddings", *SMALL)
    assert result.exit_code == 0, result.output
    rows = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert rows["examples"] == "3"
    assert rows["tokens"] == "21"
    assert rows["truncated"] == "0 examples, 0 tokens lost"
    assert rows["pad"].split() == ["waste", "62.5%", "of", "computed", "tokens"]  # 21 of 4 x 14
    assert rows["output"].startswith(f"{path} (")
    assert [len(r.tokens) for r in read_features(path)] == [14, 2, 5]


def test_official_json_lines(toy, text, out):
    path = out / "o.jsonl"
    options = ["--checkpoint", toy, "--layers=-1,-2", "--format", "jsonl", *SMALL]
    assert run("extract", text, "-o", path, *options).exit_code == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2]
    first = lines[0]["features"][3]
    assert first["token"] == "jack"
    assert [layer["index"] for layer in first["layers"]] == [-1, -2]
    assert len(first["layers"][0]["values"]) == TOY.hidden_size
    assert first["layers"][0]["values"] == [round(v, 6) for v in first["layers"][0]["values"]]


def test_truncation_is_said(toy, text, out):
    options = ["--checkpoint", toy, "--layers=-1", "--uncased", "--max-seq-length", "8"]
    result = run("extract", text, "-o", out / "o.parquet", *options)
    assert "truncated  1 examples, 6 tokens lost" in result.stdout


def test_standard_input(toy, out):
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run(
        "extract", "-", "-o", out / "o.npz", "--format", "npz", *options, stdin=b"a b\nb\n"
    )
    assert result.exit_code == 0, result.output
    assert [r.tokens for r in read_features(out / "o.npz")] == [
        ("[CLS]", "a", "b", "[SEP]"),
        ("[CLS]", "b", "[SEP]"),
    ]


def test_options_override_the_config_file(toy, text, out, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(
        f'checkpoint = "{toy}"\nlayers = [0]\ncombine = "sum"\ndo_lower_case = true\n'
    )
    path = out / "o.parquet"
    options = ["--config", config, "--layers=-1,-2", "--max-seq-length", "16", "--dtype", "float16"]
    assert run("extract", text, "-o", path, *options).exit_code == 0
    metadata = read_features(path).metadata
    assert metadata["config"]["layers"] == [-1, -2]
    assert metadata["config"]["combine"] == "sum"
    (feature,) = read_features(path).features
    assert (feature.name, feature.dtype, feature.width) == ("features", "float16", 8)


@pytest.mark.parametrize("hidden_act", ["gelu_tanh", "gelu_erf"])
def test_golden_values_through_the_command_line(shared_data, minilm_dir, out, hidden_act):
    cases = json.loads((shared_data / "minilm_golden.json").read_text())["cases"]
    case = next(c for c in cases if c["hidden_act"] == hidden_act)
    path = out / "o.parquet"
    options = ["--layers=-1", "--hidden-act", hidden_act, "--batch-size", "1"]
    result = run("extract", "-", "-o", path, *options, stdin=case["text"].encode())
    assert result.exit_code == 0, result.output
    (record,) = read_features(path)
    states = record.features["layer_output_0"].astype(np.float64)
    if hidden_act == "gelu_tanh":
        np.testing.assert_allclose(states, case["sequence_output"], rtol=0, atol=1e-5)
    else:
        mean = states.mean(axis=0)
        vector = mean / np.linalg.norm(mean)
        np.testing.assert_allclose(vector[:5], case["first_values"], rtol=0, atol=1e-5)


def bad_utf8(path):
    path.write_bytes(b"fine\n\xff\n")


def directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("prepare", "options", "status", "message"),
    [
        (lambda p: p.unlink(), [], 1, "cannot read .*in.txt: No such file or directory"),
        (directory, [], 1, "in.txt is a directory; pass a file"),
        (bad_utf8, [], 1, "in.txt, line 2: byte 0xff at file offset 5 is not UTF-8"),
        (None, ["--layers=-1,last"], 2, r"layers is \[-1, 'last'\]; allowed: a list"),
        (None, ["--layers=+-1"], 2, r"layers is \['\+-1'\]; allowed: a list"),
        (None, ["--layers=-1,,2"], 2, "--layers is '-1,,2'; separate the entries"),
        (None, ["--layers=3"], 2, r"layer 3 is outside \[-3, 2\]: this checkpoint has 3"),
        (None, ["--max-seq-length", "25"], 2, "max_seq_length is 25; .* has 24 positions"),
        (None, ["--batch-size", "0"], 2, "batch_size is 0; allowed: an integer of at least 1"),
        (None, ["--checkpoint", "nowhere"], 1, "there is no checkpoint 'nowhere'"),
        (None, ["--config", "nowhere.toml"], 2, "cannot read the config nowhere.toml"),
        (None, ["--cased", "--vocab", "nowhere"], 1, "cannot read the vocabulary nowhere"),
        (None, ["--device", "gpu"], 2, "no GPU"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(toy, text, out, prepare, options, status, message):
    if prepare:
        prepare(text)
    defaults = ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run("extract", text, "-o", out / "o.parquet", *defaults, *options)
    assert result.exit_code == status, result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith("running on")]
    assert len(lines) == 1
    assert re.match(f"bert-features: .*{message}", lines[0])
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("options", [["--batch-size", "many"], ["--format", "xml"], ["--no-such"]])
def test_bad_usage(text, out, options):
    result = run("extract", text, "-o", out / "o.parquet", *options)
    assert result.exit_code == 2
    assert list(out.iterdir()) == []


def test_damaged_and_foreign_checkpoints(toy, text, out, tmp_path):
    import shutil

    cut = tmp_path / "cut"
    shutil.copytree(toy, cut)
    data = cut / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    other = tmp_path / "other"
    shutil.copytree(toy, other)
    values = json.loads((other / "bert_config.json").read_text())
    (other / "bert_config.json").write_text(json.dumps(values | {"num_hidden_layers": 4}))
    for checkpoint, message in (
        (cut, "is truncated or corrupt"),
        (other, "16 missing: encoder/layer_3"),
    ):
        options = ["--checkpoint", checkpoint, "--layers=-1", *SMALL]
        result = run("extract", text, "-o", out / "o.parquet", *options)
        assert result.exit_code == 1
        assert message in result.stderr
        assert list(out.iterdir()) == []


def test_an_existing_output_is_kept_unless_told(toy, text, out):
    path = out / "o.parquet"
    path.write_text("precious")
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    result = run("extract", text, "-o", path, *options)
    assert result.exit_code == 1
    assert "exists; pass --overwrite to replace it" in result.stderr
    assert path.read_text() == "precious"
    assert run("extract", text, "-o", path, *options, "--overwrite").exit_code == 0
    assert len(read_features(path)) == 3


def test_debug_shows_the_traceback(text, out):
    options = ["-o", out / "o.parquet", "--checkpoint", "nowhere", "--debug"]
    result = run("extract", text, *options)
    assert "Traceback" in result.stderr
    assert result.exit_code == 1


def test_a_device_that_fails_is_told_in_one_line(text, out, monkeypatch):
    def fail(*arguments, **settings):
        raise tf.errors.UnavailableError(None, None, "the chip is lost\nat a.cc:12")

    monkeypatch.setattr(job, "extract", fail)
    result = run("extract", text, "--output", out / "f.jsonl")
    assert result.exit_code == 1
    assert result.stderr.strip() == (
        "bert-features: the device failed: UnavailableError: the chip is lost"
    )


def test_other_errors_are_not_hidden(text, out, monkeypatch):
    def fail(*arguments, **settings):
        raise ZeroDivisionError

    monkeypatch.setattr(job, "extract", fail)
    assert isinstance(
        run("extract", text, "--output", out / "f.jsonl").exception, ZeroDivisionError
    )


def test_a_terminal_sees_no_noise_and_the_exit_status(toy, text, out):
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    process = program("extract", text, "-o", out / "o.parquet", *options)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert re.fullmatch(r"running on 1 CPU device\(s\) \(.*\)\n", stderr)
    assert stdout.startswith("examples   3\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_in_the_middle(toy, out, tmp_path, sent):
    if signal.getsignal(sent) == signal.SIG_IGN:
        pytest.skip(f"{sent.name} is ignored here, as under nohup, and so by what is started")
    path = tmp_path / "long.txt"
    path.write_text("is this jacksonville ? no it is not .\n" * 3_000_000)
    options = ["--checkpoint", toy, "--layers=-1", "--buffer-mb", "1", *SMALL]
    process = program("extract", path, "-o", out / "o.parquet", *options)
    deadline = time.monotonic() + 120
    while not any(p.stat().st_size for p in out.iterdir()) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    process.send_signal(sent)
    try:
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert stderr.splitlines()[-1] == "bert-features: interrupted; nothing was written"
    assert list(out.iterdir()) == []


def test_interrupted_while_waiting_for_input(toy, out):
    options = ["--checkpoint", toy, "--layers=-1", *SMALL]
    with program("extract", "-", "-o", out / "o.parquet", *options, stdin=subprocess.PIPE) as run:
        run.stdin.write("is this\n")  # the ids' type is that of the first
        run.stdin.flush()
        deadline = time.monotonic() + 120
        while not list(out.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(2)  # until it waits
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=20) == 1
        stderr = run.stderr.read()
    assert stderr.splitlines()[-1] == "bert-features: interrupted; nothing was written"
    assert list(out.iterdir()) == []


def test_disk_full(toy, out, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("is this jacksonville ? no it is not .\n" * 20_000)
    options = ["--checkpoint", toy, "--layers=-1,-2", *SMALL]

    def quota():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    process = program("extract", path, "-o", out / "o.parquet", *options, preexec_fn=quota)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.search(r"bert-features: cannot write .*o\.parquet: .*nothing was left behind", stderr)
    assert "Traceback" not in stderr
    assert list(out.iterdir()) == []


def test_tokenize(minilm_dir, tmp_path, shared_data):
    path = tmp_path / "in.txt"
    path.write_text("Déjà vu ||| [CLS]\n\nunaffable")
    assert run("tokenize", path).stdout == "de ##ja vu | | | [ cl ##s ]\n\nuna ##ffa ##ble\n"
    vocab = minilm_dir / "vocab.txt"
    ids = run("tokenize", path, "--vocab", vocab, "--format", "ids").stdout
    assert ids.splitlines()[2] == "14477 20961 3468"
    cased = shared_data / "vocab" / "cased_28996.txt"
    assert run("tokenize", path, "--vocab", cased).stdout.startswith("D ##é ##j ##à v ##u")


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--vocab", "v", "--checkpoint", "minilm"], 2, "--vocab and --checkpoint are both given"),
        (["--vocab", "nowhere"], 1, "cannot read the vocabulary nowhere"),
        (["--checkpoint", "nowhere"], 1, "there is no checkpoint 'nowhere'"),
    ],
)
def test_tokenize_refuses(text, options, status, message):
    result = run("tokenize", text, *options)
    assert (result.exit_code, message in result.stderr) == (status, True), result.output


def test_tokenize_needs_to_know_the_casing(text, tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(TOY_VOCAB))
    assert (
        "does not tell its casing; pass --cased" in run("tokenize", text, "--vocab", vocab).stderr
    )
    result = run("tokenize", text, "--vocab", vocab, "--uncased")
    assert result.stdout.splitlines()[2] == "the a b"


def test_inspect(minilm_dir, toy):
    rows = dict(line.split(maxsplit=1) for line in run("inspect", "minilm").stdout.splitlines())
    assert rows["family"] == "huggingface"
    assert rows["casing"] == "uncased"
    assert rows["hidden_act"] == "gelu_erf"
    assert rows["num_hidden_layers"] == "6"
    assert rows["parameters"] == "22,713,216"
    rows = dict(line.split(maxsplit=1) for line in run("inspect", toy).stdout.splitlines())
    assert (rows["family"], rows["format"], rows["pooler"]) == ("google", "tf1", "yes")
    assert rows["casing"].startswith("not told")
    assert rows["hidden_act"] == find_checkpoint(toy).config.hidden_act == "gelu_tanh"
    assert run("inspect", "nowhere").exit_code == 1


def test_version():
    import bert_features

    assert run("--version").stdout == f"bert-features {bert_features.__version__}\n"


def peak_megabytes(*arguments):
    """Runs the console script; the peak of its resident memory."""
    with program(*arguments) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, process.stderr.read()
    return usage.ru_maxrss / 1024


def test_the_declaration_in_389_languages(shared_data, minilm_dir, out, tmp_path):
    """No line lost, order kept, memory that does not grow with the input: 35,870 real lines."""
    vocab = read_vocab(minilm_dir / "vocab.txt")
    config = TOY.model_copy(update={"vocab_size": len(vocab), "max_position_embeddings": 64})
    model = write_directory(tmp_path / "uncased_toy", config, vocab, random_weights(config))
    lines = (shared_data / "udhr.txt").read_text(encoding="utf-8").split("\n")
    quarter = tmp_path / "quarter.txt"
    quarter.write_text("\n".join(lines[: len(lines) // 4]), encoding="utf-8")
    options = ["--checkpoint", model, "--layers=-1", "--max-seq-length", "64", "--buffer-mb", "4"]
    small = peak_megabytes("extract", quarter, "-o", out / "quarter.parquet", *options)
    whole = peak_megabytes("extract", shared_data / "udhr.txt", "-o", out / "all.parquet", *options)
    assert whole < small + 100
    file = read_features(out / "all.parquet")
    assert len(file) == len(lines) == 35_870
    encodings = FullTokenizer(vocab).encode(lines)
    for i, (record, encoding) in enumerate(zip(file, encodings, strict=True)):
        assert record.unique_id == i
        assert list(record.tokens) == ["[CLS]", *encoding.tokens[:62], "[SEP]"]
        assert record.features["layer_output_0"].shape == (len(record.tokens), 8)
