"""Names of other things than weights: optimizers, buffers, settings; and of heads in TF2 alone."""

import re

# Matched from the start of a name, whatever its prefix.
IGNORED: dict[str, re.Pattern[str]] = {
    # Slots and counters of the optimizers that trained BERT checkpoints.
    "optimizer": re.compile(
        r".*/(adam_m|adam_v|adam|adam_\d+|adamweightdecay\w*|lamb\w*|exponentialmovingaverage)$"
        r"|(.*/)?(global_step|beta1_power|beta2_power|bad_steps|good_steps|loss_scale"
        r"|current_loss_scale|save_counter)$",
        re.IGNORECASE,
    ),
    # Buffers that Hugging Face models carry: constants, not weights.
    "buffer": re.compile(
        r"(.*\.)?(embeddings\.(position_ids|token_type_ids)|rotary_emb\.\w*inv_freq)$"
    ),
}

# The same for a TF2 checkpoint. Its names are names of variables, or their paths in the objects of
# the program that was saved.
IGNORED_OBJECTS: dict[str, re.Pattern[str]] = {
    "optimizer": re.compile(
        r"(.*/)?(optimizer|_optimizer)/|.*/\.OPTIMIZER_SLOT/"
        r"|(.*/)?(save_counter|global_step|iter|learning_rate|decay|beta_[12]|loss_scale)$"
    ),
    # The casing of texts; and the metrics of a compiled Keras model.
    "setting": re.compile(r"(do_lower_case|total|count)$|(.*/)?keras_api/"),
    "head": re.compile(
        r"(.*/)?(cls|mlm|masked_lm|predictions|classification|classifier|classification_head\w*"
        r"|sentence_prediction|next_sentence[^/]*|span_labeling|start_end_logits|logits)(/|$)"
    ),
}
