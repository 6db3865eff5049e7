"""Keras layers: features inside a user's own model.

Importing this makes both layers known to Keras under their names, so that saved models load.
"""

from bert_features.layers.features import BertFeatures as BertFeatures
from bert_features.layers.text_input import BertTextInput as BertTextInput
