"""Input formats: what each gives, how its errors say where, and that none is read ahead."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features.errors import ConfigError, InputError
from bert_features.readers import ids
from bert_features.readers.examples import InputExample, InputFormat, count_examples, read_examples

TEXT = "one\ntwo ||| deux\n"
TEXT_EXAMPLES = [InputExample(0, "one"), InputExample(1, "two", "deux")]


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(tmp_path, columns, name="in.parquet", **options):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path, **options)
    return path


def read(path, encoding_errors="strict", **settings):
    return list(read_examples(path, InputFormat(**settings), encoding_errors=encoding_errors))


def of_words(unique_id, words_a, words_b=None):
    words_a = tuple(words_a.split())
    if words_b is None:
        return InputExample(unique_id, " ".join(words_a), words_a=words_a)
    words_b = tuple(words_b.split())
    return InputExample(unique_id, " ".join(words_a), " ".join(words_b), words_a, words_b)


# --- formats -------------------------------------------------------------------------------------


def test_words(tmp_path):
    path = write(tmp_path, "in.txt", " It  's\there \n\na b ||| c\n||| x\na ||| b ||| c |||")
    assert read(path, format="words") == [
        of_words(0, "It 's here"),
        of_words(1, ""),
        of_words(2, "a b", "c"),
        of_words(3, "||| x"),
        of_words(4, "a ||| b", "c |||"),
    ]
    assert count_examples(path, InputFormat("words")) == 5


def test_words_and_text_split_pairs_alike(tmp_path):
    lines = [" ||| ".join(parts) for parts in itertools.product(["", "a", "b c"], repeat=3)]
    path = write(tmp_path, "in.txt", "\n".join(" ".join(line.split()) for line in lines))
    as_text = [(e.text_a, e.text_b) for e in read(path, format="text")]
    as_words = [(e.text_a, e.text_b) for e in read(path, format="words")]
    assert as_words == as_text
    assert sum(b is not None for _, b in as_text) > 5


def test_jsonl(tmp_path):
    path = write(
        tmp_path,
        "in.jsonl",
        '{"id": "x", "text": " as it is ||| \\u00e9\\ud83d\\ude00", "more": [1]}\n'
        '{"text_b": "b", "text": "a", "id": "y"}\r\n'
        "\n"
        '{"id": "z", "text": "a", "text_b": null}\n'
        '{"id": "w", "tokens": ["New York", ""]}\n'
        '{"id": "v", "tokens": ["a"], "tokens_b": ["b", "c"]}\n\n',
    )
    assert read(path) == [
        InputExample("x", " as it is ||| é😀"),
        InputExample("y", "a", "b"),
        InputExample("z", "a"),
        InputExample("w", "New York ", words_a=("New York", "")),
        of_words("v", "a", "b c"),
    ]
    assert count_examples(path) == 5


def test_jsonl_fields_of_other_names(tmp_path):
    line = '{"id": 7, "key": 1, "text": "t", "tokens": ["w"], "q": "Q", "a": "A", "q_b": ["B"]}\n'
    path = write(tmp_path, "in.ndjson", line)
    assert read(path) == [InputExample(7, "t")]  # texts before words
    assert read(path, id_field="key") == [InputExample(1, "t")]
    assert read(path, id_field="") == [InputExample(0, "t")]
    assert read(path, text_field="q", text_b_field="a") == [InputExample(7, "Q", "A")]
    assert read(path, tokens_field="tokens") == [of_words(7, "w")]


def test_csv(tmp_path):
    path = write(
        tmp_path,
        "in.csv",
        "\ufefftext_b,id,x,text\r\n"
        'b,1,,"say ""hi"", then\r\nleave"\r\n'
        "\r\n"
        ',02,y, a \r\n"",3,y,\r\n',
    )
    assert read(path) == [
        InputExample("1", 'say "hi", then\r\nleave', "b"),
        InputExample("02", " a "),
        InputExample("3", ""),
    ]
    assert count_examples(path) is None


def test_tsv(tmp_path):
    path = write(tmp_path, "in.tsv", 'text\ttokens\na, b\tx  y\n"c\td"\tz\n')
    assert read(path) == [InputExample(0, "a, b"), InputExample(1, "c\td")]
    assert read(path, tokens_field="tokens") == [of_words(0, "x y"), of_words(1, "z")]


def test_tsv_with_quotes_that_are_text(tmp_path):
    path = write(tmp_path, "in.tsv", 'text\ttext_b\n"Hi" he said\t"\n')
    with pytest.raises(InputError, match=r"in\.tsv, line 2: .*quoting = false"):
        read(path)
    assert read(path, quoting=False) == [InputExample(0, '"Hi" he said', '"')]


def test_a_csv_field_may_be_long(tmp_path):
    text = "word " * 100_000  # Python's csv module stops at 131,072 characters by itself
    assert read(write(tmp_path, "in.csv", f"text\n{text}\n")) == [InputExample(0, text)]


def test_parquet(tmp_path):
    path = write_parquet(
        tmp_path,
        {
            "id": pa.array([2, 1, 3], pa.uint16()),
            "text": ["a ||| b", "", " c "],
            "text_b": ["x", None, ""],
            "more": [1.0, 2.0, 3.0],
        },
    )
    expected = [InputExample(2, "a ||| b", "x"), InputExample(1, ""), InputExample(3, " c ", "")]
    assert read(path) == expected
    assert count_examples(path) == 3


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
def test_parquet_with_words(tmp_path, list_of):
    columns = {
        "id": pa.array(["x", "y"]).dictionary_encode(),
        "tokens": pa.array([["New York", "is"], []], list_of(pa.string())),
        "tokens_b": pa.array([None, ["b"]], list_of(pa.large_string())),
    }
    assert read(write_parquet(tmp_path, columns)) == [
        InputExample("x", "New York is", words_a=("New York", "is")),
        InputExample("y", "", "b", (), ("b",)),
    ]


def test_parquet_rows_keep_their_order_over_batches_and_row_groups(tmp_path):
    texts = [str(i) for i in range(2000)]
    path = write_parquet(tmp_path, {"text": texts}, row_group_size=700)
    assert read(path) == [InputExample(i, text) for i, text in enumerate(texts)]


CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# # I-NP O
. . O O

# # B-NP O
1 CD I-NP O


Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""

CONLL_U = """# newdoc id = d
# sent_id = weblog-1
# text = Vámonos al mar, 10 000.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_
5.1\tvamos\tir\tVERB\t_\t_\t_\t_\t_\t_
6\t10 000\t10 000\tNUM\t_\t_\t1\tobl\t_\t_

# sent_id = weblog-2
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_

"""


def test_conll_2003(tmp_path):
    path = write(tmp_path, "eng.testa.conll", CONLL_2003)
    assert read(path) == [
        of_words(0, "EU rejects # ."),
        of_words(1, "# 1"),
        of_words(2, "Peter Blackburn"),
    ]
    assert read(path, conll_column=2)[2] == of_words(2, "NNP NNP")
    assert count_examples(path) is None


def test_conll_u(tmp_path):
    path = write(tmp_path, "es-ud-dev.conllu", CONLL_U)
    words = ("Vamos", "nos", "a", "el", "mar", "10 000")
    assert read(path) == [
        InputExample(0, " ".join(words), words_a=words),
        of_words(1, "#"),
    ]
    assert [e.unique_id for e in read(path, id_field="sent_id")] == ["weblog-1", "weblog-2"]
    assert read(path, conll_column=3)[1] == of_words(1, "#")
    as_plain = read(path, format="conll", conll_column=2)
    assert as_plain[0].words_a[:2] == ("Vámonos", "Vamos")  # ranges mean nothing there


def test_conll_words_that_look_like_comments_and_comments_that_look_like_words(tmp_path):
    path = write(
        tmp_path,
        "in.conll",
        "#first\tO\n\n# a comment\n#tag\tO\nb\u00a0c\tO\n\tO\n\n#begin document (x); part 0\nd\tO\n"
        "#end document\n\n# id\t=\tx\ne\tO\n",
    )
    assert [e.words_a for e in read(path)] == [
        ("#first",),
        ("#tag", "b\u00a0c", ""),
        ("d",),
        ("e",),
    ]
    blanks = write(tmp_path, "in2.conll", "# sent_id = s 1\na A B C\n\n# id = 5\nb A B C\n")
    assert [e.words_a for e in read(blanks)] == [("a",), ("b",)]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_conll_line_endings_and_a_missing_last_one(tmp_path, ending):
    path = write(tmp_path, "in.conll", ending.join(["a O", "b O", "", "c O"]))
    assert [e.words_a for e in read(path)] == [("a", "b"), ("c",)]


# --- which format --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", "jsonl"),
        ("a.NDJSON.gz", "jsonl"),
        ("a.csv.xz", "csv"),
        ("a.b.tsv", "tsv"),
        ("a.parquet", "parquet"),
        ("a.conll.bz2", "conll"),
        ("a.conllu.zst", "conllu"),
        ("a.txt", "text"),
        ("csv", "text"),
        ("a.gz", "text"),
        ("a", "text"),
        ("-", "text"),
    ],
)
def test_auto_goes_by_the_suffix(name, expected):
    assert InputFormat().of_file(name).format == expected
    assert InputFormat("words").of_file(name).format == "words"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "xml"}, "'xml' is not known; allowed: auto, text, words, jsonl"),
        ({"conll_column": 0}, "conll_column is 0; allowed: an integer of at least 1"),
        ({"text_field": "a", "tokens_field": "b"}, "'a'.* or words .*'b'"),
        ({"text_b_field": "a", "tokens_field": "b"}, "'a'.* or words .*'b'"),
    ],
)
def test_formats_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message):
        InputFormat(**settings)


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        ("a.txt", {"text_field": "t"}, "text_field is set, but .* as text; .* jsonl, csv, tsv, pa"),
        ("-", {"id_field": "i"}, "id_field is set, but the input is read as text"),
        ("a.csv", {"conll_column": 2}, "conll_column .* read as csv; it is for conll, conllu"),
        ("a.jsonl", {"quoting": False}, "quoting .* read as jsonl; it is for csv, tsv"),
        ("a.conll", {"tokens_field": "t"}, "tokens_field .* read as conll"),
    ],
)
def test_settings_of_another_format_are_refused_at_once(path, settings, message):
    with pytest.raises(ConfigError, match=message):
        read_examples(path, InputFormat(**settings))


# --- compression ---------------------------------------------------------------------------------

COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
compressions = pytest.mark.parametrize("suffix", COMPRESS)


@compressions
def test_compressed_files(tmp_path, suffix):
    compress = COMPRESS[suffix]
    text = write(tmp_path, "in.txt" + suffix, compress(TEXT.encode()))
    assert read(text) == TEXT_EXAMPLES
    assert count_examples(text) is None
    table = write(tmp_path, "in.csv" + suffix.upper(), compress(b"text\na\n"))
    assert read(table) == [InputExample(0, "a")]
    sentences = write(tmp_path, "in.conllu" + suffix, compress(CONLL_U.encode()))
    assert len(read(sentences)) == 2


@compressions
def test_compressed_in_parts(tmp_path, suffix):
    parts = b"".join(COMPRESS[suffix](line.encode()) for line in TEXT.splitlines(keepends=True))
    assert read(write(tmp_path, "in.txt" + suffix, parts)) == TEXT_EXAMPLES


@compressions
@pytest.mark.parametrize("damage", ["cut", "not compressed", "empty"])
def test_damaged_compressed_files(tmp_path, suffix, damage):
    whole = COMPRESS[suffix](b"".join(b"line %d\n" % i for i in range(1000)))
    content = {"cut": whole[:-20], "not compressed": TEXT.encode(), "empty": b""}[damage]
    path = write(tmp_path, "in.txt" + suffix, content)
    with pytest.raises(InputError, match=r"cannot read .*in\.txt"):
        read(path)


def test_compressed_parquet_is_refused(tmp_path):
    path = write_parquet(tmp_path, {"text": ["a"]})
    packed = write(tmp_path, "in.parquet.gz", gzip.compress(path.read_bytes()))
    for use in (read, count_examples):
        with pytest.raises(InputError, match=r"in\.parquet\.gz: Parquet compresses .* decompress"):
            use(packed)


# --- ids -----------------------------------------------------------------------------------------


def json_lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def with_ids(*unique_ids):
    return json_lines(*({"id": unique_id, "text": "t"} for unique_id in unique_ids))


@pytest.mark.parametrize("unique_ids", [[5, -1, 2**63 - 1, -(2**63)], ["5", "05", "é", " "]])
def test_ids_are_kept(tmp_path, unique_ids):
    path = write(tmp_path, "in.jsonl", with_ids(*unique_ids))
    assert [e.unique_id for e in read(path)] == unique_ids


@pytest.mark.parametrize(
    ("unique_ids", "message"),
    [
        ([1, "1"], "line 2: the id is '1', of type str, but that of line 1 is 1, of type int"),
        (["a", 1], "line 2: the id is 1, of type int, but that of line 1 is 'a', of type str"),
        ([1.0], r"line 1: the id is 1\.0; allowed: a string, or an integer of 64 bits"),
        ([True], "line 1: the id is True; allowed"),
        ([1, True], "line 2: the id is True; allowed"),
        ([None], "line 1: the id is None; allowed"),
        ([1, None], "line 2: the id is None; allowed"),
        ([[1]], r"line 1: the id is \[1\]; allowed"),
        ([1, 2**63], "line 2: the id is 9223372036854775808; allowed"),
        ([2**63], "line 1: the id is 9223372036854775808; allowed"),
        ([""], "line 1: the id is empty"),
        (
            [1, 2, 1],
            "line 3: the id 1 is that of line 1 too; .* another id_field, or an empty",
        ),
        (["a", "a"], "line 2: the id 'a' is that of line 1 too"),
    ],
)
def test_ids_that_are_refused(tmp_path, unique_ids, message):
    path = write(tmp_path, "in.jsonl", with_ids(*unique_ids))
    with pytest.raises(InputError, match=r"in\.jsonl, " + message):
        read(path)


def test_all_or_no_lines_have_ids(tmp_path):
    plain, named = {"text": "t"}, {"id": 1, "text": "t"}
    with pytest.raises(InputError, match="line 2: has an id, but the rows before it have none"):
        read(write(tmp_path, "in.jsonl", json_lines(plain, named)))
    with pytest.raises(InputError, match="line 2: has no id, but the rows before it have one"):
        read(write(tmp_path, "in.jsonl", json_lines(named, plain)))


def test_an_id_field_that_is_named_must_be_there(tmp_path):
    with pytest.raises(InputError, match=r"in\.jsonl, line 1: no field 'key'; the fields are text"):
        read(write(tmp_path, "in.jsonl", '{"text": "t"}'), id_field="key")
    with pytest.raises(InputError, match=r"in\.csv: no column 'key'; the columns are text, x"):
        read(write(tmp_path, "in.csv", "text,x\n"), id_field="key")
    with pytest.raises(InputError, match=r"in\.parquet: no column 'key'; the columns are text"):
        read(write_parquet(tmp_path, {"text": ["t"]}), id_field="key")
    path = write(tmp_path, "in.conllu", "# sent_id = 1\n\n# x = 1\n1\ta\n")
    with pytest.raises(InputError, match=r"in\.conllu, line 3: .* no comment '# sent_id = …'"):
        read(path, id_field="sent_id")


def test_ids_of_tables(tmp_path):
    with pytest.raises(InputError, match=r"in\.csv, line 4: the id '1' is that of line 2 too"):
        read(write(tmp_path, "in.csv", 'id,text\n1,"a\nb"\n1,c\n'))
    with pytest.raises(InputError, match=r"in\.parquet, row 3: the id 'x' is that of row 1 too"):
        read(write_parquet(tmp_path, {"id": ["x", "y", "x"], "text": ["a", "b", "c"]}))
    with pytest.raises(InputError, match=r"in\.parquet, row 2: the id is None; allowed"):
        read(write_parquet(tmp_path, {"id": [1, None], "text": ["a", "b"]}))


@pytest.mark.parametrize("as_id", [int, str])
@pytest.mark.parametrize("repeated", [None, (3, 83), (41, 42), (3, 96)])
def test_ids_are_compared_on_disk_too(tmp_path, monkeypatch, as_id, repeated):
    monkeypatch.setattr(ids, "_HELD", 10)
    unique_ids = [as_id(i * 7919 % 101) for i in range(97)]  # all different, in no order
    if repeated:
        first, second = repeated
        unique_ids[second] = unique_ids[first]
    path = write(tmp_path, "in.jsonl", with_ids(*unique_ids))
    if repeated is None:
        assert [e.unique_id for e in read(path)] == unique_ids
        return
    message = f"line {second + 1}: the id {unique_ids[first]!r} is that of line {first + 1} too"
    with pytest.raises(InputError, match=message):
        read(path)


def test_no_room_for_the_ids_on_disk(tmp_path, monkeypatch):
    connect = sqlite3.connect

    def connect_to_a_small_disk(*args, **kwargs):
        database = connect(*args, **kwargs)
        database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_small_disk)
    monkeypatch.setattr(ids, "_HELD", 100)
    path = write(tmp_path, "in.jsonl", with_ids(*(f"{i:0100}" for i in range(1000))))
    with pytest.raises(InputError, match=r"in\.jsonl: cannot check .* is full; is the temp"):
        read(path)


def test_examples_may_be_taken_by_several_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "_HELD", 2)
    examples = read_examples(write(tmp_path, "in.jsonl", with_ids(*range(20))))
    taken = []
    for _ in range(20):
        thread = threading.Thread(target=lambda: taken.append(next(examples).unique_id))
        thread.start()
        thread.join()
    assert taken == list(range(20))


# --- errors --------------------------------------------------------------------------------------

_TOKENS_WANTED = "expected a list of strings"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'a': 1}", "not JSON: Expecting property name .*; expected one object on each line"),
        ('{"text": "a"} {"text": "b"}', "not JSON: Extra data"),
        ('{"text": "a"', "not JSON"),
        ("[" * 100_000, "not JSON that can be read"),
        ('{"text": ' + "1" * 5000 + "}", "not JSON that can be read"),
        ('["a"]', r"not a JSON object: \['a'\]"),
        ("null", "not a JSON object: None"),
        ('{"text": 1}', "'text' is 1; expected a string"),
        ('{"text": null}', "'text' is None; expected a string"),
        ('{"text": "a", "text_b": 1}', "'text_b' is 1; expected a string"),
        ('{"tokens": "a b"}', f"'tokens' is 'a b'; {_TOKENS_WANTED}"),
        ('{"tokens": ["a", 1]}', rf"'tokens' is \['a', 1\]; {_TOKENS_WANTED}"),
        ('{"tokens": ["a"], "tokens_b": {}}', f"'tokens_b' is {{}}; {_TOKENS_WANTED}"),
        ('{"body": "a"}', "no field 'text' and none 'tokens'; the fields are body; name the one"),
        ("{}", "no field 'text' and none 'tokens'; there are no fields"),
        (r'{"text": "\ud83d"}', r"an escape \\ud800 … \\udfff without its other half"),
        (r'{"id": "\uDE00", "text": "a"}', r"an escape \\ud800 … \\udfff without its other half"),
    ],
)
def test_wrong_json_lines(tmp_path, line, message):
    path = write(tmp_path, "in.jsonl", f'{{"text": "fine"}}\n\n{line}\n')
    with pytest.raises(InputError, match=rf"in\.jsonl, line 3: {message}"):
        read(path)


def test_json_fields_that_are_named_must_be_there(tmp_path):
    path = write(tmp_path, "in.jsonl", '{"text": "a", "b": null}\n{"text": "a"}\n')
    assert next(read_examples(path, InputFormat(text_b_field="b"))) == InputExample(0, "a")
    with pytest.raises(InputError, match="line 2: no field 'b'; the fields are text"):
        read(path, text_b_field="b")
    with pytest.raises(InputError, match="line 1: no field 'words'; the fields are text, b"):
        read(path, tokens_field="words")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is empty; expected a header"),
        ("a,b\n1,2\n", "no column 'text' and none 'tokens'; the columns are a, b; name the one"),
        ("text,text\n1,2\n", "2 columns are called 'text'"),
        ("id,text\n1,a\n2\n", "line 3: the row has 1 fields, the header 2: id, text"),
        ("id,text\n1,a,b\n", "line 2: the row has 3 fields, the header 2"),
        ('text\n"a\nb"\n"c\nd\n', "line 4: unexpected end of data; is a quote not closed"),
        ('text\n"a" b\n', "line 2: ',' expected after '\"'; is a quote not closed"),
    ],
)
def test_wrong_csv(tmp_path, content, message):
    path = write(tmp_path, "in.csv", content)
    with pytest.raises(InputError, match=rf"in\.csv[:,] {message}"):
        read(path)


def test_a_csv_column_that_is_named_must_be_there(tmp_path):
    path = write(tmp_path, "in.csv", "text,b\n")
    for settings in ({"text_field": "body"}, {"text_b_field": "body"}, {"tokens_field": "body"}):
        with pytest.raises(InputError, match=r"in\.csv: no column 'body'; the columns are text, b"):
            read(path, **settings)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["a"]}, ": no column 'text' and none 'tokens'; the columns are body"),
        ({"text": [1]}, ": the column 'text' is of type int64; allowed: string"),
        ({"text": [b"a"]}, ": the column 'text' is of type binary; allowed: string"),
        ({"tokens": ["a b"]}, ": the column 'tokens' is of type string; allowed: a list of strin"),
        ({"tokens": [[1]]}, ": the column 'tokens' is of type list<.*int64>; allowed: a list of"),
        ({"id": [1.0], "text": ["a"]}, ": the column 'id' is of type double; allowed: string, or"),
        ({"id": [True], "text": ["a"]}, ": the column 'id' is of type bool; allowed: string, or"),
        ({"text": ["a", None]}, ", row 2: 'text' is null"),
        ({"tokens": [["a"], ["b", None]]}, ", row 2: 'tokens' has a word that is null"),
        ({"tokens": [["a"]], "tokens_b": [[None, "x"]]}, ", row 1: 'tokens_b' has a word that is"),
        ({"tokens": [["a"], None]}, ", row 2: 'tokens' is null"),
    ],
)
def test_wrong_parquet(tmp_path, columns, message):
    path = write_parquet(tmp_path, columns)
    with pytest.raises(InputError, match=r"in\.parquet" + message):
        read(path)


def test_damaged_parquet(tmp_path):
    path = write_parquet(tmp_path, {"text": [f"{i}" * 50 for i in range(1000)]})
    whole = path.read_bytes()
    for content in (b"", b"no parquet here", whole[:-20], b"PAR1" + b"\xff" * 500 + whole[504:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"in\.parquet: cannot be read as Parquet"):
            read(path)


def test_conll_with_too_few_columns(tmp_path):
    path = write(tmp_path, "in.conll", "-DOCSTART- O\n\na O\nb O X\n\nc\n")
    assert len(read(path)) == 2
    message = r"in\.conll, line 6: there are 1 columns, but the words are in column 2; conll_column"
    with pytest.raises(InputError, match=message):
        read(path, conll_column=2)


@pytest.mark.parametrize(
    ("format", "content", "place"),
    [
        ("jsonl", b'{"text": "a\xe9b"}\n', "line 1: byte 0xe9 at file offset 11"),
        ("csv", b"text\na\xe9b\n", "line 2: byte 0xe9 at file offset 6"),
        ("tsv", b"text\na\xe9b\n", "line 2: byte 0xe9 at file offset 6"),
        ("conll", b"\n\na\xe9b O\n", "line 3: byte 0xe9 at file offset 3"),
        ("conllu", b"1\ta\xe9b\n", "line 1: byte 0xe9 at file offset 3"),
        ("text", b"a\xe9b", "line 1: byte 0xe9 at file offset 1"),
        ("words", b"a\xe9b", "line 1: byte 0xe9 at file offset 1"),
    ],
)
def test_bytes_that_are_not_utf8(tmp_path, format, content, place):
    path = write(tmp_path, "in", content)
    with pytest.raises(InputError, match=f"/in, {place} is not UTF-8"):
        read(path, format=format)
    replaced = read(path, encoding_errors="replace", format=format)
    assert [e.text_a for e in replaced] == ["a\ufffdb"]


def test_lone_surrogates_of_json_can_be_replaced(tmp_path):
    path = write(tmp_path, "in.jsonl", r'{"id": "\ud83d", "text": "a\udE00 \ud83d\ude00 \\ud83d"}')
    assert read(path, encoding_errors="replace") == [InputExample("\ufffd", "a\ufffd 😀 \\ud83d")]


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv", "parquet", "conll", "txt.gz"])
@pytest.mark.parametrize("use", [read, count_examples])
def test_what_cannot_be_read(tmp_path, suffix, use):
    with pytest.raises(InputError, match=r"cannot read .*absent.*No such file"):
        use(tmp_path / f"absent.{suffix}")
    folder = tmp_path / f"folder.{suffix}"
    folder.mkdir()
    with pytest.raises(InputError, match="is a directory"):
        use(folder)


# --- streams -------------------------------------------------------------------------------------


def standard_input(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("auto", "a\n"),
        ("words", "a\n"),
        ("jsonl", '{"text": "a"}'),
        ("csv", "text\na\n"),
        ("tsv", "text\na"),
        ("conll", "a O\n"),
        ("conllu", "1\ta\n"),
    ],
)
def test_standard_input(monkeypatch, format, content):
    standard_input(monkeypatch, content)
    assert count_examples("-", InputFormat(format)) is None
    assert [e.text_a for e in read("-", format=format)] == ["a"]


def test_errors_name_standard_input(monkeypatch):
    standard_input(monkeypatch, "1\n")
    with pytest.raises(InputError, match=r"^standard input, line 1: not a JSON object"):
        read("-", format="jsonl")


def test_parquet_cannot_be_streamed(tmp_path):
    with pytest.raises(InputError, match=r"^standard input: Parquet cannot be read from a stream"):
        read("-", format="parquet")
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    for use in (read, count_examples):
        with pytest.raises(InputError, match=r"pipe\.parquet: Parquet cannot be read from a str"):
            use(pipe)


ENDLESS = {
    "text": "a\n",
    "words": "a\n",
    "jsonl": '{{"id": {}, "text": "a"}}\n',
    "csv": "a,{}\n",
    "conll": "a O {}\n\n",
    "conllu": "1\ta\t{}\n\n",
}


@pytest.mark.parametrize("format", ENDLESS)
def test_the_first_examples_of_an_endless_input(tmp_path, format):
    """The writer waits in the middle of its output: who reads ahead without bound waits too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader_is_done = threading.Event()
    waits_in_vain = threading.Event()
    header = "text,id\n" if format == "csv" else ""

    def feed():
        with pipe.open("w") as file:
            file.write(header)
            file.writelines(ENDLESS[format].format(i) for i in range(20_000))  # > any buffer
            file.flush()
            if not reader_is_done.wait(20):
                waits_in_vain.set()

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    examples = read_examples(pipe, InputFormat(format))
    assert [e.text_a for e in itertools.islice(examples, 10_000)] == ["a"] * 10_000
    reader_is_done.set()
    assert not waits_in_vain.is_set()
    list(examples)
    writer.join()


def peak_memory(path):
    """Bytes that Python held at most while it read, whatever the number of examples."""
    tracemalloc.start()
    try:
        for _ in read_examples(path):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.conllu.gz", "in.txt.bz2"])
def test_memory_does_not_grow_with_the_input(tmp_path, monkeypatch, name):
    monkeypatch.setattr(ids, "_HELD", 100)
    word = "x" * 1000
    lines = {
        "in.jsonl": lambda i: json.dumps({"id": f"{i}", "text": word}) + "\n",
        "in.csv": lambda i: f"{i},{word}\n" if i else "id,text\n",
        "in.conllu.gz": lambda i: f"1\t{word}\n\n",
        "in.txt.bz2": lambda i: f"{word}\n",
    }[name]
    content = "".join(lines(i) for i in range(5000)).encode()
    path = write(tmp_path, name, COMPRESS.get(Path(name).suffix, bytes)(content))
    peak_memory(path)  # what is imported and cached once
    assert len(content) > 5_000_000
    assert peak_memory(path) < 1_000_000


def test_a_large_row_group_of_parquet_is_read_bit_by_bit(tmp_path):
    texts = [f"{i:06}" * 500 for i in range(20_000)]  # 60 MB, one row group
    path = write_parquet(tmp_path, {"text": texts}, use_dictionary=False, compression="none")
    del texts
    assert path.stat().st_size > 60_000_000
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_examples(path)]
    assert len(held) == 20_000
    assert max(held) < 10_000_000


def test_importing_readers_imports_no_library_behind_a_format():
    code = (
        "import sys, bert_features.readers.examples, bert_features.readers\n"
        "print([m for m in ('tensorflow', 'pyarrow', 'pandas', 'h5py') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
