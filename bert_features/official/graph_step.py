"""A model_fn written for TensorFlow 1 as a device step: a pure function of weights and batch.

Such a function builds a graph: it makes variables, names the checkpoint that they are read from,
and returns tensors. Here it gets a graph of its own, in which `tf.get_variable` makes the variable
and returns a placeholder of its shape. Wherever a runtime traces the step, the part of that graph
that the predictions need is copied into the trace, with values instead of the placeholders. So the
graph's own variables never take memory.

Shape legend: `B` batch.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_features.checkpoints.weights.weight_readers import some
from bert_features.encoder.computations import Predictions
from bert_features.encoder.forms import chosen_forms, traced_for
from bert_features.encoder.types import Tensor
from bert_features.errors import CheckpointError, ConfigError
from bert_features.official.model_fn import EstimatorSpec, ModeKeys
from bert_features.official.user_inputs import call_by_names

logger = logging.getLogger("bert_features")

# (features, labels, mode, params), or fewer of these by name.
UserModelFn = Callable[..., EstimatorSpec]


@dataclass(frozen=True)
class _Built:
    """The graph that one call of the model_fn built.

    Attributes:
      features: name -> placeholder.
      stand_ins: name of a variable -> the placeholder that the model_fn computed with.
      initial: name of a variable -> its first value.
      predictions: name -> tensor.
    """

    graph: tf.Graph
    features: Mapping[str, Tensor]
    stand_ins: Mapping[str, Tensor]
    initial: Mapping[str, Tensor]
    predictions: Mapping[str, Tensor]


class GraphStep:
    """A user's model_fn as a device step, with the values of its variables.

    Args:
      model_fn: takes `features` and, by name, any of `labels` (None), `mode` (PREDICT), `params`
        and `config`; returns an `EstimatorSpec`.
      features: name -> shape and dtype of a batch of features, [B, …] each; B may be unknown.
      params: passed to the model_fn.
      config: passed to the model_fn.
      checkpoint: a TF1 checkpoint that the variables are read from; None for the values that the
        model_fn gives them, by `tf.train.init_from_checkpoint` or an initialiser.

    Attributes:
      passed: prediction -> the feature that it is; the step does not compute these.
      inputs: names of the features that the other predictions depend on.
      weights: the variables that they depend on, in the order in which `step` takes their values.

    Raises:
      CheckpointError: the checkpoint lacks a variable, or has it in another shape or dtype.
      ConfigError: what the model_fn returned cannot be run, see the message.
    """

    def __init__(
        self,
        model_fn: UserModelFn,
        features: Mapping[str, tf.TensorSpec],
        *,
        params: Mapping[str, Any],
        config: Any,
        checkpoint: str | None = None,
    ) -> None:
        self._model_fn = model_fn
        self._features = features
        self._arguments = {"params": dict(params), "config": config}
        self._built: dict[Any, _Built] = {}
        built = self._build(features)
        feature_of = {stand_in.ref(): name for name, stand_in in built.features.items()}
        self.passed = {
            name: feature_of[tensor.ref()]
            for name, tensor in built.predictions.items()
            if tensor.ref() in feature_of
        }
        needed = _ancestors(self._outputs(built).values())
        _check_reads(needed)
        inputs = [n for n, t in built.features.items() if t.op.name in needed]
        if len(self.passed) < len(built.predictions) and not inputs:
            inputs = list(features)[:1]  # for the number of rows
        self.inputs = tuple(inputs)
        self._names = [n for n, t in built.stand_ins.items() if t.op.name in needed]
        stand_ins = {name: built.stand_ins[name] for name in self._names}
        values = _stored(checkpoint, stand_ins) if checkpoint else _initial(built, self._names)
        self.weights = [
            keras.Variable(value, trainable=False, name=name.replace("/", "."), dtype=value.dtype)
            for name, value in zip(self._names, values, strict=True)
        ]

    def step(self, weights: Sequence[Tensor], batch: Mapping[str, Tensor]) -> Predictions:
        """The predictions that are not `passed`, for a batch of `inputs`: a pure function."""
        built = self._built_for(batch)
        feeds = [(built.stand_ins[n], v) for n, v in zip(self._names, weights, strict=True)]
        for name in self.inputs:
            stand_in = built.features[name]
            feeds.append((stand_in, tf.ensure_shape(batch[name], stand_in.shape)))
        return _computed(built.graph, self._outputs(built), feeds)

    def _outputs(self, built: _Built) -> dict[str, Tensor]:
        return {n: tensor for n, tensor in built.predictions.items() if n not in self.passed}

    def _built_for(self, batch: Mapping[str, Tensor]) -> _Built:
        """The graph for the shapes of a batch, in the forms of operations that a runtime chose.

        All devices of a kind share it: each traces the step.
        """
        rows = next(iter(batch.values())).shape[0]
        features = {}
        for name, spec in self._features.items():
            shape = batch[name].shape if name in batch else [rows, *spec.shape[1:]]
            features[name] = tf.TensorSpec(spec.shape.merge_with(shape), spec.dtype)
        key = (chosen_forms(), tuple(str(spec.shape) for spec in features.values()))
        if key not in self._built:
            try:
                self._built[key] = self._build(features)
            except LookupError as error:
                forms = chosen_forms()
                if type(error) is not LookupError or not forms.fixed_weights:
                    raise
                # It asks for gradients, which products of fixed weights have not.
                with traced_for("cpu", row_limit=forms.row_limit, narrow=forms.narrow):
                    self._built[key] = self._build(features)
        return self._built[key]

    def _build(self, specs: Mapping[str, tf.TensorSpec]) -> _Built:
        """Calls the model_fn in a new graph."""
        variables: dict[str, Any] = {}
        stand_ins: dict[str, Tensor] = {}
        graph = tf.Graph()

        def with_stand_in(getter: Callable[..., Any], **settings: Any) -> Tensor:
            variable = getter(**settings)
            name = variable.op.name
            if name not in variables:
                variables[name] = variable
                with graph.as_default():  # and not in the graph of a tf.cond or tf.map_fn
                    stand_ins[name] = tf.compat.v1.placeholder(variable.dtype, variable.shape)
            return stand_ins[name]

        with graph.as_default():
            features = {
                name: tf.compat.v1.placeholder(spec.dtype, spec.shape)
                for name, spec in specs.items()
            }
            arguments = {"labels": None, "mode": ModeKeys.PREDICT, **self._arguments}
            root = tf.compat.v1.get_variable_scope()
            with tf.compat.v1.variable_scope(root, custom_getter=with_stand_in):
                spec = call_by_names(self._model_fn, features, {"features": features, **arguments})
            predictions = _checked_predictions(spec, features)
            _call_scaffold(spec)
            initial = {name: variable.initial_value for name, variable in variables.items()}
        return _Built(graph, features, stand_ins, initial, predictions)


def _checked_predictions(spec: Any, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The predictions by name: a feature as it is, other tensors as tensors of their own."""
    predictions = getattr(spec, "predictions", None)
    if not isinstance(predictions, Mapping):
        raise ConfigError(
            f"the model_fn returned {spec!r:.200}; allowed: an EstimatorSpec or a TPUEstimatorSpec "
            "whose predictions are a dict of tensors"
        )
    for name, value in predictions.items():
        if isinstance(value, list | tuple):  # as a tensor it would have the list's length as rows
            raise ConfigError(
                f"prediction {name!r} of the model_fn is a list; allowed: a tensor [batch, …], as "
                "of tf.stack(…, axis=1)"
            )
    tensors = {name: tf.convert_to_tensor(value) for name, value in predictions.items()}
    for name, tensor in tensors.items():
        if tensor.shape.rank == 0:
            raise ConfigError(
                f"prediction {name!r} of the model_fn is a scalar; allowed: a tensor with a row "
                "for each example, [batch, …]"
            )
    inputs = {stand_in.ref() for stand_in in features.values()}
    return {n: t if t.ref() in inputs else tf.identity(t) for n, t in tensors.items()}


def _call_scaffold(spec: Any) -> None:
    """Lets a scaffold say which checkpoint the variables come from, as programs for TPUs do."""
    scaffold_fn = getattr(spec, "scaffold_fn", None)
    scaffold = scaffold_fn() if scaffold_fn else getattr(spec, "scaffold", None)
    for name in ("init_fn", "saver"):
        if getattr(scaffold, name, None):
            raise ConfigError(
                f"the scaffold of the model_fn has a {name}, which needs a session; read the "
                "checkpoint by tf.train.init_from_checkpoint"
            )


def _check_reads(needed: Mapping[str, tf.Operation]) -> None:
    """Refuses variables read as such, for only stand-ins get values, and tables."""
    read = sorted(op.name for op in needed.values() if op.type in ("VarHandleOp", "VariableV2"))
    if read:
        raise ConfigError(
            f"the predictions read the variables {some(read)}; compute with what "
            "tf.get_variable(name, shape) returns, not with tf.Variable or tf.trainable_variables()"
        )
    if tables := sorted(op.name for op in needed.values() if "HashTable" in op.type):
        raise ConfigError(
            f"the predictions look up in the tables {some(tables)}, which nothing fills here; for "
            "names of classes, use tf.gather(names, numbers), or look up in the results"
        )


def _stored(checkpoint: str, stand_ins: Mapping[str, Tensor]) -> list[np.ndarray]:
    """The values of variables in a checkpoint."""
    try:
        reader = tf.train.load_checkpoint(checkpoint)
    except (tf.errors.OpError, ValueError) as error:
        raise CheckpointError(f"cannot read {checkpoint}: {error}") from error
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    problems = []
    for name, stand_in in stand_ins.items():
        if name not in shapes:
            problems.append(f"{name} is missing")
        elif shapes[name] != stand_in.shape.as_list() or dtypes[name] != stand_in.dtype:
            stored = f"{dtypes[name].name} {shapes[name]}"
            problems.append(
                f"{name} is {stored}, the model_fn has {stand_in.dtype.name} "
                f"{stand_in.shape.as_list()}"
            )
    if problems:
        raise CheckpointError(
            f"{checkpoint} does not hold the variables of the model_fn: {some(problems, '; ')}"
        )
    return [np.asarray(reader.get_tensor(name)) for name in stand_ins]


def _initial(built: _Built, names: Sequence[str]) -> list[np.ndarray]:
    """The values that the model_fn gives its variables."""
    initial = {name: built.initial[name] for name in names}
    random = [
        name
        for name in names
        if all(op.type != "RestoreV2" for op in _ancestors([initial[name]]).values())
    ]
    if random:
        logger.warning(
            "no checkpoint was read into %d of the %d variables that the predictions depend on: %s",
            len(random),
            len(names),
            some(random),
        )
    compute = tf.function(lambda: _computed(built.graph, initial, []), autograph=False)
    with tf.device("CPU:0"):
        # Not a call: TensorFlow counts calls of functions that are made again and again, and warns.
        computed = compute.get_concrete_function()()
    return [computed[name].numpy() for name in names]


def _computed(
    graph: tf.Graph, fetches: Mapping[str, Tensor], feeds: Iterable[tuple[Tensor, Tensor]]
) -> Predictions:
    """Copies `fetches` of another graph into the current one; gives the copies by name.

    The feeds are pairs of a tensor of that graph and its replacement.
    """
    fed = {tensor.name: value for tensor, value in feeds}
    needed = _ancestors(fetches.values())
    taken = {tensor.name for operation in needed.values() for tensor in operation.inputs}
    stand_ins = {name.partition(":")[0] for name in fed}  # devices have no kernel for placeholders
    whole = graph.as_graph_def()
    part = tf.compat.v1.GraphDef(
        node=[n for n in whole.node if n.name in needed and n.name not in stand_ins],
        library=whole.library,
        versions=whole.versions,
    )
    for node in part.node:
        node.attr.pop("_class", None)  # colocation with a variable that is not copied
        inputs = [i for i in node.input if not (i[0] == "^" and i[1:] in stand_ins)]
        del node.input[:]
        node.input.extend(inputs)
    outputs = tf.graph_util.import_graph_def(
        part,
        input_map={name: value for name, value in fed.items() if name in taken},
        return_elements=[tensor.name for tensor in fetches.values()],
        name="model_fn",
    )
    return dict(zip(fetches, outputs, strict=True))


def _ancestors(tensors: Iterable[Tensor]) -> dict[str, tf.Operation]:
    """The operations that tensors depend on, by name."""
    ancestors: dict[str, tf.Operation] = {}
    waiting = [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation.name not in ancestors:
            ancestors[operation.name] = operation
            waiting += [tensor.op for tensor in operation.inputs]
            waiting += operation.control_inputs
    return ancestors
