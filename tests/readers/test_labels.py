"""Labels of words and texts: the same from every format, and what is refused."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_features.config.input_format import InputFormat
from bert_features.readers.examples import examples_of_texts, read_examples

WORDS, TAGS = [["A", "dog", "barked"], ["No"]], [["DET", "_", "VERB"], ["INTJ"]]
LABELS = [("DET", "", "VERB"), ("INTJ",)]


def conllu(words=WORDS, tags=TAGS):
    """The words with their tags as UPOS, the fourth column."""
    return "\n".join(
        "".join(
            f"{i}\t{word}\t_\t{tag}\tX\t_\t_\t_\t_\t_\n"
            for i, (word, tag) in enumerate(zip(*sentence, strict=True), start=1)
        )
        for sentence in zip(words, tags, strict=True)
    )


def conll(words=WORDS, tags=TAGS, columns="{} X Y {}"):
    return "-DOCSTART- -X- O O\n\n" + "\n".join(
        "".join(columns.format(word, tag) + "\n" for word, tag in zip(*sentence, strict=True))
        for sentence in zip(words, tags, strict=True)
    )


def rows(tags=TAGS):
    return [{"tokens": w, "pos": t} for w, t in zip(WORDS, tags, strict=True)]


def write(path, content):
    if isinstance(content, str):
        path.write_text(content)
    else:
        pq.write_table(pa.Table.from_pylist(content), path)
    return str(path)


PLUS = "# global.columns = ID FORM NE:TYPE\n" + "\n".join(
    "".join(f"{i}\t{w}\t{t}\n" for i, (w, t) in enumerate(zip(*s, strict=True)))
    for s in zip(WORDS, TAGS, strict=True)
)


@pytest.mark.parametrize(
    ("name", "content", "field"),
    [
        ("a.conllu", conllu(), "upos"),
        ("a.conllu", conllu(), "UPOS"),
        ("a.conllu", conllu(), "4"),
        ("a.conllu", PLUS, "ne:type"),
        ("a.conll", conll(), "ner"),
        ("a.conll", conll(columns="{} {}"), "ner"),
        ("a.conll", conll(columns="{} {} X Y"), "pos"),
        ("a.conll", conll(columns="{} Y {}"), "chunk"),
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows()), "pos"),
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows(LABELS)), "pos"),
        ("a.json", json.dumps(rows()), "pos"),
        ("a.parquet", rows(), "pos"),
        ("a.parquet", rows([["DET", None, "VERB"], ["INTJ"]]), "pos"),
        ("a.csv", "tokens,pos\nA dog barked,DET _ VERB\nNo,INTJ\n", "pos"),
        ("a.tsv", "A dog barked\tDET _ VERB\nNo\tINTJ\n", "2"),
    ],
)
def test_labels_of_words(tmp_path, name, content, field):
    tokens = {"tokens_field": "1"} if name == "a.tsv" else {}
    settings = InputFormat(label_field=field, **tokens)
    examples = list(read_examples(write(tmp_path / name, content), settings))
    assert [list(example.words_a) for example in examples] == WORDS
    assert [example.labels for example in examples] == LABELS
    assert all(e.labels is None for e in read_examples(tmp_path / name, InputFormat(**tokens)))


def test_labels_of_a_table_of_pairs_and_of_numbers():
    table = {
        "tokens": [["a", "b"], ["c"]],
        "tokens_b": [["d"], None],
        "y": [[1, 0], [2]],
        "y_b": [[3], None],
    }
    settings = InputFormat(tokens_field="tokens", label_field="y")
    first, second = examples_of_texts(table, settings)
    assert first.labels == ("1", "0", "3")
    assert second.labels == ("2",)


def test_a_number_in_a_file_is_a_text(tmp_path):
    (path := tmp_path / "a.jsonl").write_text('{"text": "a b", "y": true}\n')
    (example,) = read_examples(path, InputFormat(label_field="y"))
    assert example.labels == ("True",)
