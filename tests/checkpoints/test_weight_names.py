"""The tables of names: one to one, and complete for a real BERT-base."""

from bert_features.checkpoints import weight_names
from bert_features.checkpoints.weight_names import is_ignored, plain_tf1, weight_shapes
from bert_features.config.bert_config import BertConfig
from tests.reference.tf1_checkpoint import huggingface_weights
from tests.toy import TOY, random_weights


def test_every_name_of_a_real_bert_base_is_accounted_for(data):
    lines = (data / "bert_base_tf1_names.txt").read_text().splitlines()
    rows = [line.partition(" ") for line in lines]
    stored = {name: [int(n) for n in shape.split("x") if n] for name, _, shape in rows}
    config = BertConfig(vocab_size=stored["bert/embeddings/word_embeddings"][0])
    encoder = {
        plain_tf1(n): tuple(s) for n, s in stored.items() if is_ignored(plain_tf1(n)) is None
    }
    assert encoder == weight_shapes(config)
    ignored = {n: is_ignored(plain_tf1(n)) for n in stored if plain_tf1(n) not in encoder}
    assert ignored["global_step"] == "optimizer"
    assert ignored["cls/predictions/output_bias"] == "head"


def test_the_tables_of_names_are_one_to_one():
    rows = weight_names.weights(TOY, pooler=True)
    for names in ([r.canonical for r in rows], [r.huggingface for r in rows]):
        assert len(set(names)) == len(rows) == 5 + 3 * 16 + 2
    assert huggingface_weights(random_weights(TOY), TOY).keys() == {r.huggingface for r in rows}
