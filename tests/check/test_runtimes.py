"""How a child process ended, and the findings: a `tensorflow` and a `jax` of a few lines."""

import pytest

from bert_features.check.runtimes import (
    Outcome,
    Runtimes,
    check_jax_numbers,
    last_words,
)

ABORTS = "ConfigureDistributedTpuOp_DoWork not available in this library."


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("why\n=== Source Location Trace: ===\nlearning/a_b.cc:52\n", "why"),
        ("why\nI0000 00:00:1795.33 12 port.cc:153] oneDNN is on\n", "why"),
        (
            # https://github.com/jax-ml/jax/issues/19971
            "a.py:146: UserWarning: Did you run your code on all TPU hosts?\n  warnings.warn(\n",
            "a.py:146: UserWarning: Did you run your code on all TPU hosts?",
        ),
        ("F0000 00:00:1795.33 12 tpu.cc:1] fatal\n@ 0x7f stack\n", "fatal"),
        ("F0000 00:00:1 12 a.cc:1] Unknown flag: --a\n", "Unknown flag: --a"),
    ],
)
def test_the_line_that_says_why(stderr, words):
    assert last_words(stderr) == words


def test_the_plain_order_takes_a_libtpu_that_aborts_the_import(world, doctor):
    """`pip install tensorflow-tpu==2.20.0`, and what TensorFlow then does."""
    world.install_tensorflow(
        "tensorflow-tpu",
        f"""
        import os
        os.write(2, b"2026-11-21 15:28:06.853247: I a/tpu.cc:121] Libtpu path is: here\\n")
        os.write(2, b"2026-11-21 15:28:07.014319: F a/fns.inc:12] {ABORTS}\\n")
        os.abort()
        """,
    )
    world.install_all({"libtpu": "0.0.52", "keras": "3.15.1", "tensorflow-text": "2.20.1"})
    status, findings = doctor()
    assert status == 1
    remedy = "pip install 'libtpu<0.0.31,>=0.0.14'"
    assert findings["libtpu"]["status"] == "broken"
    assert findings["libtpu"]["remedy"] == remedy
    assert findings["import tensorflow"]["status"] == "broken"
    assert findings["import tensorflow"]["found"] == f"the process died of SIGABRT: {ABORTS}"
    assert findings["import tensorflow"]["remedy"] == remedy
    # The rest is reported as well.
    assert findings["cpu"]["details"]["cores"] >= 1
    assert findings["output"]["status"] == "ok"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the process died of SIGSEGV"),
        ("import os; os.write(2, b'why\\n'); os._exit(3)", "the process ended with status 3: why"),
        ("raise ImportError('no libcudart')", "ImportError: no libcudart"),
        ("raise SystemExit(4)", "the process ended with status 4"),
    ],
)
def test_an_import_that_fails(world, doctor, program, found):
    world.install_tensorflow("tensorflow", program)
    world.install_all({"tensorflow-text": "2.20.1", "keras": "3.15.1"})
    status, findings = doctor()
    assert status == 1
    assert findings["import tensorflow"]["found"] == found
    assert findings["import tensorflow"]["remedy"] == (
        "pip install --force-reinstall --no-deps 'tensorflow==2.20.*'"
    )
    assert "import keras" not in findings  # unknown


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(600)", "import subprocess; subprocess.run(['sleep', '600'])"],
)
def test_an_import_that_hangs(world, doctor, program):
    world.install_tensorflow("tensorflow", program)
    world.install_all({"tensorflow-text": "2.20.1", "keras": "3.15.1"})
    status, findings = doctor("--timeout", 1)
    assert status == 1
    assert findings["import tensorflow"]["found"] == "did not finish within 1 s"


@pytest.mark.parametrize(
    ("reported", "status", "found"),
    [
        (Outcome({"numbers": {"version": "0.10.1", "right": True}}), "ok", "right on a CPU"),
        (Outcome({"numbers": {"version": "0.1", "right": False}}), "note", "0.1 computes wrong"),
        (Outcome(errors={"numbers": "ConfigError: jaxlib 0.11.2 …"}), "warning", "jaxlib 0.11.2 …"),
        (Outcome({}, {}, "numbers", "the process died of SIGSEGV"), "warning", "died of SIGSEGV"),
    ],
)
def test_numbers_of_jax_on_a_cpu(reported, status, found):
    (finding,) = check_jax_numbers(Runtimes(jax=reported))
    assert finding.status == status
    assert found in finding.found
    assert finding.remedy == (None if status == "ok" else "pip install 'jax!=0.10.2,!=0.11.*'")
    assert check_jax_numbers(Runtimes()) == []
    for platforms in ("Unknown backend cpu", "Unable to initialize backend 'tpu': NOT_FOUND: no"):
        absent = Outcome(errors={"numbers": f"RuntimeError: {platforms}"})
        assert check_jax_numbers(Runtimes(jax=absent)) == []
