"""Models of four kinds around the layers, saved and loaded; for either backend of Keras."""

import keras
import numpy as np

from bert_features import BertFeatures
from tests.toy import TOY, TOY_VOCAB, random_batch

MEAN = {"name": "mean", "level": "sequence", "pooling": "mean", "layers": [0]}
TEXTS = ["is this jacksonville ?", "the a b"]
S = 9
IDS = random_batch(TOY, [9, 4, 1], S)


def registered(kind):
    return keras.saving.register_keras_serializable("tests")(kind)


@registered
class Pick(keras.layers.Layer):
    def call(self, outputs):
        return outputs["mean"]


class _Parts:
    """The layers, their head, and the call of what has them."""

    def __init__(self, strings=False, trainable=False, **kwargs):
        super().__init__(**kwargs)
        self.strings, self.trains = strings, trainable
        self.first, self.head = parts(strings, trainable), keras.layers.Dense(2)

    def call(self, x):
        for layer in self.first:
            x = layer(x)
        return self.head(x)

    def get_config(self):
        return {**super().get_config(), "strings": self.strings, "trainable": self.trains}


@registered
class Subclassed(_Parts, keras.Model):
    pass


@registered
class Custom(_Parts, keras.layers.Layer):
    pass


@registered
class CustomWithBuild(Custom):
    """Keras asks for this of a custom layer in a functional model, whatever is inside."""

    def build(self, shapes):
        del shapes
        self.head.build((None, TOY.hidden_size))


@registered
class AroundCustom(keras.Model):
    """A subclassed model of a custom layer: no part of it has a `build`."""

    def __init__(self, strings=False, trainable=False, **kwargs):
        super().__init__(**kwargs)
        self.strings, self.trains = strings, trainable
        self.inner = Custom(strings, trainable)

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        return {**super().get_config(), "strings": self.strings, "trainable": self.trains}


def parts(strings, trainable):
    text = []
    if strings:
        from bert_features import BertTextInput

        text = [BertTextInput(TOY_VOCAB, max_seq_length=S)]
    return [*text, BertFeatures(TOY, [MEAN], trainable=trainable, use_dropout=False), Pick()]


def symbols(strings):
    if strings:
        return keras.Input((), dtype="string")
    return {name: keras.Input((S,), dtype="int32", name=name) for name in IDS}


def functional(strings=False, trainable=False):
    x = inputs = symbols(strings)
    for layer in parts(strings, trainable):
        x = layer(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def with_custom(strings=False, trainable=False):
    inputs = symbols(strings)
    return keras.Model(inputs, CustomWithBuild(strings, trainable)(inputs))


def sequential(strings=False, trainable=False):
    return keras.Sequential([*parts(strings, trainable), keras.layers.Dense(2)])


KINDS = {
    "subclassed": Subclassed,
    "subclassed around custom": AroundCustom,
    "functional": functional,
    "sequential": sequential,
    "custom": with_custom,
}
# Keras writes .h5 only of models whose graph of layers it knows.
H5 = {("functional", False), ("custom", False), ("sequential", True)}


def differences(kind, batch, folder, *, strings=False, fit=None):
    """For each way to save a model: the greatest difference of its outputs after loading.

    Args:
      kind: one of `KINDS`.
      batch: the inputs.
      folder: where the files go.
      strings: whether the inputs are texts; then the encoder is trainable, and the weights alone
        are not saved.
      fit: trains the model, whose weights are moved before.
    """
    model = KINDS[kind](strings, strings)
    model(batch)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(weight + rng.normal(size=weight.shape, scale=0.1).astype("float32"))
    if fit is not None:
        fit(model, batch)
    expected, loaded = keras.ops.convert_to_numpy(model(batch)), {}
    for suffix in (".keras", ".h5"):
        if suffix == ".keras" or (kind, strings) in H5:
            model.save(folder / f"model{suffix}")
            loaded[suffix] = keras.models.load_model(folder / f"model{suffix}")
    if not strings:
        model.save_weights(folder / "model.weights.h5")
        loaded["weights"] = KINDS[kind]()
        loaded["weights"](batch)
        loaded["weights"].load_weights(folder / "model.weights.h5")
    return {
        form: float(np.abs(keras.ops.convert_to_numpy(copy(batch)) - expected).max())
        for form, copy in loaded.items()
    }
