"""Kinds of programs on google-research/bert, restated by their calls: tokens and numbers are right.

Import lines are those of docs/migrating.md; a docstring names what else a program has to change.
None is a copy: names of functions, and the order in which they are called, are facts.
"""

import collections
import queue
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow

from bert_features.official import extract_features, modeling, tokenization
from bert_features.official import tf1 as tf
from bert_features.official.model_fn import EstimatorSpec
from bert_features.official.tpu_estimator import OldEstimator as Estimator
from bert_features.official.tpu_estimator import OldRunConfig as RunConfig
from tests.official.programs import extract_features as script
from tests.reference.full_tokenizer import ReferenceTokenizer
from tests.reference.numpy_encoder import NumpyEncoder
from tests.reference.tf1_checkpoint import write_directory, write_tf1_checkpoint
from tests.toy import TOY, TOY_VOCAB, random_weights

pytestmark = pytest.mark.slow

TINY = TOY.model_copy(update={"num_hidden_layers": 2})
WEIGHTS = random_weights(TINY)
HEAD = np.random.default_rng(3).normal(size=(2, 8)).astype(np.float32)
ENCODER = NumpyEncoder(TINY, WEIGHTS)
REFERENCE = ReferenceTokenizer.from_tokens(TOY_VOCAB, lower=True)
TEXTS = ["Is this jack ?", "no it is not .", "a b"]
LENGTH = 10


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The paths and the objects that every program begins with."""
    folder = tmp_path_factory.mktemp("kinds") / "uncased_tiny"
    write_directory(folder, TINY, TOY_VOCAB, WEIGHTS, kind="tf1")
    return SimpleNamespace(
        vocab=f"{folder}/vocab.txt",
        checkpoint=f"{folder}/bert_model.ckpt",
        config=modeling.BertConfig.from_json_file(f"{folder}/bert_config.json"),
        tokenizer=tokenization.FullTokenizer(vocab_file=f"{folder}/vocab.txt", do_lower_case=True),
    )


def padded(rows, length=LENGTH):
    return np.array([row + [0] * (length - len(row)) for row in rows])


def rows_of(texts, tokenize=REFERENCE.tokenize, length=LENGTH):
    """The official ids, mask and token types of single texts, [B, S] each."""
    pieces = [["[CLS]", *tokenize(text)[: length - 2], "[SEP]"] for text in texts]
    ids = padded([[REFERENCE.vocab[piece] for piece in row] for row in pieces], length)
    mask = padded([[1] * len(row) for row in pieces], length)
    return ids, mask, np.zeros_like(ids)


IDS, MASK, TYPES = ROWS = rows_of(TEXTS)
STATES = ENCODER(*ROWS)
MEANS = np.stack(
    [state[row == 1].mean(axis=0) for state, row in zip(STATES[-1], MASK, strict=True)]
)


def close(got, wanted, atol=2e-5):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def restore(checkpoint):
    names, _ = modeling.get_assignment_map_from_checkpoint(tf.trainable_variables(), checkpoint)
    tf.train.init_from_checkpoint(checkpoint, names)


def placeholders(count=3, length=None):
    names = ("input_ids", "input_mask", "segment_ids")[:count]
    return [tf.placeholder(tf.int32, [None, length], name) for name in names]


def script_estimator(bert, batch_size=2):
    model_fn = script.model_fn_builder(bert.config, bert.checkpoint, [-1, -2], False, False)
    return tf.contrib.tpu.TPUEstimator(
        use_tpu=False,
        model_fn=model_fn,
        config=tf.contrib.tpu.RunConfig(),
        predict_batch_size=batch_size,
    )


def script_features(texts, tokenizer):
    examples = [script.InputExample(i, text, None) for i, text in enumerate(texts)]
    return script.convert_examples_to_features(examples, LENGTH, tokenizer)


WORKER_INPUTS = ["input_ids", "input_mask", "input_type_ids"]


def frozen_pooling(bert):
    """The graph of bert-as-service: the model, poolings of a layer, constants for variables."""
    with tf.Graph().as_default() as graph:
        tensors = [tf.placeholder(tf.int32, (None, None), name) for name in WORKER_INPUTS]
        input_ids, input_mask, input_type_ids = tensors
        model = modeling.BertModel(
            config=bert.config,
            is_training=False,
            input_ids=input_ids,
            input_mask=input_mask,
            token_type_ids=input_type_ids,
            use_one_hot_embeddings=False,
        )
        restore(bert.checkpoint)
        with tf.variable_scope("pooling"):
            layer = model.all_encoder_layers[-1]
            mask = tf.cast(input_mask, tf.float32)
            total = tf.reduce_sum(layer * tf.expand_dims(mask, axis=-1), axis=1)
            mean = total / (tf.reduce_sum(mask, axis=1, keepdims=True) + 1e-10)
            highest = tf.reduce_max(layer - tf.expand_dims(1.0 - mask, axis=-1) * 1e30, axis=1)
            first = tf.squeeze(layer[:, 0:1, :], axis=1)
            length = tf.cast(tf.reduce_sum(mask, axis=1), tf.int32)
            rows = tf.range(0, tf.shape(length)[0])
            last = tf.gather_nd(layer, tf.stack([rows, length - 1], 1))
        tf.stack([mean, highest, first, last], axis=1, name="final_encodes")
        graph_def = graph.as_graph_def()
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            session.run(tf.global_variables_initializer())
            return tf.graph_util.convert_variables_to_constants(
                session, graph_def, ["final_encodes"]
            )


POOLED = np.stack(
    [
        MEANS,
        [state[row == 1].max(axis=0) for state, row in zip(STATES[-1], MASK, strict=True)],
        STATES[-1][:, 0],
        STATES[-1][np.arange(3), MASK.sum(axis=1) - 1],
    ],
    axis=1,
)


def test_the_worker_of_bert_as_service(bert, tmp_path):
    """Change: `client_id` has a row for each text, for a feature has rows."""
    path = str(tmp_path / "graph.pb")
    with tf.gfile.GFile(path, "wb") as file:
        file.write(frozen_pooling(bert).SerializeToString())

    def model_fn(features, labels, mode, params):
        with tf.gfile.GFile(path, "rb") as file:
            graph_def = tf.GraphDef()
            graph_def.ParseFromString(file.read())
        inputs = {name + ":0": features[name] for name in WORKER_INPUTS}
        output = tf.import_graph_def(
            graph_def, input_map=inputs, return_elements=["final_encodes:0"]
        )
        predictions = {"client_id": features["client_id"], "encodes": output[0]}
        return EstimatorSpec(mode=mode, predictions=predictions)

    def gen():
        for client, part in ((b"one", slice(0, 2)), (b"two", slice(2, 3))):
            columns = dict(zip(WORKER_INPUTS, (rows[part] for rows in ROWS), strict=True))
            yield {"client_id": [client] * len(columns["input_ids"]), **columns}

    def input_fn():
        types = dict.fromkeys(WORKER_INPUTS, tf.int32) | {"client_id": tf.string}
        shapes = dict.fromkeys(WORKER_INPUTS, (None, None)) | {"client_id": (None,)}
        return tf.data.Dataset.from_generator(
            gen, output_types=types, output_shapes=shapes
        ).prefetch(10)

    config = tf.ConfigProto(device_count={"GPU": 0})
    config.gpu_options.allow_growth = True
    estimator = Estimator(model_fn=model_fn, config=RunConfig(session_config=config))
    one, two = estimator.predict(input_fn, yield_single_examples=False)
    assert (one["client_id"].tolist(), two["client_id"].tolist()) == ([b"one"] * 2, [b"two"])
    close(np.concatenate([one["encodes"], two["encodes"]]), POOLED)


def test_an_encoder_of_documents(bert):
    """A class with placeholders and a session, which tokenizes between two runs.

    Change: `with tf.Graph().as_default():`, or the line that enters a graph.
    """

    class Encoder:
        def __init__(self):
            self.inputs = placeholders(length=LENGTH)
            model = modeling.BertModel(bert.config, False, *self.inputs)
            restore(bert.checkpoint)
            self.output = model.get_sequence_output()
            self.tokenizer = tokenization.FullTokenizer(bert.vocab)
            self.session = tf.Session()
            self.session.run(tf.global_variables_initializer())

        def encode(self, texts):
            features = script_features(texts, self.tokenizer)
            names = ("input_ids", "input_mask", "input_type_ids")
            values = [[getattr(feature, name) for feature in features] for name in names]
            vectors = self.session.run(
                self.output, feed_dict=dict(zip(self.inputs, values, strict=True))
            )
            return [v[: len(f.tokens)].mean(0) for v, f in zip(vectors, features, strict=True)]

    with tf.Graph().as_default():
        encoder = Encoder()
        close(encoder.encode(TEXTS[:1]), MEANS[:1])
        close(encoder.encode(TEXTS[1:]), MEANS[1:])
        encoder.session.close()


def test_an_estimator_behind_a_queue(bert):
    """A thread predicts without end from a generator, which takes texts from a queue."""
    texts, vectors = queue.Queue(maxsize=1), queue.Queue(maxsize=1)

    def generate():
        while True:
            features = script_features(texts.get(), bert.tokenizer)
            yield {
                "unique_ids": [f.unique_id for f in features],
                "input_ids": [f.input_ids for f in features],
                "input_mask": [f.input_mask for f in features],
                "input_type_ids": [f.input_type_ids for f in features],
            }

    def input_fn():
        shapes = dict.fromkeys(["input_ids", "input_mask", "input_type_ids"], (None, LENGTH))
        types = dict.fromkeys([*shapes, "unique_ids"], tf.int32)
        return tf.data.Dataset.from_generator(generate, types, {**shapes, "unique_ids": (None,)})

    def predict():
        for result in script_estimator(bert).predict(input_fn, yield_single_examples=False):
            vectors.put(result)

    threading.Thread(target=predict, daemon=True).start()
    for part in (slice(0, 1), slice(1, 3)):
        texts.put(TEXTS[part])
        result = vectors.get(timeout=60)
        for vector, mask, wanted in zip(
            result["layer_output_0"], MASK[part], MEANS[part], strict=True
        ):
            close(vector[mask == 1].mean(axis=0), wanted)


def test_a_classifier_with_files_of_features(bert, tmp_path):
    """run_classifier.py's prediction. Changes: `shape[-1]`, and no import of `optimization`."""
    path = str(tmp_path / "predict.tf_record")
    writer = tf.python_io.TFRecordWriter(path)
    for feature in script_features(TEXTS, bert.tokenizer):
        columns = collections.OrderedDict()
        for name, values in (("input_ids", feature.input_ids), ("input_mask", feature.input_mask)):
            columns[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))
        example = tf.train.Example(features=tf.train.Features(feature=columns))
        writer.write(example.SerializeToString())
    writer.close()

    def decode(record, name_to_features):
        example = tf.parse_single_example(record, name_to_features)
        for name in list(example.keys()):
            example[name] = tf.to_int32(example[name])
        return example

    def input_fn(params):
        names = dict.fromkeys(["input_ids", "input_mask"], tf.FixedLenFeature([LENGTH], tf.int64))
        return tf.data.TFRecordDataset(path).apply(
            tf.contrib.data.map_and_batch(
                lambda record: decode(record, names),
                batch_size=params["batch_size"],
                drop_remainder=False,
            )
        )

    def model_fn(features, labels, mode, params):
        model = modeling.BertModel(
            config=bert.config,
            is_training=mode == tf.estimator.ModeKeys.TRAIN,
            input_ids=features["input_ids"],
            input_mask=features["input_mask"],
        )
        output_layer = model.get_pooled_output()
        output_weights = tf.get_variable(
            "output_weights",
            [2, output_layer.shape[-1]],
            initializer=tf.truncated_normal_initializer(stddev=0.02),
        )
        restore(bert.checkpoint)
        logits = tf.matmul(output_layer, output_weights, transpose_b=True)
        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, predictions={"probabilities": tf.nn.softmax(logits, axis=-1)}
        )

    # what the training would have left
    write_tf1_checkpoint(tmp_path / "model.ckpt", WEIGHTS, extra={"output_weights": HEAD})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"')
    run_config = tf.contrib.tpu.RunConfig(model_dir=str(tmp_path))
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn=model_fn, config=run_config, use_tpu=False, predict_batch_size=2
    )
    logits = ENCODER.pooled(STATES[-1]) @ HEAD.T
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    close([result["probabilities"] for result in estimator.predict(input_fn)], wanted)


def run(outputs, inputs, rows=ROWS):
    """Runs tensors of the current graph in a session; its variables begin as they are said to."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(outputs, dict(zip(inputs, rows, strict=False)))


def test_logits_of_spans(bert):
    """run_squad.py's model."""
    with tf.Graph().as_default():
        inputs = placeholders()
        final_hidden = modeling.BertModel(bert.config, False, *inputs).get_sequence_output()
        batch_size, seq_length, hidden_size = modeling.get_shape_list(final_hidden, expected_rank=3)
        weights = tf.get_variable(
            "cls/squad/output_weights", [2, hidden_size], initializer=tf.constant_initializer(HEAD)
        )
        matrix = tf.reshape(final_hidden, [batch_size * seq_length, hidden_size])
        logits = tf.reshape(
            tf.matmul(matrix, weights, transpose_b=True), [batch_size, seq_length, 2]
        )
        start, end = tf.unstack(tf.transpose(logits, [2, 0, 1]), axis=0)
        restore(bert.checkpoint)
        got = run([start, end], inputs)
    close(got, np.moveaxis(STATES[-1] @ HEAD.T, -1, 0))


NAMED = {
    "bert/pooler/dense/Tanh": ENCODER.pooled(STATES[-1]),
    "bert/encoder/Reshape_3": STATES[-1],
    "bert/encoder/layer_0/output/LayerNorm/batchnorm/add_1": STATES[1].reshape(-1, 8),
    "bert/embeddings/LayerNorm/batchnorm/add_1": STATES[0],
}


def test_a_graph_frozen_by_the_names_of_tensors(bert):
    """As OpenVINO's guide and programs for Java have it."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        inputs = placeholders()
        modeling.BertModel(bert.config, False, *inputs, use_one_hot_embeddings=False)
        tf.train.Saver().restore(session, bert.checkpoint)
        frozen = tf.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), list(NAMED)
        )
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(frozen, name="")
        feeds = dict(zip([tensor.name for tensor in inputs], ROWS, strict=True))
        for got, wanted in zip(
            session.run([f"{name}:0" for name in NAMED], feeds), NAMED.values(), strict=True
        ):
            close(got, wanted)


@pytest.mark.release
def test_two_towers(bert):
    """Models of pairs of sentences with the same weights, and their cosine."""
    with tf.Graph().as_default():
        inputs = placeholders(2)
        vectors = []
        for half in (0, 1):
            with tf.variable_scope("", reuse=tf.AUTO_REUSE):
                ids, mask = (tensor[half::2] for tensor in inputs)
                model = modeling.BertModel(bert.config, False, ids, mask, scope="bert")
            real = tf.cast(mask, tf.float32)[:, :, None]
            total = tf.reduce_sum(model.get_sequence_output() * real, axis=1)
            vectors.append(tf.nn.l2_normalize(total, axis=-1))
        restore(bert.checkpoint)
        cosine = run(tf.reduce_sum(vectors[0] * vectors[1], axis=-1), inputs, [IDS[:2], MASK[:2]])
    a, b = MEANS[:2]
    close(cosine, [a @ b / np.linalg.norm(a) / np.linalg.norm(b)])


class CharTokenizer(tokenization.FullTokenizer):
    """Letters, as programs for Chinese have it."""

    def tokenize(self, text):
        words = (w for word in self.basic_tokenizer.tokenize(text) for w in word)
        return [piece for word in words for piece in self.wordpiece_tokenizer.tokenize(word)]


class KeptTokenizer(tokenization.BasicTokenizer):
    """Words that punctuation does not split, as programs for special tokens have it."""

    def _run_split_on_punc(self, text):
        return [text.upper()] if text == "[mask]" else super()._run_split_on_punc(text)


def by_letters(bert):
    return CharTokenizer(bert.vocab)


def with_kept_words(bert):
    tokenizer = tokenization.FullTokenizer(bert.vocab)
    tokenizer.basic_tokenizer = KeptTokenizer(do_lower_case=True)
    return tokenizer


def letters(text):
    return [piece for letter in text.replace(" ", "") for piece in REFERENCE.tokenize(letter)]


def kept(text):
    parts = text.split("[MASK]")
    pieces = [[*REFERENCE.tokenize(part), "[MASK]"] for part in parts]
    return [piece for part in pieces for piece in part][:-1]


@pytest.mark.parametrize(
    ("make", "tokenize", "texts"),
    [(by_letters, letters, ["ab ba.", "A?"]), (with_kept_words, kept, ["is [MASK] jackson?", "b"])],
)
@pytest.mark.parametrize("module", [script, extract_features])
def test_a_tokenizer_of_its_own(bert, module, make, tokenize, texts):
    """Through the program's own features, and through those of the package."""
    examples = [module.InputExample(i, text, None) for i, text in enumerate(texts)]
    features = module.convert_examples_to_features(examples, LENGTH, make(bert))
    for name, rows in zip(WORKER_INPUTS, rows_of(texts, tokenize), strict=True):
        assert [getattr(feature, name) for feature in features] == rows.tolist()


def test_an_iterator_in_a_session(bert):
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(ROWS).batch(2)
        ids, mask, types = tf.data.make_one_shot_iterator(dataset).get_next()
        model = modeling.BertModel(bert.config, False, ids, mask, types)
        output = model.get_pooled_output()
        restore(bert.checkpoint)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            batches = [session.run(output) for _ in range(2)]
    close(np.concatenate(batches), ENCODER.pooled(STATES[-1]))


@pytest.mark.release
def test_a_saved_model(bert, tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = dict(zip(WORKER_INPUTS, placeholders(), strict=True))
        model = modeling.BertModel(bert.config, False, *inputs.values())
        tf.train.Saver().restore(session, bert.checkpoint)
        tf.saved_model.simple_save(
            session, str(tmp_path / "model"), inputs, {"pooled": model.get_pooled_output()}
        )
    loaded = tensorflow.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    rows = [tensorflow.constant(row, tensorflow.int32) for row in ROWS]
    got = loaded(**dict(zip(WORKER_INPUTS, rows, strict=True)))
    close(got["pooled"], ENCODER.pooled(STATES[-1]))
