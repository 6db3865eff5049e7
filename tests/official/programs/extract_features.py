"""The program of google-research/bert's extract_features.py, restated: its calls, in its order.

Only the first lines of imports differ from what the original has (`import modeling`,
`import tokenization`, `import tensorflow as tf`). It is written from the calls that the
original makes and is not a copy of it.
"""

import codecs
import collections
import json
import re

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "The texts.")
flags.DEFINE_string("output_file", None, "The features.")
flags.DEFINE_string("layers", "-1,-2,-3,-4", "The blocks.")
flags.DEFINE_string("bert_config_file", None, "The architecture.")
flags.DEFINE_integer("max_seq_length", 128, "The length of every row.")
flags.DEFINE_string("init_checkpoint", None, "The weights.")
flags.DEFINE_string("vocab_file", None, "The vocabulary.")
flags.DEFINE_bool("do_lower_case", True, "Whether the model is uncased.")
flags.DEFINE_integer("batch_size", 32, "Rows of a batch.")
flags.DEFINE_bool("use_tpu", False, "Whether to use a TPU.")
flags.DEFINE_string("master", None, "The address of the TPU.")
flags.DEFINE_integer("num_tpu_cores", 8, "Its number of cores.")
flags.DEFINE_bool("use_one_hot_embeddings", False, "How words are looked up.")


class InputExample:
    def __init__(self, unique_id, text_a, text_b):
        self.unique_id = unique_id
        self.text_a = text_a
        self.text_b = text_b


class InputFeatures:
    def __init__(self, unique_id, tokens, input_ids, input_mask, input_type_ids):
        self.unique_id = unique_id
        self.tokens = tokens
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.input_type_ids = input_type_ids


def input_fn_builder(features, seq_length):
    names = ("unique_id", "input_ids", "input_mask", "input_type_ids")
    columns = {name: [getattr(feature, name) for feature in features] for name in names}

    def input_fn(params):
        batch_size = params["batch_size"]
        count = len(features)

        def matrix(name):
            return tf.constant(columns[name], shape=[count, seq_length], dtype=tf.int32)

        d = tf.data.Dataset.from_tensor_slices(
            {
                "unique_ids": tf.constant(columns["unique_id"], shape=[count], dtype=tf.int32),
                "input_ids": matrix("input_ids"),
                "input_mask": matrix("input_mask"),
                "input_type_ids": matrix("input_type_ids"),
            }
        )
        return d.batch(batch_size=batch_size, drop_remainder=False)

    return input_fn


def model_fn_builder(bert_config, init_checkpoint, layer_indexes, use_tpu, use_one_hot_embeddings):
    def model_fn(features, labels, mode, params):
        unique_ids = features["unique_ids"]
        model = modeling.BertModel(
            config=bert_config,
            is_training=False,
            input_ids=features["input_ids"],
            input_mask=features["input_mask"],
            token_type_ids=features["input_type_ids"],
            use_one_hot_embeddings=use_one_hot_embeddings,
        )
        if mode != tf.estimator.ModeKeys.PREDICT:
            raise ValueError("Only PREDICT modes are supported: %s" % (mode))  # noqa: UP031

        tvars = tf.trainable_variables()
        scaffold_fn = None
        (assignment_map, initialized_variable_names) = modeling.get_assignment_map_from_checkpoint(
            tvars, init_checkpoint
        )
        if use_tpu:

            def tpu_scaffold():
                tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
                return tf.train.Scaffold()

            scaffold_fn = tpu_scaffold
        else:
            tf.train.init_from_checkpoint(init_checkpoint, assignment_map)

        tf.logging.info("**** Trainable Variables ****")
        for var in tvars:
            init_string = ""
            if var.name in initialized_variable_names:
                init_string = ", *INIT_FROM_CKPT*"
            tf.logging.info("  name = %s, shape = %s%s", var.name, var.shape, init_string)

        all_layers = model.get_all_encoder_layers()
        predictions = {"unique_id": unique_ids}
        for i, layer_index in enumerate(layer_indexes):
            predictions["layer_output_%d" % i] = all_layers[layer_index]  # noqa: UP031
        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, predictions=predictions, scaffold_fn=scaffold_fn
        )

    return model_fn


def convert_examples_to_features(examples, seq_length, tokenizer):
    features = []
    for ex_index, example in enumerate(examples):
        tokens_a = tokenizer.tokenize(example.text_a)
        tokens_b = None
        if example.text_b:
            tokens_b = tokenizer.tokenize(example.text_b)
        if tokens_b:
            while len(tokens_a) + len(tokens_b) > seq_length - 3:
                longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
                longer.pop()
        else:
            tokens_a = tokens_a[: seq_length - 2]

        tokens = ["[CLS]", *tokens_a, "[SEP]"]
        input_type_ids = [0] * len(tokens)
        if tokens_b:
            tokens += [*tokens_b, "[SEP]"]
            input_type_ids += [1] * (len(tokens_b) + 1)
        input_ids = tokenizer.convert_tokens_to_ids(tokens)
        input_mask = [1] * len(input_ids)
        while len(input_ids) < seq_length:
            input_ids.append(0)
            input_mask.append(0)
            input_type_ids.append(0)

        if ex_index < 5:
            tf.logging.info("*** Example ***")
            printed = [tokenization.printable_text(token) for token in tokens]
            tf.logging.info("tokens: %s" % " ".join(printed))  # noqa: UP031
        features.append(
            InputFeatures(example.unique_id, tokens, input_ids, input_mask, input_type_ids)
        )
    return features


def read_examples(input_file):
    examples = []
    unique_id = 0
    with tf.gfile.GFile(input_file, "r") as reader:
        while True:
            line = tokenization.convert_to_unicode(reader.readline())
            if not line:
                break
            line = line.strip()
            text_a, text_b = line, None
            m = re.match(r"^(.*) \|\|\| (.*)$", line)
            if m is not None:
                text_a, text_b = m.group(1), m.group(2)
            examples.append(InputExample(unique_id=unique_id, text_a=text_a, text_b=text_b))
            unique_id += 1
    return examples


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    layer_indexes = [int(x) for x in FLAGS.layers.split(",")]
    bert_config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
    tokenizer = tokenization.FullTokenizer(
        vocab_file=FLAGS.vocab_file, do_lower_case=FLAGS.do_lower_case
    )
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    run_config = tf.contrib.tpu.RunConfig(
        master=FLAGS.master,
        tpu_config=tf.contrib.tpu.TPUConfig(
            num_shards=FLAGS.num_tpu_cores, per_host_input_for_training=is_per_host
        ),
    )
    examples = read_examples(FLAGS.input_file)
    features = convert_examples_to_features(
        examples=examples, seq_length=FLAGS.max_seq_length, tokenizer=tokenizer
    )
    unique_id_to_feature = {}
    for feature in features:
        unique_id_to_feature[feature.unique_id] = feature

    model_fn = model_fn_builder(
        bert_config=bert_config,
        init_checkpoint=FLAGS.init_checkpoint,
        layer_indexes=layer_indexes,
        use_tpu=FLAGS.use_tpu,
        use_one_hot_embeddings=FLAGS.use_one_hot_embeddings,
    )
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn,
        config=run_config,
        predict_batch_size=FLAGS.batch_size,
    )
    input_fn = input_fn_builder(features=features, seq_length=FLAGS.max_seq_length)

    with codecs.getwriter("utf-8")(tf.gfile.Open(FLAGS.output_file, "w")) as writer:
        for result in estimator.predict(input_fn, yield_single_examples=True):
            unique_id = int(result["unique_id"])
            feature = unique_id_to_feature[unique_id]
            output_json = collections.OrderedDict()
            output_json["linex_index"] = unique_id
            all_features = []
            for i, token in enumerate(feature.tokens):
                all_layers = []
                for j, layer_index in enumerate(layer_indexes):
                    layer_output = result["layer_output_%d" % j]  # noqa: UP031
                    layers = collections.OrderedDict()
                    layers["index"] = layer_index
                    layers["values"] = [round(float(x), 6) for x in layer_output[i : (i + 1)].flat]
                    all_layers.append(layers)
                of_token = collections.OrderedDict()
                of_token["token"] = token
                of_token["layers"] = all_layers
                all_features.append(of_token)
            output_json["features"] = all_features
            writer.write(json.dumps(output_json) + "\n")


if __name__ == "__main__":
    for name in ("input_file", "vocab_file", "bert_config_file", "init_checkpoint", "output_file"):
        flags.mark_flag_as_required(name)
    tf.app.run()
