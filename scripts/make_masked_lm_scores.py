"""Makes a small random BERT with its masked-LM head, and what transformers and minicons give of it.

    python -m venv scores
    scores/bin/pip install torch==2.13.0 transformers==5.23.0 minicons==0.3.39
    scores/bin/python scripts/make_masked_lm_scores.py

`--out` gets a checkpoint as it would be published (config.json, model.safetensors, vocab.txt) and
`scores.json`: for texts and pairs with [MASK] their ids and the log-probabilities of every piece at
every position, by transformers in float64; and for plain texts the score of each piece by minicons,
one piece masked at a time (`original`), and with the rest of its word masked too
(`within_word_l2r`). tests/data/README.md describes them. Nothing of this package is used.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers
from minicons import scorer

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "masked_lm"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["is", "this", "jack", "##son", "##ville", "?", "no", "it", "not", ".", "the", "a", "b"]
CONFIG = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}
MASKED = [
    ["the [MASK] is not it."],
    ["[MASK] is [MASK]?"],
    ["is this [MASK]", "no it is jackson."],
    ["no it is not"],
]
SCORED = [
    "this is jacksonville.",
    "jackson? no",
    "is this the jacksonville? no it is not",
    "a",
    "unknown b.",
]


def make(folder: Path) -> None:
    """Makes the folder."""
    torch.manual_seed(11)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**CONFIG)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from what a new model has
            parameter.copy_(0.3 * torch.randn(parameter.shape) + (parameter == 1).float())
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    unused = [f"[unused{i}]" for i in range(30 - len(SPECIAL) - len(PIECES))]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, *PIECES, *unused]) + "\n")
    tokenizer = transformers.BertTokenizerFast(
        vocab={piece: i for i, piece in enumerate([*SPECIAL, *PIECES, *unused])},
        do_lower_case=True,
    )
    model.double()
    scores = {"masked": [], "scored": []}
    for texts in MASKED:
        inputs = tokenizer(*texts, return_tensors="pt")
        with torch.no_grad():
            log_probs = torch.log_softmax(model(**inputs).logits[0], -1)
        rows = [[round(value, 7) for value in row] for row in log_probs.tolist()]
        scores["masked"].append(
            {"texts": texts, "ids": inputs["input_ids"][0].tolist(), "log_probs": rows}
        )
    masked_lm = scorer.MaskedLMScorer(model, "cpu", tokenizer=tokenizer)
    for text in SCORED:
        record = {"text": text, "ids": tokenizer(text)["input_ids"]}
        for metric in ("original", "within_word_l2r"):
            rows = masked_lm.prepare_text(tokenizer([text]), PLL_metric=metric)
            record[metric] = [round(score, 6) for score in masked_lm.compute_stats(rows)[0]]
        words = tokenizer(text).word_ids()[1:-1]
        record["words"] = [words.count(word) for word in sorted(set(words))]
        scores["scored"].append(record)
    lines = [json.dumps(scores, separators=(",", ":")).replace('},{"t', '},\n{"t')]
    (folder / "scores.json").write_text("".join(lines) + "\n")


def main() -> None:
    """Makes the checkpoint and its scores."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder to write (default: %(default)s)"
    )
    make(parser.parse_args().out)


if __name__ == "__main__":
    main()
