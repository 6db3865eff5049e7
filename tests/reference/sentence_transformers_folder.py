"""Writes the settings of a folder as sentence-transformers does, beside a checkpoint's files."""

import json

CLASSES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def write_settings(
    folder,
    *,
    modes=("mean",),
    normalize=False,
    length=None,
    do_lower_case=False,
    include_prompt=True,
    prompts=None,
    default_prompt_name=None,
    similarity=None,
):
    """Writes modules.json and the settings of each module; gives the folder."""
    names = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    (folder / "1_Pooling").mkdir()
    files = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": paths[i], "type": CLASSES[name]}
            for i, name in enumerate(names)
        ],
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": do_lower_case},
        "1_Pooling/config.json": {"pooling_mode": list(modes), "include_prompt": include_prompt},
        "config_sentence_transformers.json": {
            "prompts": prompts or {},
            "default_prompt_name": default_prompt_name,
            "similarity_fn_name": similarity,
        },
    }
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values))
    return folder


def write_linked(folder, source, **settings):
    """A folder with links to the weights and the tokenizer of another, and settings of its own.

    There is no vocab.txt in it: sentence-transformers 6 writes none.
    """
    folder.mkdir()
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (folder / name).symlink_to(source / name)
    return write_settings(folder, **settings)
