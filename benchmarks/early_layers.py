"""What stopping at an early layer costs and saves: scores and speed by layer, as a table.

    .venv/bin/python benchmarks/early_layers.py PAIRS [--checkpoint minilm] [--rounds 5]
        [--texts 400] [--report upos.json]

PAIRS as for small_vectors.py. The score is Spearman's correlation x 100, for cosines of the means
of the tokens. Speed, from texts to these means, is tokens for each CPU second, all cases by turns,
and in brackets by that of the last layer in float32. --report is that of `plot probe` for the same
checkpoint, whose scores become a column.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
from parts import in_turns
from small_vectors import cosines, ranks, read_pairs

from bert_features import FeatureExtractor

PRECISIONS = ("float32", "bfloat16")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=400, help="texts of a round")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    *sides, scores = read_pairs(options.pairs)
    texts = sides[0][: options.texts]
    load = partial(FeatureExtractor.from_checkpoint, options.checkpoint)
    tokens = load(level="token", layers="embeddings")
    number = tokens.checkpoint.config.num_hidden_layers
    layers = ["embeddings", *map(str, range(number))]
    made = {
        (layer, precision): load(level="sequence", layers=layer, precision=precision)
        for layer in layers
        for precision in PRECISIONS
    }
    cases = {key: partial(extractor.encode, texts) for key, extractor in made.items()}
    count = sum(len(record.tokens) for record in tokens(texts))
    speeds = {key: count / each.cpu for key, each in in_turns(cases, options.rounds).items()}
    report = json.loads(options.report.read_text()) if options.report else {"layers": []}
    print(f"| layer | Spearman | probe | {' | '.join(PRECISIONS)} |\n|---|---|---|---|---|")
    for layer in layers:
        a, b = (np.float64(made[layer, "float32"].encode(side)) for side in sides)
        correlation = 100 * np.corrcoef(ranks(cosines(a, b)), ranks(scores))[0, 1]
        rows = [row for row in report["layers"] if str(row["layer"]) == layer]
        probed = f"{rows[0]['scores'][report['metric']]['mean']:.3f}" if rows else ""
        each = [speeds[layer, precision] for precision in PRECISIONS]
        last = speeds[layers[-1], "float32"]
        columns = [f"{speed:,.0f} ({speed / last:.2f})" for speed in each]
        print(f"| {layer} | {correlation:.1f} | {probed} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
