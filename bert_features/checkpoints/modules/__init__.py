"""What folders of sentence-transformers hold beside the encoder: settings and dense layers."""
