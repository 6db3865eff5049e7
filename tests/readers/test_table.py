"""Tables in text: csv and tsv with a header."""

import pytest

from bert_features.errors import InputError
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import count_examples, of_words, read, write


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
    assert read(path, format="csv") == [InputExample(0, "a, b"), InputExample(1, "c\td")]
    assert read(path, format="csv", tokens_field="tokens") == [of_words(0, "x y"), of_words(1, "z")]


def test_quotes_in_tsv_are_text(tmp_path):
    """A quote that opens a field once swallowed the rows up to the next quote."""
    content = 'id\ttext\n1\t"Hi" he said\n2\t"no end\n3\tlast"\n'
    path = write(tmp_path, "in.tsv", content)
    assert read(path) == [
        InputExample("1", '"Hi" he said'),
        InputExample("2", '"no end'),
        InputExample("3", 'last"'),
    ]
    with pytest.raises(InputError, match=r"in\.tsv, line 2: .*pass input_format='tsv'"):
        read(path, format="csv")


@pytest.mark.parametrize("content", ['"id"\t"text"\n1\ta\n', 'id\ttext\n1\t"a\tb"\n'])
def test_a_tsv_whose_fields_are_quoted_is_refused_with_the_cure(tmp_path, content):
    path = write(tmp_path, "in.tsv", content)
    with pytest.raises(InputError, match="input_format='csv'"):
        read(path)
    assert len(read(path, format="csv")) == 1


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("id;text\r\nx;a, b\r\n", {}),
        ("id\ttext\nx\ta, b\n", {}),
        ("id|text\nx|a, b\n", {}),
        ("\ufeffsep=;\r\nid;text\r\nx;a, b\r\n", {}),
        ('\n"sep=|"\nid|text\nx|a, b\n', {}),
        ("id:text\nx:a, b\n", {"delimiter": ":"}),
        ('id,text\nx,"a, b"\n', {}),
        ('id;"text"\nx;"a, b"\n', {}),
        ("sep=;\nid\\text\nx\\a, b\n", {"delimiter": "\\"}),
        # Without a header.
        ("x;a, b\n", {"id_field": "1", "text_field": "2", "delimiter": ";"}),
        ("x\ta, b\n", {"id_field": "1", "text_field": "2", "delimiter": "\\t"}),
        ('x,"a, b"\n', {"id_field": "1", "text_field": "2"}),
        ('z;"c\nd";x;a, b\n', {"id_field": "3", "text_field": "4"}),
        # A label may be the number of the column.
        ('x,2,"a, b"\n', {"id_field": "1", "text_field": "3"}),
        ('2,x,3,"a, b"\n', {"id_field": "2", "text_field": "4"}),
        ('3,x,"a, b"\n', {"id_field": "2", "text_field": "3"}),
        # pandas numbers columns without names from 0.
        (',0,1\n0,x,"a, b"\n', {"id_field": "0", "text_field": "1"}),
        ('0,1,2\ny,x,"a, b"\n', {"id_field": "1", "text_field": "2"}),
    ],
)
def test_delimiters_and_fields_by_number(tmp_path, content, settings):
    assert read(write(tmp_path, "in.csv", content), **settings) == [InputExample("x", "a, b")]


def test_a_tsv_without_a_header(tmp_path, caplog):
    caplog.set_level("INFO", "bert_features")
    path = write(tmp_path, "in.tsv", '5\ta; b, "c\n6\td\te\n'.replace("\te", ""))
    assert read(path, text_field="2", id_field="1") == [
        InputExample("5", 'a; b, "c'),
        InputExample("6", "d"),
    ]
    assert caplog.messages == [f"{path} has no header: its first row is an example, 'a; b, \"c'"]


@pytest.mark.parametrize("content", ["", "\ufeff", "\n\n", "id,text\n", "sep=;\n"])
def test_tables_without_rows(tmp_path, content):
    assert read(write(tmp_path, "in.csv", content)) == []


def test_a_csv_field_may_be_long(tmp_path):
    text = "word " * 100_000  # Python's csv module stops at 131,072 characters by itself
    assert read(write(tmp_path, "in.csv", f"text\n{text}\n")) == [InputExample(0, text)]
