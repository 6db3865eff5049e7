"""Tables in text: csv and tsv with a header."""

import pytest

from bert_features.errors import InputError
from bert_features.readers.examples import count_examples
from bert_features.readers.input_example import InputExample
from tests.readers.inputs import of_words, read, write


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
    assert read(path, quoting=True) == [InputExample(0, "a, b"), InputExample(1, "c\td")]
    assert read(path, quoting=True, tokens_field="tokens") == [of_words(0, "x y"), of_words(1, "z")]


def test_quotes_in_tsv_are_text(tmp_path):
    """A quote that opens a field once swallowed the rows up to the next quote."""
    content = 'id\ttext\n1\t"Hi" he said\n2\t"no end\n3\tlast"\n'
    path = write(tmp_path, "in.tsv", content)
    assert read(path) == [
        InputExample("1", '"Hi" he said'),
        InputExample("2", '"no end'),
        InputExample("3", 'last"'),
    ]
    with pytest.raises(InputError, match=r"in\.tsv, line 2: .*pass quoting=False"):
        read(path, quoting=True)


@pytest.mark.parametrize("content", ['"id"\t"text"\n1\ta\n', 'id\ttext\n1\t"a\tb"\n'])
def test_a_tsv_whose_fields_are_quoted_is_refused_with_the_cure(tmp_path, content):
    path = write(tmp_path, "in.tsv", content)
    with pytest.raises(InputError, match=r"quotes are text here: .* pass quoting=True"):
        read(path)
    assert len(read(path, quoting=True)) == 1


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("in.csv", "id\ttext\n1\ta, b\n", "looks like tsv: if it is, pass input_format='tsv'"),
        ("in.tsv", "id,text\n1,a\n", "looks like csv: if it is, pass input_format='csv'"),
        ("in.csv", "1,a film\n", "must name the columns: if it does not, put one such as id,text "),
        ("in.tsv", "1\ta film\n", "must name the columns: .* such as id<tab>text before it"),
    ],
)
def test_the_cause_of_a_wrong_header_is_named(tmp_path, name, content, hint):
    with pytest.raises(InputError, match=rf"no column 'text' .*; the first line {hint}"):
        read(write(tmp_path, name, content))


def test_quotes_in_csv_can_be_text(tmp_path):
    path = write(tmp_path, "in.csv", 'text\n"a" b\n')
    assert read(path, quoting=False) == [InputExample(0, '"a" b')]


def test_a_csv_field_may_be_long(tmp_path):
    text = "word " * 100_000  # Python's csv module stops at 131,072 characters by itself
    assert read(write(tmp_path, "in.csv", f"text\n{text}\n")) == [InputExample(0, text)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is empty; expected a header"),
        ("a,b\n1,2\n", "no column 'text' and no column 'tokens'; the columns are a, b; set text_f"),
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
