"""The tutorial's program (Pogiatzis, features from BERT on a Cloud TPU), restated.

A notebook of one file: LAYERS and the paths at the top, the script's functions, and `get_features`,
which returns a dict from token to the sum of the layers. Only the lines of imports differ from what
a notebook of that time has.
"""

import collections

import numpy as np

from bert_features.official import modeling, tokenization
from bert_features.official import tf1 as tf
from tests.official.programs.extract_features import (
    InputExample,
    convert_examples_to_features,
    input_fn_builder,
    model_fn_builder,
)

LAYERS = [-1, -2, -3, -4]
NUM_TPU_CORES = 8
MAX_SEQ_LENGTH = 48
BATCH_SIZE = 128
TPU_ADDRESS = "grpc://10.0.0.2:8470"
BERT_PRETRAINED_DIR = "uncased_L-12_H-768_A-12"


def read_sequence(input_sentences):
    examples = []
    for unique_id, sentence in enumerate(input_sentences):
        line = tokenization.convert_to_unicode(sentence)
        examples.append(InputExample(unique_id=unique_id, text_a=line, text_b=None))
    return examples


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
