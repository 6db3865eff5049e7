"""compare: a line for each feature, JSON, and status 1 where one is not comparable."""

import json

import pytest

from bert_features import read_features
from tests.cli.command_line import SMALL, run, run_afresh


@pytest.fixture(scope="module")
def files(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "in.txt").write_text("a b\nthe\n")
    for name, layers in (("one.npz", "-1"), ("same.npz", "2"), ("other.npz", "-2,-1")):
        options = ["--checkpoint", toy, f"--layers={layers}", "-o", folder / name, *SMALL]
        assert run("extract", folder / "in.txt", *options).exit_code == 0
    return [folder / name for name in ("one.npz", "same.npz", "other.npz")]


def test_the_answer_is_a_line_and_the_exit_status(files):
    one, same, other = files
    done = run("compare", one, same)
    assert (done.exit_code, done.stdout) == (0, "same: equal to 1e-5\n")
    done = run("compare", other, one)
    assert done.exit_code == 1
    assert done.stdout == "other: layers [-2] and [-1]\n"
    done = run("compare", other, other)
    lines = [f"layer_output_{i}: same: equal to 1e-5" for i in range(2)]
    assert (done.exit_code, done.stdout.splitlines()) == (0, lines)
    done = run("compare", other, other, "--feature", "layer_output_1")
    assert (done.exit_code, done.stdout) == (0, "same: equal to 1e-5\n")


def test_json(files):
    one, same, other = files
    for second, status, verdict in ((same, 0, "same"), (other, 1, "other")):
        done = run("compare", one, second, "--json")
        assert done.exit_code == status
        found = json.loads(done.stdout)
        assert (found["a"], found["b"]) == (str(one), str(second))
        (feature,) = found["features"]
        assert (feature["feature"], feature["verdict"]) == ("layer_output_0", verdict)
        assert feature.keys() == {"feature", "other", "verdict", "differences", "cosine"}


def test_what_cannot_be_compared_is_an_error(files, tmp_path):
    one, _, other = files
    done = run("compare", one, other, "--feature", "absent")
    assert "the two have no feature" in done.stderr
    done = run("compare", one, other, "--feature", "layer_output_0=layer_output_1")
    answer = "layer_output_0 = layer_output_1: same: equal to 1e-5\n"
    assert (done.exit_code, done.stdout) == (0, answer)
    done = run("compare", one, "http://127.0.0.1:9")
    assert (done.exit_code, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


def test_two_files_need_no_framework(files, tmp_path):
    ((status, output, _, modules),) = run_afresh([["compare", *files[:2]]], tmp_path)
    assert (status, output) == (0, "same: equal to 1e-5\n")
    assert not {"tensorflow", "jax", "keras"} & modules


def test_a_folder_goes_on_with_new_numbers(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a b\n" * 6)
    command = ["extract", tmp_path / "in.txt", "-o", f"{tmp_path}/out/", "--checkpoint", toy]
    command += ["--layers=-1", "--shard-examples", "3", *SMALL]
    assert run(*command).exit_code == 0
    manifest = tmp_path / "out" / "_manifest.json"
    (tmp_path / "out" / "part-00001-of-00002.parquet").unlink()
    manifest.write_text(manifest.read_text().replace('"keras": "', '"keras": "1.'))
    for again, status in ((command, 2), (["check", tmp_path / "out", "--repair"], 1)):
        done = run(*again)
        assert (done.exit_code, "--accept-new-numbers" in done.stderr) == (status, True)
    done = run("check", tmp_path / "out", "--repair", "--accept-new-numbers")
    assert done.exit_code == 0, done.stderr
    assert len(read_features(tmp_path / "out")) == 6
    assert json.loads(manifest.read_text())["earlier"][0]["versions"]["keras"][:2] == "1."


# What oneDNN, NumPy and OpenBLAS may use; what a CPU lacks is no limit for it.
INSTRUCTIONS = {
    "AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "OPENBLAS_CORETYPE": "Haswell",
    },
}


@pytest.fixture(scope="module")
def by_class(tmp_path_factory):
    """A folder with the features by each class and precision; one process for each class.

    This one has all instructions.
    """
    folder = tmp_path_factory.mktemp("classes")
    text = folder / "in.txt"
    text.write_text("The cat sat on the mat.\nNo.\n")

    def commands(name):
        for of in ("float32", "bfloat16"):
            path = folder / f"{name} {of}.npz"
            yield ["extract", text, "--layers=all", "--precision", of, "-o", path]

    for command in commands("all"):
        assert run(*command).exit_code == 0
    for name, limits in INSTRUCTIONS.items():
        for status, _, errors, _ in run_afresh(commands(name), folder, limits):
            assert status == 0, errors
    return folder


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_runs_on_cpus_of_different_classes_may_be_compared(by_class, precision):
    """With the embedded model: float32 is equal, and a folder that one began another goes on."""
    wanted = "same" if precision == "float32" else ("same", "rounded")
    for name in INSTRUCTIONS:
        paths = [by_class / f"{each} {precision}.npz" for each in ("all", name)]
        found = json.loads(run("compare", *paths, "--json").stdout)["features"]
        assert len(found) == 6
        assert all(feature["verdict"] in wanted for feature in found)
