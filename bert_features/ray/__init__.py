"""Features of a Ray dataset: `from bert_features.ray import Features`.

Importing this imports neither Ray nor TensorFlow.
"""

from bert_features.ray.features import Features as Features
