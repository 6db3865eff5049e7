"""ColBERT's definition (Khattab and Zaharia 2020, arXiv:2004.12832) in float64 NumPy.

`H` width of the encoder, `D` of the vectors.
"""

import numpy as np

from tests.reference.numpy_encoder import NumpyEncoder


def late_vectors(encoder: NumpyEncoder, ids, *, linear, skipped=(), unseen=0):
    """[tokens that are kept, D]: the last state of each token, projected, of length 1.

    `linear` is [D, H]. The last `unseen` tokens see the others, which do not see them.
    """
    ids = np.array(ids)[None]
    mask = np.ones_like(ids)
    mask[:, ids.shape[1] - unseen :] = 0
    states = encoder(ids, mask, np.zeros_like(ids))[-1][0]
    kept = [number not in skipped for number in ids[0]]
    projected = states[kept] @ np.asarray(linear, np.float64).T
    return projected / np.linalg.norm(projected, axis=1, keepdims=True)


def max_sim(query, document):
    """The sum, over the query's vectors, of the largest product with one of the document's."""
    return sum(max(float(q @ d) for d in document) for q in query)
