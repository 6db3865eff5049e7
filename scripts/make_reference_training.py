"""Trains a layer of tests/data/families/bert for six steps with torch's AdamW.

    bash scripts/make_reference_layers.sh      # makes the environment, too
    .venv-benchmark-references/bin/python scripts/make_reference_training.py

Writes `trained.npz` there; tests/data/README.md describes the arrays. Nothing of this package is
used.
"""

from pathlib import Path

import numpy as np
import torch
import transformers

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "families" / "bert"
STEPS, ROWS, LENGTH = 6, 4, 7
# Nearly none: Keras adds it before the correction of the second moment and torch after it.
EPSILON = 1e-12


def main() -> None:
    """Trains, with the loss that Keras calls `mse`."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 12, (STEPS, ROWS, LENGTH))
    ids[:, :, 0], ids[:, :, -1] = 2, 3
    model = transformers.BertModel.from_pretrained(
        FOLDER, add_pooling_layer=False, num_hidden_layers=1
    ).eval()
    targets = rng.normal(size=(STEPS, ROWS, model.config.hidden_size)).astype(np.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=EPSILON, weight_decay=0.01)
    for batch, target in zip(torch.tensor(ids), torch.tensor(targets), strict=True):
        optimizer.zero_grad()
        vectors = model(input_ids=batch).last_hidden_state.mean(1)
        torch.nn.functional.mse_loss(vectors, target).backward()
        optimizer.step()
    np.savez_compressed(
        FOLDER / "trained.npz",
        token_ids=ids.astype(np.int32),
        targets=targets,
        words=model.embeddings.word_embeddings.weight.detach().numpy(),
        kernel=model.encoder.layer[0].output.dense.weight.detach().numpy().T,
    )


if __name__ == "__main__":
    main()
