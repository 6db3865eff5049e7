"""check: one line for each features file, and status 1 if one is damaged."""

import os

import numpy as np

from bert_features.formats.records import Feature, FeatureBatch
from tests.cli.command_line import SMALL, run
from tests.formats.feature_files import files_of
from tests.formats.feature_files import write as write_file
from tests.formats.feature_folders import write_folder

FEATURE = Feature("text", (-1,), "none", 4, "float32", "sequence", "mean")


def write(path, format):
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    batch = FeatureBatch(np.arange(2), {"text": values})
    return write_file(path, format, (FEATURE,), batch).bytes_written


def damage(path):
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(5).tobytes()) + 1] ^= 1
    path.write_bytes(content)


def test_whole_and_damaged_files(tmp_path):
    paths = [tmp_path / name for name in ("a.npz", "b.parquet", "c.jsonl", "d.arrow")]
    sizes = [write(path, path.suffix[1:]) for path in paths]
    done = run("check", *paths)
    assert done.exit_code == 0
    lines = [
        f"{path}: ok, 2 examples, " + (f"{size} bytes" if size < 1000 else f"{size / 1000:.1f} kB")
        for path, size in zip(paths, sizes, strict=True)
    ]
    assert done.stdout.splitlines() == lines
    damage(paths[0])
    damage(paths[1])
    done = run("check", *paths, tmp_path / "absent.npz")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == lines[2:]
    wrong = (*paths[:2], tmp_path / "absent.npz")
    for line, path in zip(done.stderr.splitlines(), wrong, strict=True):
        assert line.startswith(f"bert-features: cannot read {path}")
    done = run("check", "--debug", *paths)
    assert done.stderr.count("Traceback") >= 2


def write_three_shards(folder, format):
    values = np.arange(20, dtype=np.float32).reshape(5, 4)
    batches = [
        FeatureBatch(np.arange(a, b), {"text": values[a:b]}) for a, b in ((0, 2), (2, 2), (2, 5))
    ]
    return write_folder(folder, format, (FEATURE,), *batches)


def test_a_folder(tmp_path):
    for format in ("parquet", "jsonl"):
        folder = tmp_path / format
        manifest = write_three_shards(folder, format)
        size = sum(len(content) for content in files_of(folder).values())
        size -= (folder / "_manifest.json").stat().st_size
        for path in (folder, folder / "_manifest.json"):
            done = run("check", path)
            assert (done.exit_code, done.stderr) == (0, "")
            assert done.stdout == f"{path}: ok, 5 examples in 3 files, {size / 1000:.1f} kB\n"
        damaged = manifest.path(2)
        damaged.write_bytes(damaged.read_bytes().replace(b"4", b"5", 1))
        done = run("check", folder)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith(f"bert-features: cannot read {damaged}: its bytes have the ")
        damaged.unlink()
        assert "1 of its 3 shards not found, part-00002" in run("check", folder).stderr
        assert run("check", folder, "--format", "npz").exit_code == 1


def test_what_cannot_be_checked(tmp_path):
    path = tmp_path / "official.json"
    path.write_text(
        '{"linex_index": 0, "features": [{"token": "a", "layers": '
        '[{"index": -1, "values": [0.5]}]}]}\n'
    )
    done = run("check", path, "--format", "jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        f"{path}: ok, 1 examples, {path.stat().st_size} bytes; "
        "not checked: values and metadata, which have no checksum\n"
    )
    assert run("check", path).exit_code == 1
    assert run("check").exit_code == 2


def test_a_folder_is_repaired(toy, tmp_path):
    (tmp_path / "in.txt").write_text("a b\n" * 5)
    line = ["extract", tmp_path / "in.txt", "-o", f"{tmp_path}/out/", "--checkpoint", toy]
    assert run(*line, *SMALL, "--layers=-1", "--shard-examples", "2").exit_code == 0
    whole, single = files_of(tmp_path / "out"), tmp_path / "single.npz"
    write(single, "npz")
    for name in ("part-00000-of-00003.parquet", "part-00002-of-00003.parquet"):
        os.truncate(tmp_path / "out" / name, 9)
    done = run("check", tmp_path / "out")
    assert done.exit_code == 1
    assert f"bert-features check {tmp_path}/out --repair\n" in done.stderr
    done = run("check", tmp_path / "out", single, "--repair")
    assert done.exit_code == 0, done.stderr
    repaired, report, of_single = done.stdout.splitlines()
    assert repaired == (
        f"{tmp_path}/out: computed 2 shards: part-00000-of-00003.parquet, "
        "part-00002-of-00003.parquet"
    )
    assert report.startswith(f"{tmp_path}/out: ok, 5 examples in 3 files, ")
    assert of_single.startswith(f"{single}: ok, 2 examples")
    now = files_of(tmp_path / "out")
    assert {n: c for n, c in now.items() if n != "_manifest.json"} == {
        n: c for n, c in whole.items() if n != "_manifest.json"
    }
    done = run("check", tmp_path / "out" / "_manifest.json", "--repair")
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 1)
