"""Each finding about installed packages, on folders of packages made for it."""

import pytest

from bert_features.check import packages
from tests.check.made_up_site import verdict

OWN = ["tensorflow>=2.20,<2.22", "tensorflow-text>=2.20,<2.22", "keras>=3.10"]
HEALTHY = {"tensorflow": "2.20.0", "tensorflow-text": "2.20.1", "keras": "3.15.1"}
HEALTHY_TPU = {
    "tensorflow-tpu": "2.20.0",
    "tensorflow-text": "2.20.1",
    "keras": "3.15.1",
    "libtpu": "0.0.30",
}


@pytest.mark.parametrize("versions", [HEALTHY, HEALTHY_TPU])
def test_nothing_is_wrong_with_a_healthy_set(site, versions):
    site.install("bert_features", "0.1.0", requires=OWN).install_all(versions)
    (finding,) = packages.check_packages(site.packages)
    assert verdict(finding) == ("ok", None)
    assert all(f"{name} {version}" in finding.found for name, version in versions.items())


@pytest.mark.parametrize(
    ("build", "option"), [("tensorflow", ""), ("tensorflow-tpu", "--no-deps ")]
)
@pytest.mark.parametrize("text", ["2.19.0", "2.21.0"])
def test_text_of_another_minor(site, build, option, text):
    site.install(build, "2.20.0").install("tensorflow-text", text)
    (finding,) = packages.check_tensorflow_text(site.packages)
    assert verdict(finding) == ("broken", f"pip install {option}'tensorflow-text==2.20.*'")
    assert text in finding.found


def test_several_builds_of_tensorflow(site):
    site.install_tensorflow("tensorflow").install_tensorflow("tensorflow-tpu")
    (finding,) = packages.check_builds(site.packages)
    assert verdict(finding) == (
        "warning",
        "pip uninstall -y tensorflow && "
        "pip install --force-reinstall --no-deps tensorflow-tpu==2.20.0",
    )
    assert "tensorflow-tpu 2.20.0 and tensorflow 2.20.0" in finding.found


@pytest.mark.parametrize(
    ("libtpu", "status"),
    [
        ("0.0.13", "broken"),
        ("0.0.14", "ok"),
        ("0.0.30", "ok"),
        ("0.0.31", "broken"),
        (None, "broken"),
    ],
)
def test_libtpu_beside_the_tpu_build(site, libtpu, status):
    site.install("tensorflow-tpu", "2.20.0")
    if libtpu:
        site.install("libtpu", libtpu)
    findings = packages.check_libtpu(site.packages)
    broken = ("broken", "pip install 'libtpu<0.0.31,>=0.0.14'")
    assert [verdict(finding) for finding in findings] == [broken] * (status == "broken")


def test_libtpu_beside_plain_tensorflow_is_free(site):
    site.install_all(HEALTHY | {"libtpu": "0.0.52", "jax": "0.10.2"})
    assert packages.check_libtpu(site.packages) == []


def test_packages_that_are_needed(site):
    needs = ["numpy>=1.26", "keras>=3.10", "tensorflow>=2.20", "pandas>=2; extra == 'pandas'"]
    site.install("bert_features", "0.1.0", requires=needs)
    site.install("numpy", "1.20").install("tensorflow-cpu", "2.21.0")
    numpy, keras = packages.check_requirements(site.packages)
    assert (numpy.check, *verdict(numpy)) == ("numpy", "broken", "pip install 'numpy>=1.26'")
    assert numpy.found == "numpy is 1.20 (required: >=1.26)"
    assert keras.found == "keras is not installed (required: >=3.10)"


def test_requirements_of_packages_on_each_other(site):
    site.install("jax", "0.10.2", requires=["jaxlib<=0.10.2,>=0.10.1"])
    site.install("jaxlib", "0.9.0")
    (finding,) = packages.check_demands(site.packages)
    assert (finding.check, *verdict(finding)) == (
        "needs of jax",
        "warning",
        "pip install 'jaxlib<=0.10.2,>=0.10.1'",
    )
