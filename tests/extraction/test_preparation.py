"""Preparation: the settings of a run, resolved."""

import pytest

from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError
from bert_features.extraction import preparation as preparation_module
from bert_features.extraction.preparation import Preparation


@pytest.mark.parametrize(("cores", "tokens"), [(1, 1024), (2, 1024), (4, 2048), (64, 2048)])
def test_a_batch_on_a_cpu_has_512_tokens_for_each_core(toy, monkeypatch, cores, tokens):
    """1,024 to 2,048 in all, unless the settings give another number."""
    monkeypatch.setattr(preparation_module, "cores", lambda: cores)
    settings = {"checkpoint": toy, "layers": (-1,)}
    assert Preparation(ExtractConfig.of(settings)).batch_params()["batch_tokens"] == tokens
    params = Preparation(ExtractConfig.of({**settings, "batch_tokens": 70})).batch_params()
    assert params["batch_tokens"] == 70


@pytest.mark.parametrize(
    ("given", "tokens"), [({"batch_tokens": 70}, 70), ({"batch_size": 4, "max_seq_length": 8}, 32)]
)
def test_the_tokens_of_a_full_batch(toy, given, tokens):
    settings = {"checkpoint": toy, "layers": (-1,), **given}
    assert Preparation(ExtractConfig.of(settings)).tokens_of_batch == tokens


def test_a_scale_file_is_found_wherever_the_run_goes(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"checkpoint": toy, "layers": (-1,), "level": "sequence", "dtype": "int8"}
    for given, expected in (("f.npz", str(tmp_path / "f.npz")), ("10", "10")):
        made = Preparation(ExtractConfig.of({**settings, "scale_from": given}))
        assert [output.scale_from for output in made.outputs] == [expected]


def test_some_of_the_outputs_have_their_own_settings(toy):
    """Words take no prompt; a sequence beside them does once it is alone."""
    outputs = [{"name": "w", "level": "word"}, {"name": "s", "level": "sequence"}]
    settings = {"checkpoint": toy, "layers": (-1,), "outputs": outputs}
    both = Preparation(ExtractConfig.of(settings))
    both.with_outputs(["s"]).prompts.put_before(lambda: [], "this ")
    for names in (["w"], ["w", "s"]):
        with pytest.raises(ConfigError, match=r"level 'word' .* prompt"):
            both.with_outputs(names).prompts.put_before(lambda: [], "this ")
