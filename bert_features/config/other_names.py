"""Names of transformers, sentence-transformers, flair, KerasHub and bert-as-service, tried here."""

# What is meant -> the names there.
_MEANT = {
    "checkpoint": "model_name_or_path pretrained_model_name_or_path preset",
    "checkpoint hf:NAME@REVISION": "revision",
    "the environment variable BERT_FEATURES_CACHE or HF_HOME": "cache_dir cache_folder",
    "layers='embeddings,all'": "output_hidden_states",
    "layers": "pooling_layer",
    "kind='attention'": "output_attentions",
    "level='token'": "output_value",
    "combine='mean'": "layer_mean",
    "long_text": "truncation allow_long_sentences",
    "normalize": "normalize_embeddings",
    "dim": "truncate_dim",
    "'do_lower_case'": "uncased cased",
    "precision": "torch_dtype",
    "lists of words": "is_tokenized is_split_into_words",
    "extractor(texts)[0].tokens": "show_tokens tokenize",
    "show_progress": "show_progress_bar",
    "encode": "embed predict",
    "outputs[0].width": "get_sentence_embedding_dimension embedding_length",
    "FeatureExtractor.from_checkpoint": "SentenceTransformer AutoModel BertModel from_pretrained "
    "TransformerWordEmbeddings TransformerDocumentEmbeddings BertBackbone",
    "FullTokenizer": "AutoTokenizer BertTokenizer BertTokenizerFast",
    "Client('http://HOST:8000')": "BertClient ConcurrentBertClient ip port port_out",
    "ThreadPoolExecutor().submit(client.encode, texts)": "encode_async fetch fetch_all blocking",
    "info()": "server_status server_config",
    "to leave it out": "padding return_tensors convert_to_tensor convert_to_numpy output_fmt "
    "tokenizer use_context trust_remote_code check_version check_length",
}
OTHER_NAMES = {name: meant for meant, names in _MEANT.items() for name in names.split()}


def hint_of(name: str) -> str:
    """`did you mean A?`; empty if it is no name of another library."""
    meant = OTHER_NAMES.get(name)
    return f"did you mean {meant}?" if meant else ""
