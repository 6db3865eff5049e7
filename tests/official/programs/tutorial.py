"""The tutorial's program (Pogiatzis, features from BERT on a Cloud TPU), restated.

A notebook of one file: LAYERS and the paths at the top, converters, `input_fn_builder`,
`model_fn_builder`, and `get_features`, which returns a dict from token to the sum of the layers.
Only the lines of imports differ from what a notebook of that time has.
"""

import collections

import numpy as np

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf

LAYERS = [-1, -2, -3, -4]
NUM_TPU_CORES = 8
MAX_SEQ_LENGTH = 48
BATCH_SIZE = 128
TPU_ADDRESS = "grpc://10.0.0.2:8470"
BERT_PRETRAINED_DIR = "uncased_L-12_H-768_A-12"


class InputExample(object):  # noqa: UP004
    def __init__(self, unique_id, text_a, text_b=None):
        self.unique_id = unique_id
        self.text_a = text_a
        self.text_b = text_b


class InputFeatures(object):  # noqa: UP004
    def __init__(self, unique_id, tokens, input_ids, input_mask, input_type_ids):
        self.unique_id = unique_id
        self.tokens = tokens
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.input_type_ids = input_type_ids


def read_sequence(input_sentences):
    examples = []
    for unique_id, sentence in enumerate(input_sentences):
        line = tokenization.convert_to_unicode(sentence)
        examples.append(InputExample(unique_id=unique_id, text_a=line))
    return examples


def convert_examples_to_features(examples, seq_length, tokenizer):
    features = []
    for example in examples:
        tokens_a = tokenizer.tokenize(example.text_a)
        if len(tokens_a) > seq_length - 2:
            tokens_a = tokens_a[0 : (seq_length - 2)]
        tokens, input_type_ids = ["[CLS]"], [0]
        for token in tokens_a:
            tokens.append(token)
            input_type_ids.append(0)
        tokens.append("[SEP]")
        input_type_ids.append(0)
        input_ids = tokenizer.convert_tokens_to_ids(tokens)
        input_mask = [1] * len(input_ids)
        while len(input_ids) < seq_length:
            input_ids.append(0)
            input_mask.append(0)
            input_type_ids.append(0)
        features.append(
            InputFeatures(
                unique_id=example.unique_id,
                tokens=tokens,
                input_ids=input_ids,
                input_mask=input_mask,
                input_type_ids=input_type_ids,
            )
        )
    return features


def input_fn_builder(features, seq_length):
    all_unique_ids, all_input_ids, all_input_mask, all_input_type_ids = [], [], [], []
    for feature in features:
        all_unique_ids.append(feature.unique_id)
        all_input_ids.append(feature.input_ids)
        all_input_mask.append(feature.input_mask)
        all_input_type_ids.append(feature.input_type_ids)

    def input_fn(params):
        shape = [len(features), seq_length]
        columns = {
            "unique_ids": tf.constant(all_unique_ids, shape=shape[:1], dtype=tf.int32),
            "input_ids": tf.constant(all_input_ids, shape=shape, dtype=tf.int32),
            "input_mask": tf.constant(all_input_mask, shape=shape, dtype=tf.int32),
            "input_type_ids": tf.constant(all_input_type_ids, shape=shape, dtype=tf.int32),
        }
        d = tf.data.Dataset.from_tensor_slices(columns)
        return d.batch(batch_size=params["batch_size"], drop_remainder=False)

    return input_fn


def model_fn_builder(bert_config, init_checkpoint, layer_indexes, use_tpu, use_one_hot_embeddings):
    def model_fn(features, labels, mode, params):
        model = modeling.BertModel(
            config=bert_config,
            is_training=False,
            input_ids=features["input_ids"],
            input_mask=features["input_mask"],
            token_type_ids=features["input_type_ids"],
            use_one_hot_embeddings=use_one_hot_embeddings,
        )
        if mode != tf.estimator.ModeKeys.PREDICT:
            raise ValueError(f"Only PREDICT modes are supported: {mode}")
        tvars = tf.trainable_variables()
        scaffold_fn = None
        assignment_map, _ = modeling.get_assignment_map_from_checkpoint(tvars, init_checkpoint)
        if use_tpu:

            def tpu_scaffold():
                tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
                return tf.train.Scaffold()

            scaffold_fn = tpu_scaffold
        else:
            tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
        all_layers = model.get_all_encoder_layers()
        predictions = {"unique_id": features["unique_ids"]}
        for i, layer_index in enumerate(layer_indexes):
            predictions[f"layer_output_{i}"] = all_layers[layer_index]
        return tf.contrib.tpu.TPUEstimatorSpec(
            mode=mode, predictions=predictions, scaffold_fn=scaffold_fn
        )

    return model_fn


def get_features(input_text, dim=768):
    bert_config = modeling.BertConfig.from_json_file(BERT_PRETRAINED_DIR + "/bert_config.json")
    tokenizer = tokenization.FullTokenizer(
        vocab_file=BERT_PRETRAINED_DIR + "/vocab.txt", do_lower_case=True
    )
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    tpu_cluster_resolver = tf.contrib.cluster_resolver.TPUClusterResolver(TPU_ADDRESS)
    run_config = tf.contrib.tpu.RunConfig(
        cluster=tpu_cluster_resolver,
        tpu_config=tf.contrib.tpu.TPUConfig(
            num_shards=NUM_TPU_CORES, per_host_input_for_training=is_per_host
        ),
    )
    examples = read_sequence(input_text)
    features = convert_examples_to_features(
        examples=examples, seq_length=MAX_SEQ_LENGTH, tokenizer=tokenizer
    )
    unique_id_to_feature = {feature.unique_id: feature for feature in features}
    model_fn = model_fn_builder(
        bert_config=bert_config,
        init_checkpoint=BERT_PRETRAINED_DIR + "/bert_model.ckpt",
        layer_indexes=LAYERS,
        use_tpu=True,
        use_one_hot_embeddings=True,
    )
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=True,
        model_fn=model_fn,
        config=run_config,
        predict_batch_size=BATCH_SIZE,
        train_batch_size=BATCH_SIZE,
    )
    input_fn = input_fn_builder(features=features, seq_length=MAX_SEQ_LENGTH)

    outputs = []
    for result in estimator.predict(input_fn, yield_single_examples=True):
        feature = unique_id_to_feature[int(result["unique_id"])]
        output = collections.OrderedDict()
        for i, token in enumerate(feature.tokens):
            layers = []
            for j in range(len(LAYERS)):
                layer_output = result[f"layer_output_{j}"]
                layers.append(np.array(list(layer_output[i : (i + 1)].flat)))
            output[token] = sum(layers)[:dim]
        outputs.append(output)
    return outputs
