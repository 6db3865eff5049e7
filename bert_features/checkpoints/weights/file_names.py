"""The names of the files that a checkpoint can have."""

from bert_features.checkpoints.weights.other_files import is_adapter
from bert_features.text import tokenizer_files, tokenizer_settings

# Weights: of TensorFlow's objects, of Hugging Face, and what torch.save wrote.
SAVED_MODEL = "saved_model.pb"
VARIABLES = "variables/variables"  # prefix of the weights in a SavedModel
# TensorFlow's file that names the latest checkpoint of a directory.
STATE_FILE = "checkpoint"
INDEX_SUFFIX = ".safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth")
PICKLED_INDEX = ".bin.index.json"

# Settings of sentence-transformers, in the main folder.
MODULES = "modules.json"
MAIN_CONFIG = "config_sentence_transformers.json"
ROUTER_CONFIG = "router_config.json"
# The names of a Transformer's file, of which the first is today's.
TRANSFORMER_CONFIGS = tuple(
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# The weights of a Dense and of a table of queries, in their folders: the first that exists.
DENSE_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TABLE_WEIGHTS = ("model.safetensors", "idf.json")
# The settings of a ColBERT of Stanford.
METADATA = "artifact.metadata"
# The linear layers of bge-m3: the weight of each token, and its vector.
SPARSE_LINEAR, COLBERT_LINEAR = LINEARS = ("sparse_linear.pt", "colbert_linear.pt")

# Files that belong to weights wherever these are.
BESIDE_WEIGHTS = (
    *("config.json", "bert_config.json", "albert_config.json", *tokenizer_files.NAMES),
    *(*tokenizer_settings.NAMES, *TRANSFORMER_CONFIGS),
    *("spm.model", METADATA, *LINEARS),
)


def is_index(name: str) -> bool:
    """Whether a file of this name is the index of Hugging Face's weights in shards."""
    return name.endswith((INDEX_SUFFIX, PICKLED_INDEX))


def is_weights_file(name: str) -> bool:
    """Whether a file of this name holds Hugging Face's weights, or is the index of such files."""
    return (name.endswith((".safetensors", *PICKLED)) or is_index(name)) and not is_adapter(name)
