"""What Python's prompt shows of a run: one line each, with names and shapes."""

import re

from bert_features import (
    BertFeatures,
    BertTextInput,
    ExtractConfig,
    FeatureExtractor,
    extract,
    find_checkpoint,
    plan,
)

OUTPUTS = [
    {"name": "t", "layers": -1},
    {"name": "s", "level": "sequence", "layers": [0], "dtype": "float16"},
]


def test_one_line_each(toy, tmp_path):
    settings = {"max_seq_length": 20, "batch_size": 8, "do_lower_case": True}
    config = ExtractConfig(checkpoint=toy, outputs=OUTPUTS, **settings)
    (tmp_path / "in.txt").write_text("a b\n" * 3)
    outputs = "t float32 [tokens, 8], s float16 [8]"
    shown = {
        find_checkpoint(toy): f"<Checkpoint {toy}: tf1, 3 layers, width 8, vocabulary 30, uncased, "
        f"{toy}/bert_model.ckpt>",
        FeatureExtractor(config): f"<FeatureExtractor {toy}: {outputs}; float32 on 1 cpu>",
        FeatureExtractor(config).tokenizer: "<FullTokenizer: 30 pieces, uncased>",
        BertFeatures.from_checkpoint(toy, OUTPUTS, name="x"): "<BertFeatures x, frozen: "
        "t float32 [B, S, 8], s float16 [B, 8]>",
        BertTextInput.from_checkpoint(toy, max_seq_length=9, name="y"): "<BertTextInput y: "
        "int32 [B, 9], <FullTokenizer: 30 pieces, uncased>>",
    }
    for value, wanted in shown.items():
        assert repr(value) == wanted
    planned = repr(plan(config, tmp_path / "in.txt"))
    assert re.fullmatch(
        r"<Plan: 3 examples, 12 tokens \([\d.]+% padding\), 0 tokens lost, batches of lengths \d+; "
        + re.escape(f"{outputs}>"),
        planned,
    )
    summary = extract(config, tmp_path / "in.txt", tmp_path / "o.npz")
    assert re.fullmatch(
        rf"<ExtractSummary: 3 examples, 12 tokens in [\d.]+ s, 0 tokens lost, [\d,]+ bytes in "
        rf"{re.escape(str(tmp_path))}/o\.npz>",
        repr(summary),
    )
