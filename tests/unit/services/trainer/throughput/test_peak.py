"""The peak of a GPU by the name that CUDA gives it."""

import pytest

from headrace.services.trainer.throughput.peak import peak_flops


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L40", 181),
    ],
)
def test_a_known_gpu_has_its_dense_bfloat16_peak(name, tera):
    assert peak_flops(name) == pytest.approx(tera * 1e12)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "cpu",
        "NVIDIA A10G",
        "NVIDIA A1000",
        "Tesla V100-SXM2-16GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "AMD Instinct MI300X",
    ],
)
def test_a_gpu_name_similar_to_a_known_one_has_no_known_peak(name):
    assert peak_flops(name) is None
