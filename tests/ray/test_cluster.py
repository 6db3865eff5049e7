"""What a run asks of a Ray cluster, and the clusters that it refuses."""

import socket
import sys

import pytest

from bert_features.config.ray_settings import RaySettings
from bert_features.errors import ConfigError, DeviceError, MissingExtraError
from bert_features.ray import cluster
from bert_features.ray.cluster import actor_options, check_answers, resources_of_actors


class Nodes:
    """Stands for the module `ray`, connected to nodes with these resources."""

    def __init__(self, *resources, dead=()):
        self._nodes = [{"Alive": True, "Resources": r} for r in resources]
        self._nodes += [{"Alive": False, "Resources": r} for r in dead]

    def nodes(self):
        return self._nodes


HEAD, HOST = {"CPU": 4.0}, {"CPU": 112.0, "TPU": 4.0}
GPUS = {"CPU": 16.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("nodes", "device", "needed"),
    [
        (Nodes(HEAD, HOST, HOST), "auto", {"TPU": 4}),
        (Nodes(HEAD, GPUS), "auto", {"GPU": 1}),
        (Nodes(HEAD, GPUS), "cpu", {"CPU": 4}),
        (Nodes({"CPU": 112.0}), "auto", {"CPU": 8}),
        (Nodes({"CPU": 112.0}, dead=[HOST]), "auto", {"CPU": 8}),
        (Nodes({}), "auto", {"CPU": 1}),
    ],
)
def test_an_actor_gets_what_its_device_is(nodes, device, needed):
    assert resources_of_actors(nodes, RaySettings("auto"), device) == needed


def test_a_device_that_no_node_has_needs_its_amount():
    with pytest.raises(ConfigError, match=r"no node .*TPU=1"):
        resources_of_actors(Nodes(HEAD), RaySettings("auto"), "tpu")
    settings = RaySettings.parse("auto", resources="TPU=4")
    assert resources_of_actors(Nodes(HEAD), settings, "tpu") == {"TPU": 4}


def test_tpus_are_resources_of_rays_own_names():
    options = actor_options({"TPU": 4, "CPU": 2})
    assert options["resources"] == {"TPU": 4}
    assert (options["num_cpus"], options["num_gpus"], options["max_restarts"]) == (2, 0, 0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "The actor died unexpectedly before finishing this task.\n\tpid: 7\n"
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
            "the Ray actor died because its worker process has died",
        ),
        (
            "The actor died unexpectedly.\n\tip: 10.0.0.1\nThe actor died because its node has "
            "died. Node Id: 17",
            "the Ray actor died because its node has died (node 10.0.0.1)",
        ),
        (
            "The actor died because of an error raised in its creation task, ray::A.__init__() "
            "(pid=1, ip=10.0.0.1, actor_id=2)\nRuntimeError: The actor failed to import.\n\n"
            "ray::A.__init__() (pid=1, ip=10.0.0.1)\nModuleNotFoundError: No module named 'a'",
            "ModuleNotFoundError: No module named 'a' (node 10.0.0.1)",
        ),
        ("failure: Traceback (most recent):\n  File 1\nRuntimeError: no", "RuntimeError: no"),
        ("", "RuntimeError"),
    ],
)
def test_an_error_of_rays_is_one_line(text, line):
    assert cluster.one_line(RuntimeError(text)) == line


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray is not .*\[ray\]"):
        check_answers(RaySettings("local"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
class TestAddresses:
    @pytest.mark.parametrize("scheme", ["", "ray://"])
    def test_an_address_where_nothing_listens_is_refused(self, scheme):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"{scheme}127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(DeviceError, match="refus"):
                check_answers(RaySettings(address))

    @pytest.mark.slow
    def test_another_server_is_no_ray(self, monkeypatch):
        monkeypatch.setattr(cluster, "_PROBE_SECONDS", 2.0)
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = f"127.0.0.1:{other.getsockname()[1]}"
            with pytest.raises(DeviceError, match="there is no Ray"):
                check_answers(RaySettings(address))
