"""Names of topologies."""

import pytest

from bert_features.errors import ConfigError
from bert_features.tpu.chips import parse_topology


@pytest.mark.parametrize("name", ["v9:2x2", "v5e", "v5e:0x2", "v5e:2", "v5e:2x2x2x2", "", "cpu"])
def test_unknown_topologies(name):
    with pytest.raises(ConfigError, match="unknown topology"):
        parse_topology(name)


def test_topologies():
    topology = parse_topology("v4:2x2x4")
    assert (topology.chips, topology.compiler_name) == (16, "v4:2x2x4")
    assert parse_topology("v4i:2x2").compiler_name == "v4 lite:2x2"
