"""The most FLOP/s that a GPU has for dense bfloat16 products, by its name: what MFU is a share of. Pure.

By the data sheets and architecture papers of NVIDIA, as named. Where these give a number with sparsity alone, half of
it; of GeForce cards the one with float32 sums, which is what training uses.
"""

import re

TERA = 10**12
_PEAKS: tuple[tuple[str, float], ...] = (
    # The first that fits counts: a name with a suffix stands before the one without.
    (r"GB200", 2500),  # GB200 NVL72 data sheet: 5,000 a GPU with sparsity
    (r"B200", 2250),  # HGX B200 data sheet: 36,000 for 8 with sparsity
    (r"B100", 1750),  # HGX B100 data sheet: 28,000 for 8 with sparsity
    (r"GH200", 989),  # GH200 data sheet: 1,979 with sparsity
    (r"H200 NVL", 835.5),  # H200 data sheet: 1,671 with sparsity
    (r"H200", 989),  # H200 data sheet: 1,979 with sparsity
    (r"H100 PCIe", 756),  # H100 data sheet of 2022: 1,513 with sparsity
    (r"H100 NVL", 835.5),  # H100 data sheet: 1,671 with sparsity
    (r"H100", 989),  # H100 data sheet (SXM): 1,979 with sparsity
    (r"H800 PCIe", 756),  # As the H100 PCIe
    (r"H800", 989),  # H800 data sheet (SXM): 1,979 with sparsity
    (r"H20", 148),  # H20 data sheet
    (r"A100", 312),  # A100 data sheet, PCIe and SXM
    (r"A800", 312),  # A800 data sheet
    (r"A30", 165),  # A30 data sheet
    (r"A40", 149.7),  # A40 data sheet
    (r"A10", 125),  # A10 data sheet
    (r"L40S", 362),  # L40S data sheet: 733 with sparsity
    (r"L40", 181),  # L40 data sheet: 362 with sparsity
    (r"L4", 121),  # L4 data sheet: 242 with sparsity
    (r"RTX 6000 Ada Generation", 364.2),  # Ada architecture paper, appendix: 728.5 with sparsity
    (r"RTX A6000", 154.8),  # GA102 architecture paper: 309.7 with sparsity
    (r"RTX 5090", 209.5),  # RTX Blackwell architecture paper, appendix: bfloat16 with float32 sums
    (r"RTX 4090", 165.2),  # Ada architecture paper, appendix: bfloat16 with float32 sums
    (r"RTX 3090", 71),  # GA102 architecture paper: bfloat16 with float32 sums
)


def peak_flops(name: str) -> float | None:
    """FLOP/s of a device, by its CUDA name; None for one that is not in the table.

    A part of a GPU (MIG) is not in it, nor are mobile chips, whose clocks their makers choose.
    """
    if re.search(r"\b(MIG|Laptop|Max-Q)\b", name):
        return None
    for pattern, tera in _PEAKS:
        if re.search(rf"(?<![\w-]){pattern}(?!\w)(?! Ti\b| D\b| SUPER\b)", name):
            return tera * TERA
    return None
