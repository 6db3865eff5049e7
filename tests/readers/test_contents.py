"""Contents that are no texts: features files are refused, whatever they are read as."""

import gzip
import io

import pytest

from bert_features.config.input_format import INPUT_FORMATS
from bert_features.errors import InputError
from bert_features.readers.contents import likely_format, sample_lines
from tests.formats.feature_files import ONE, SIDECARS, SUFFIX, all_formats, make_batch, write
from tests.readers.inputs import count_examples, json_lines, read
from tests.readers.inputs import write as write_input

REFUSED = r"holds the features of a run, not texts; name the texts that they were computed from"


@pytest.fixture
def features_file(tmp_path):
    def make(format, name=None):
        path = tmp_path / (name or f"f{SUFFIX[format]}")
        write(path, format, ONE, make_batch(ONE, [3, 0, 10]))  # 10 is a line end in TFRecord
        return path

    return make


@all_formats
def test_features_are_no_texts(features_file, format):
    path = features_file(format)
    readings = ["auto", "text"] + (["jsonl", "words"] if format == "jsonl" else [])
    for reading in readings:
        with pytest.raises(InputError, match=rf"{path.name}.* {REFUSED}"):
            read(path, format=reading)
    if format in SIDECARS:  # the content alone is enough
        path.with_name(f"{path.name}.metadata.json").unlink()
        with pytest.raises(InputError, match=REFUSED):
            read(path)
    if format == "parquet":
        with pytest.raises(InputError, match=REFUSED):
            read(path, tokens_field="tokens")
        with pytest.raises(InputError, match=REFUSED):
            count_examples(path)


def test_features_under_other_names(features_file, tmp_path):
    for format in ("arrow", "jsonl", "tfrecord"):
        content = features_file(format).read_bytes()
        for name in (f"{format}.csv", f"{format}.conll", f"{format}.txt.gz"):
            packed = gzip.compress(content) if name.endswith(".gz") else content
            with pytest.raises(InputError, match=REFUSED):
                read(write_input(tmp_path, name, packed))


def test_a_binary_file_of_texts_under_another_name(tmp_path, monkeypatch):
    parquet, arrow = (
        write_input(tmp_path, name, content)
        for name, content in (("p.txt", b"PAR1\x15\n"), ("a.txt", b"ARROW1\0\0\n"))
    )
    with pytest.raises(InputError, match="or pass input_format='parquet' if it has texts"):
        read(parquet)
    with pytest.raises(InputError, match=f"{REFUSED}$"):
        read(arrow)
    monkeypatch.setitem(INPUT_FORMATS, "arrow", INPUT_FORMATS["parquet"])
    with pytest.raises(InputError, match="or pass input_format='arrow' if it has texts"):
        read(arrow)


def test_what_only_looks_like_features_is_read(tmp_path):
    lines = json_lines({"linex_index": 3, "text": "a"})
    assert [example.text_a for example in read(write_input(tmp_path, "in.jsonl", lines))] == ["a"]
    text = write_input(tmp_path, "in.txt", "ARROW1 is a magic number\nPK\nPAR1 too\n")
    assert len(read(text)) == 3


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ("-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n. . O O\n\nPeter NNP", None),
        ("-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n. . O\n\nPeter NNP B-PER\n", "conll"),
        ("EU\tB-ORG\nrejects\tO\n.\tO\n\n", "conll"),
        (
            "# text = a\n" + "".join(f"{i}\ta\ta\tX\t_\t_\t0\troot\t_\t_\n" for i in "123") + "\n",
            "conllu",
        ),
        ('{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        ("id\ttext\n1\ta\n", "tsv"),
        ('"text",label\na,1\n', "csv"),
        ("a text, with tokens\n\nand more\n", None),
        ("so it\n\nis a\nwas b\nof c\n\n", None),
        ('[{"text": "a"}, {"text": "b"}]\n', "json"),
        ('[\n  {\n    "text": "a"\n  }\n]\n', "json"),
        ('\ufeff\n{\n  "text": "a"\n}\n', "json"),
        ('["a", "b"]\n', "json"),
        ('{"text": "a"},\n{"text": "b"}\n', "json"),
        ("[1] A. Smith, 2019\n[2] B\n", None),
        ('["Quoted"] she said\n', None),
        ("{smile} so good\n{smile}\n", None),
        ("<!DOCTYPE html>\n", "XML or HTML"),
        ('<doc id="1">\nA text.\n</doc>\n', "XML or HTML"),
        ("<3 this\n<b>is</b> fine\n", None),
        ("<user> hi\n<user> there\n", None),
        ("- text: a\n- text: b\n", "YAML"),
        ("- a point\n- text\n", None),
        ("%PDF-1.4\n", "RTF or PDF"),
        ("1|a|x\n2|b|y\n", "csv"),
        ("id;text\n", "csv"),
        ("id,sentence\n1,it is, so to say\n2,b\n", "csv"),
        ("So, it is\nSo, is it\n", None),
        ("['a', 'b']\n", "json"),
        ("a\rb\r", "lines that end in \\r"),
        ("a\r\nb\r\n", None),
        ("1\ta film\n2\tb\n", "tsv"),
        ("a ||| b\nc ||| d\n", None),
        ("one; two\nthree; four\n", None),
        ("one\ttext with a tab\n", None),
        ("\n\n", None),
        ("", None),
    ],
)
def test_the_format_that_lines_look_like(content, format):
    assert likely_format([*io.StringIO(content, newline="\n")]) == format


def test_long_lines_are_not_all_read():
    lines = iter(["a" * (1 << 16)] * 200)
    assert likely_format(list(sample_lines(lines))) is None
    assert len(list(lines)) >= 198
