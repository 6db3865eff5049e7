"""Changes of the files of a folder of sentence-transformers, one key each, and these folders.

`scripts/make_reference_folder_changes.py` finds out by sentence-transformers which of them change
vectors or scores.
"""

import json
import shutil

from tests.reference.settings_cases import DATA

# Name -> its folder, and that of its weights.
FOLDERS = {
    "dense": ("sentence_dense/labse", "sentence_dense/weights"),
    "sparse": ("sparse_encoder/splade", "sparse_encoder/weights"),
    "multi_vector": ("multi_vector/classic", "multi_vector/weights"),
    "pylate": ("multi_vector/pylate", "multi_vector/weights"),
}
_LOGITS = {"text": {"method": "forward", "method_output_name": "logits"}}
_FILL = {"strategy": "fixed", "attend": True, "length": 9, "token": None}
_ACTIVATION = "torch.nn.modules.activation."
# The file, without the number of a module -> key -> values. The keys are those that the classes of
# sentence-transformers 6.2 write or take, and PyLate's.
CHANGES = {
    "sentence_bert_config.json": {
        **{"max_seq_length": (6, None), "do_lower_case": (True,), "unpad_inputs": (True,)},
        **{"transformer_task": ("fill-mask", "feature-extraction"), "modality_config": (_LOGITS,)},
        **{"module_output_name": ("sentence_embedding",), "processing_kwargs": ({"text": {}},)},
        **{"query_length": (4, 14), "document_length": (4,), "query_expansion": (_FILL, None)},
        **dict.fromkeys(("model_args", "model_kwargs"), ({"dtype": "float16"},)),
        **dict.fromkeys(("tokenizer_args", "processor_kwargs"), ({"model_max_length": 5},)),
        **dict.fromkeys(("config_args", "config_kwargs"), ({"hidden_act": "relu"},)),
        **{"tokenizer_name_or_path": ("x",), "backend": ("onnx",), "later": (1,)},
    },
    "Pooling/config.json": {
        **{"pooling_mode": ("max", ["cls", "mean"], "lasttoken"), "include_prompt": (False,)},
        **dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), (9,)),
        **{"pooling_mode_max_tokens": (True,), "pooling_mode_lasttoken": (True,), "later": (1,)},
    },
    "Dense/config.json": {
        **{"in_features": (15,), "out_features": (7,), "bias": (False, True)},
        **{"activation_function": (f"{_ACTIVATION}ReLU", f"{_ACTIVATION}Sigmoid")},
        **dict.fromkeys(("module_input_name", "module_output_name"), ("other",)),
        **{"use_residual": (True,), "later": (1,)},
    },
    "Normalize/config.json": {
        **dict.fromkeys(("module_input_name", "module_output_name"), ("other",)),
        "later": (1,),
    },
    "SpladePooling/config.json": {
        **{"pooling_strategy": ("sum",), "activation_function": ("log1p_relu",)},
        **dict.fromkeys(("embedding_dimension", "word_embedding_dimension"), (9,)),
        **{"chunk_size": (4,), "later": (1,)},
    },
    "MultiVectorMask/config.json": {
        **{"skiplist_words": (["the"],), "skiplist_tasks": (["query"],)},
        **{"keep_only_token_ids": ([3],), "later": (1,)},
    },
    "config_sentence_transformers.json": {
        **{"prompts": ({"query": "a ", "document": "boat "},), "default_prompt_name": ("query",)},
        **{"similarity_fn_name": ("euclidean", "meanmaxsim"), "truncate_dim": (3,)},
        **{"max_active_dims": (2,), "query_prefix": ("a ",), "document_prefix": ("a ",)},
        **{"query_length": (5, 14), "document_length": (6,), "query_expansion": (_FILL, None)},
        **dict.fromkeys(("attend_to_expansion_tokens", "attend_to_mask_tokens"), (True,)),
        **{"do_query_expansion": (False,), "skiplist_words": (["the"], []), "later": (1,)},
    },
}


def write(name, folder):
    """Writes a folder; it may exist."""
    for source in reversed(FOLDERS[name]):
        shutil.copytree(DATA / source, folder, dirs_exist_ok=True)


def changes(folder):
    """(key, name of the change) for each change of a folder, whose files have it meanwhile."""
    for pattern, by_key in CHANGES.items():
        for path in sorted(folder.glob(f"*_{pattern}" if "/" in pattern else pattern)):
            text = path.read_text()
            for key, values in by_key.items():
                for number, value in enumerate(values):
                    path.write_text(json.dumps(json.loads(text) | {key: value}))
                    yield key, f"{path.relative_to(folder)}: {key}/{number}"
            path.write_text(text)
