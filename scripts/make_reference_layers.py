"""Makes small random checkpoints of BERT and its relatives, and what transformers computes of them.

    bash scripts/make_reference_layers.sh

Each folder of `--out` holds a checkpoint as it would be published, `config.json` and
`model.safetensors` with the head of the masked-LM, and `layers.npz`: the token ids of a dozen rows,
singles and pairs of several lengths, and every layer, the attention, the pooled output and the
logits, computed in float64 and stored as float32. tests/data/README.md describes the arrays.
Nothing of this package is used.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "families"
LENGTHS = (2, 3, 4, 5, 6, 7, 9, 11, 12, 14, 17, 20)
VOCABULARY = 30
# Keys of most configs.
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
    "attn_implementation": "eager",
}

# Their encoders have no pooler.
NEVER_POOLED = ("electra", "distilbert", "modernbert")
# Name -> class of the model with a masked-LM, its config, and the ids of [CLS], [SEP] and [MASK].
FAMILIES: dict[str, tuple[str, dict[str, Any], tuple[int, int, int]]] = {
    "bert": ("BertForPreTraining", SMALL, (2, 3, 4)),
    # Two groups of two layers; a published ALBERT has one group.
    "albert": (
        "AlbertForPreTraining",
        SMALL | {"num_hidden_layers": 4, "num_hidden_groups": 2, "embedding_size": 8},
        (2, 3, 4),
    ),
    "electra": ("ElectraForMaskedLM", SMALL | {"embedding_size": 8}, (2, 3, 4)),
    "distilbert": (
        "DistilBertForMaskedLM",
        {
            **{"vocab_size": VOCABULARY, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24},
            **{"max_position_embeddings": 24, "attn_implementation": "eager"},
        },
        (2, 3, 4),
    ),
    "roberta": (
        "RobertaForMaskedLM",
        SMALL
        | {"max_position_embeddings": 26, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        | {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
        (0, 2, VOCABULARY - 1),
    ),
    "mpnet": (
        "MPNetForMaskedLM",
        SMALL
        | {"max_position_embeddings": 26, "layer_norm_eps": 1e-5}
        | {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
        (0, 2, VOCABULARY - 1),
    ),
    # Types of tokens as published ones have them, and a task.
    "ernie": (
        "ErnieForMaskedLM",
        SMALL | {"type_vocab_size": 4, "use_task_id": True, "layer_norm_eps": 1e-5},
        (2, 3, 4),
    ),
    "nomic_bert": ("NomicBertForMaskedLM", SMALL, (2, 3, 4)),
    # The numbers of a published `ntk` of factor 2, as transformers can compute them.
    "gte": (
        "GteForMaskedLM",
        SMALL
        | {"type_vocab_size": 0, "pad_token_id": 0}
        | {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 2 ** (1 / 4)}},
        (2, 3, 4),
    ),
    # A window of 4 tokens to either side; the first and the fourth layer see all.
    "modernbert": (
        "ModernBertForMaskedLM",
        SMALL
        | {"num_hidden_layers": 4, "local_attention": 8, "global_attn_every_n_layers": 3}
        | {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "reference_compile": False}
        | {"bos_token_id": 2, "eos_token_id": 3},
        (2, 3, 4),
    ),
}


def make(name: str, folder: Path) -> None:
    """Makes one folder."""
    model_class, settings, ids = FAMILIES[name]
    torch.manual_seed(7)
    cls = getattr(transformers, model_class)
    model = cls(cls.config_class(**settings)).eval()
    base = getattr(model, model.base_model_prefix)
    if getattr(base, "pooler", None) is None and name not in NEVER_POOLED:  # in a masked-LM alone
        base = type(base)(model.config, add_pooling_layer=True).eval()
        setattr(model, model.base_model_prefix, base)
        model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():  # far from what a new model has
            parameter.copy_(0.25 * torch.randn(parameter.shape) + (parameter == 1).float())
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    np.savez(folder / "layers.npz", **compute(model.double(), base, *ids))


def compute(model: Any, base: Any, cls: int, sep: int, mask: int) -> dict[str, np.ndarray]:
    """The rows, and what the model computes of each of them by itself."""
    computed: dict[str, list[np.ndarray]] = {}
    has_types = getattr(base.config, "type_vocab_size", 0) > 1
    for ids, types in rows_of(cls, sep, mask, base.config.model_type):
        inputs = {"input_ids": torch.tensor(ids[None])}
        if has_types:
            inputs["token_type_ids"] = torch.tensor(types[None])
        with torch.no_grad():
            encoded = base(**inputs, output_hidden_states=True, output_attentions=True)
            whole = model(**inputs)
        attention = torch.cat(encoded.attentions)  # [L, A, S, S]
        row = {
            "token_ids": ids,
            "type_ids": types,
            "states": torch.cat(encoded.hidden_states),
            "attention": attention.flatten(2),
            "logits": whole.get("logits", whole.get("prediction_logits"))[0],
        }
        if encoded.get("pooler_output") is not None:
            row["pooled_output"] = encoded.pooler_output
        for name, value in row.items():
            computed.setdefault(name, []).append(np.asarray(value))
    axes = {"states": 1, "attention": 2}
    arrays = {name: np.concatenate(rows, axes.get(name, 0)) for name, rows in computed.items()}
    narrow = {"i": np.int32, "f": np.float32}
    return {
        "row_splits": np.cumsum((0, *LENGTHS), dtype=np.int32),
        **{name: array.astype(narrow[array.dtype.kind]) for name, array in arrays.items()},
    }


def rows_of(cls: int, sep: int, mask: int, model_type: str) -> Any:
    """Ids and types of a row of each length; every other one is a pair, some have a mask."""
    rng = np.random.default_rng(3)
    for number, length in enumerate(LENGTHS):
        ids = rng.integers(5, VOCABULARY - 1, length)
        ids[0], ids[-1] = cls, sep
        types = np.zeros(length, int)
        if number % 2 and length > 6:
            middle = length // 2
            ids[middle], types[middle + 1 :] = sep, 1
            if model_type in ("roberta", "mpnet"):
                ids[middle + 1], types[:] = sep, 0
        if length > 4 and number % 3 == 0:
            ids[1] = mask
        yield ids, types


def main() -> None:
    """Makes the folders that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder to write (default: %(default)s)"
    )
    arguments = parser.parse_args()
    for name in arguments.names or FAMILIES:
        make(name, arguments.out / name)


if __name__ == "__main__":
    main()
