"""CoNLL: sentences of words in columns; comments and words that look alike."""

import pytest

from bert_features.readers.input_example import InputExample
from tests.readers.inputs import count_examples, of_words, read, write

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
    assert read(path, tokens_field="POS")[2] == of_words(2, "NNP NNP")
    assert count_examples(path) is None


def test_conll_u(tmp_path):
    path = write(tmp_path, "es-ud-dev.conllu", CONLL_U)
    words = ("Vamos", "nos", "a", "el", "mar", "10 000")
    assert read(path) == [InputExample(0, " ".join(words), words_a=words), of_words(1, "#")]
    assert [e.unique_id for e in read(path, id_field="sent_id")] == ["weblog-1", "weblog-2"]
    assert read(path, tokens_field="3")[1] == of_words(1, "#")
    as_plain = read(path, format="conll", tokens_field="2")
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
