"""The names that code written for google-research/bert's script and its tutorials uses.

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf
"""

from bert_features.machine.quiet_tensorflow import import_tensorflow

# Such code computes with TensorFlow's tensors, so of the two runtimes it takes this one. The names
# of the package itself (`bert_features.Estimator`) choose theirs before they come here.
import_tensorflow("tensorflow")
