"""Files of settings: by path, or by the name of one that comes with the package."""

from bert_features.config.extract_config import ExtractConfig


def test_the_tutorials_settings():
    config = ExtractConfig.load("pogiatzis", batch_size=64)
    assert (config.max_seq_length, config.batch_size) == (128, 64)
    (output,) = config.outputs
    assert (output.combine, output.layers) == ("sum", (-1, -2, -3, -4))


def test_a_file_of_that_name_comes_first_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pogiatzis").write_text("batch_size = 8\n")
    assert ExtractConfig.load("pogiatzis").batch_size == 8
    (tmp_path / "pogiatzis").unlink()
    (tmp_path / "pogiatzis").mkdir()
    assert ExtractConfig.load("pogiatzis").outputs[0].combine == "sum"
