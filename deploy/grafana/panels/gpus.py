"""What GPUs do, as NVIDIA's exporter reports it: https://docs.nvidia.com/datacenter/dcgm/latest/gpu-telemetry/dcgm-exporter.html."""

from deploy.grafana.dashboard import Panel, Query, Row

_GPU = "{{instance}} GPU {{gpu}}"
"""NVIDIA's exporter knows no run: its panels show all GPUs that Prometheus finds."""


def _gpu(expr: str, legend: str = _GPU) -> Query:
    return Query(f"max by (instance, gpu) ({expr})", legend)


GPUS = Row(
    "GPUs",
    Panel(
        "GPU utilization",
        "Share of the time in which any kernel ran. High says little: see the tensor cores.",
        _gpu("DCGM_FI_DEV_GPU_UTIL"),
        unit="percent",
        low=0,
        high=100,
    ),
    Panel(
        "Tensor cores",
        "Share of the cycles in which they worked; of the profiling counters, see docs/gpu.md.",
        _gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Memory bandwidth",
        "Share of the cycles in which the memory sent or received; of the profiling counters, too.",
        _gpu("DCGM_FI_PROF_DRAM_ACTIVE"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "GPU memory",
        "Used share of each GPU's memory, by all of its processes.",
        _gpu("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel("Power", "What each GPU draws.", _gpu("DCGM_FI_DEV_POWER_USAGE"), unit="watt", low=0),
    Panel(
        "Temperature",
        "Of the GPU and of its memory.",
        _gpu("DCGM_FI_DEV_GPU_TEMP"),
        _gpu("DCGM_FI_DEV_MEMORY_TEMP", f"{_GPU} memory"),
        unit="celsius",
    ),
    Panel(
        "NVLink",
        "All lanes. DCGM gives MB/s; the exporter calls it a counter, but its rate would mean nothing.",
        _gpu("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),
        unit="MBs",
        low=0,
    ),
    Panel(
        "SM clock",
        "It falls when a GPU is too hot or draws too much.",
        _gpu("DCGM_FI_DEV_SM_CLOCK"),
        unit="rotmhz",
        low=0,
    ),
    Panel(
        "Last XID",
        "Number of the driver's last error; 0 = none. HeadraceGpuError reports new ones.",
        _gpu("DCGM_FI_DEV_XID_ERRORS"),
        _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", f"{_GPU} rows not remapped"),
        unit="none",
        low=0,
        bad_above=1,
    ),
)
