"""Exports that are refused, and those of checkpoints that lack something."""

import pytest

from bert_features import export_savedmodel, find_checkpoint, load_export
from bert_features.errors import CheckpointError, ConfigError, OutputError
from bert_features.export.checks import Options, check_before, check_source
from tests.reference.sentence_transformers_folder import write_settings
from tests.reference.tf1_checkpoint import write_directory
from tests.toy import TOY, TOY_VOCAB

MEAN = {"name": "mean", "level": "sequence", "layers": [-1], "special_tokens": False}
LAST = {"name": "last", "layers": [-1]}


@pytest.mark.slow
def test_ids_without_a_vocabulary_and_a_pooler(no_pooler, tmp_path, batch, caplog):
    pooled = {"level": "sequence", "pooling": "pooler"}
    with pytest.raises(CheckpointError, match="has no pooler"):
        export_savedmodel(tmp_path / "y", checkpoint=no_pooler, outputs=[pooled])
    (no_pooler / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"no vocab\.txt beside"):
        export_savedmodel(tmp_path / "y", checkpoint=no_pooler, layers=[0])
    of_ids = {"signature": "ids", "checkpoint": no_pooler}
    with pytest.raises(ConfigError, match="output 'mean' leaves out"):
        export_savedmodel(tmp_path / "y", outputs=[MEAN], **of_ids)
    with pytest.raises(CheckpointError, match="no pooler weights"):
        export_savedmodel(tmp_path / "y", **of_ids)
    caplog.clear()
    export = export_savedmodel(tmp_path / "x", outputs=[LAST], **of_ids)
    assert "the export does not record the vocabulary and casing" in caplog.text
    assert "has no pooler weights: the export has no pooled_output and no default" in caplog.text
    assert {p.name for p in (export / "assets").iterdir()} == {"bert_config.json"}
    loaded = load_export(export)
    assert loaded.outputs == ("encoder_outputs", "last", "sequence_output")
    assert loaded(batch, "last").shape == (3, 9, 8)


def test_an_existing_directory_is_kept(toy, toy_text, tmp_path):
    to = tmp_path / "x"
    to.mkdir()
    (to / "precious").write_text("data")
    with pytest.raises(OutputError, match="overwrite"):
        export_savedmodel(to, checkpoint=toy)
    with pytest.raises(OutputError, match="x holds no SavedModel"):
        export_savedmodel(to, checkpoint=toy, overwrite=True)
    (to / "precious").rename(tmp_path / "file")
    with pytest.raises(OutputError, match="file is not a directory"):
        export_savedmodel(tmp_path / "file", checkpoint=toy, overwrite=True)
    with pytest.raises(OutputError, match="the checkpoint's weights"):
        export_savedmodel(toy_text, checkpoint=toy_text, overwrite=True)
    assert (tmp_path / "file").read_text() == "data"


PROMPTED = {"prompts": {"q": "this is "}, "default_prompt_name": "q"}
AUTO = {"name": "s", "level": "sequence", "pooling": "auto"}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("uncased", {**PROMPTED, "do_lower_case": True}, "puts the prompt 'this is ' before each"),
        ("cased", {"do_lower_case": True}, "lower-cases each text but keeps its accents"),
        ("cased", {**PROMPTED, "do_lower_case": True}, "each text and lower-cases each text but"),
    ],
)
def test_what_auto_does_to_texts_is_refused_or_said(
    tmp_path, weights, caplog, name, settings, message
):
    folder = write_directory(tmp_path / f"toy-{name}", TOY, TOY_VOCAB, weights)
    write_settings(folder, **settings)
    wanted = {"checkpoint": str(folder), "outputs": [AUTO]}
    refused = rf"^pooling 'auto' of .*{message}.* cannot do; .* pass signature='ids'$"
    with pytest.raises(ConfigError, match=refused):
        check_before(tmp_path / "x", signature="text", **wanted)
    with pytest.raises(ConfigError, match=refused):
        export_savedmodel(tmp_path / "x", **wanted)
    assert not caplog.records
    ids = Options(signature="ids", outputs=[AUTO])
    check_source(find_checkpoint(folder), ids)  # as each export does
    (record,) = caplog.records
    assert message in record.getMessage()
    assert "so do that before you tokenise" in record.getMessage()
    # Another pooling leaves the texts as they are.
    check_before(tmp_path / "y", signature="text", checkpoint=str(folder), outputs=[MEAN])
