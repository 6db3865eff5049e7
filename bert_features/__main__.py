"""`python -m bert_features` is `bert-features`."""

from bert_features.cli import main

main()
