"""Each finding about installed packages, on folders of packages made for it."""

import configparser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from bert_features.doctor import packages
from tests.doctor.made_up_site import verdict

ROOT = Path(__file__).parents[2]
HEALTHY = {"tensorflow": "2.20.0", "tensorflow-text": "2.20.1", "keras": "3.15.1"}
HEALTHY_TPU = {
    "tensorflow-tpu": "2.20.0",
    "tensorflow-text": "2.20.1",
    "keras": "3.15.1",
    "libtpu": "0.0.30",
}
FORCE_TPU = "pip install --force-reinstall --no-deps tensorflow-tpu==2.20.0"


def test_nothing_is_wrong_with_a_healthy_set(site):
    site.install_all(HEALTHY)
    assert {f.status for f in packages.check_packages(site.packages)} == {"ok"}


def test_nothing_is_wrong_with_a_healthy_set_for_tpus(site):
    site.install_all(HEALTHY_TPU)
    assert {f.status for f in packages.check_packages(site.packages)} == {"ok"}


def test_ranges_are_those_of_setup_cfg():
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
def test_text_of_another_minor(site, build, option, text):
    site.install(build, "2.20.0")
    if text:
        site.install("tensorflow-text", text)
    finding = packages.check_tensorflow_text(site.packages)
    assert verdict(finding) == ("broken", f"pip install {option}'tensorflow-text==2.20.*'")
    assert (text or "not installed") in finding.found


def test_plain_tensorflow_over_the_tpu_build(site):
    site.install_tensorflow("tensorflow-tpu").install_tensorflow("tensorflow")
    finding = packages.check_tensorflow(site.packages)
    assert verdict(finding) == ("broken", f"pip uninstall -y tensorflow && {FORCE_TPU}")
    assert "tensorflow-tpu 2.20.0 was overwritten by tensorflow 2.20.0" in finding.found


def test_the_tpu_build_over_plain_tensorflow(site):
    site.install_tensorflow("tensorflow").install_tensorflow("tensorflow-tpu")
    finding = packages.check_tensorflow(site.packages)
    assert verdict(finding) == ("warning", f"pip uninstall -y tensorflow && {FORCE_TPU}")
    assert "several builds" in finding.found


def test_files_that_went_with_another_build(site):
    site.install_tensorflow("tensorflow-tpu")
    (site.folder / "tensorflow/python/platform/build_info.py").unlink()
    finding = packages.check_tensorflow(site.packages)
    assert verdict(finding) == ("broken", FORCE_TPU)
    assert "missing" in finding.found


def test_a_tensorflow_that_is_a_name_only(site):
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
def test_tensorflow_absent_or_of_another_version(site, versions, remedy):
    found = packages.check_tensorflow(site.install_all(versions).packages)
    assert verdict(found) == ("broken", remedy)


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
def test_libtpu_beside_the_tpu_build(site, libtpu, status):
    site.install("tensorflow-tpu", "2.20.0")
    if libtpu:
        site.install("libtpu", libtpu)
    (finding,) = packages.check_libtpu(site.packages)
    remedy = "pip install 'libtpu>=0.0.14,<0.0.31'" if status == "broken" else None
    assert verdict(finding) == (status, remedy)


def test_libtpu_beside_plain_tensorflow_is_free(site):
    site.install_all(HEALTHY | {"libtpu": "0.0.52", "jax": "0.10.2"})
    (finding,) = packages.check_libtpu(site.packages)
    assert verdict(finding) == ("ok", None)


@pytest.mark.parametrize("versions", [{"keras": "2.15.0"}, {"tf-keras": "2.20.1"}, {}])
def test_keras_2_in_place_of_3(site, versions):
    finding = packages.check_keras(site.install_all(versions).packages)
    assert verdict(finding) == ("broken", "pip install 'keras>=3.10'")


def test_packages_that_are_needed(site):
    needs = ["numpy>=1.26", "rich>=13", "tensorflow>=2.20", "pandas>=2; extra == 'pandas'"]
    site.install("bert_features", "0.1.0", requires=needs).install("numpy", "1.20")
    finding = packages.check_requirements(site.packages)
    assert verdict(finding) == ("broken", "pip install 'numpy>=1.26' 'rich>=13'")
    assert finding.found == (
        "numpy is 1.20 (required: >=1.26); rich is not installed (required: >=13)"
    )


def test_plain_tensorflow_is_not_installed_over_the_tpu_build(site):
    needs = ["tensorflow-hub>=0.16", "rich>=13"]
    site.install("bert_features", "0.1.0", requires=needs).install_all(HEALTHY_TPU)
    assert packages.check_requirements(site.packages).remedy == (
        "pip install --no-deps 'tensorflow-hub>=0.16' && pip install 'rich>=13'"
    )


def test_requirements_of_packages_on_each_other(site):
    site.install("jax", "0.10.2", requires=["jaxlib<=0.10.2,>=0.10.1"])
    site.install("jaxlib", "0.9.0")
    (finding,) = packages.check_demands(site.packages)
    assert (finding.check, *verdict(finding)) == (
        "needs of jax",
        "warning",
        "pip install 'jaxlib<=0.10.2,>=0.10.1'",
    )


def test_jax_may_be_absent(site):
    finding = packages.check_jax(site.packages)
    assert finding.status == "ok"
    assert "not installed" in finding.found


def test_remains_of_an_interrupted_installation_do_not_count(site):
    (site.folder / "tensorflow-2.20.0.dist-info").mkdir()
    (site.folder / "keras-3.15.1.dist-info").mkdir()
    (site.folder / "keras-3.15.1.dist-info" / "METADATA").write_text("Name: keras\n")
    assert site.packages == {}
