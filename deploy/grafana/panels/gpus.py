"""What GPUs do, as NVIDIA's exporter tells: https://docs.nvidia.com/datacenter/dcgm/latest/gpu-telemetry/dcgm-exporter.html."""

from deploy.grafana.dashboard import Panel, Query, Row

_GPU = "{{instance}} GPU {{gpu}}"
"""NVIDIA's exporter knows no run: its panels show all GPUs that Prometheus finds."""


def _gpu(expr: str, legend: str = _GPU) -> Query:
    return Query(expr=f"max by (instance, gpu) ({expr})", legend=legend)


GPUS = Row(
    title="GPUs",
    panels=(
        Panel(
            title="GPU utilization",
            unit="percent",
            low=0,
            high=100,
            description="Share of the time in which any kernel ran. High says little: see the tensor cores.",
            queries=(_gpu("DCGM_FI_DEV_GPU_UTIL"),),
        ),
        Panel(
            title="Tensor cores",
            unit="percentunit",
            low=0,
            high=1,
            description="Share of the cycles in which they worked; of the profiling counters, see docs/gpu.md.",
            queries=(_gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),),
        ),
        Panel(
            title="Memory bandwidth",
            unit="percentunit",
            low=0,
            high=1,
            description="Share of the cycles in which the memory sent or received; of the profiling counters, too.",
            queries=(_gpu("DCGM_FI_PROF_DRAM_ACTIVE"),),
        ),
        Panel(
            title="GPU memory",
            unit="percentunit",
            low=0,
            high=1,
            description="Used share of each GPU's memory, by all of its processes.",
            queries=(
                _gpu("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)"),
            ),
        ),
        Panel(
            title="Power",
            unit="watt",
            low=0,
            description="What each GPU draws.",
            queries=(_gpu("DCGM_FI_DEV_POWER_USAGE"),),
        ),
        Panel(
            title="Temperature",
            unit="celsius",
            description="Of the GPU and of its memory.",
            queries=(
                _gpu("DCGM_FI_DEV_GPU_TEMP"),
                _gpu("DCGM_FI_DEV_MEMORY_TEMP", f"{_GPU} memory"),
            ),
        ),
        Panel(
            title="NVLink",
            unit="MBs",
            low=0,
            description="All lanes. DCGM gives MB/s; the exporter calls it a counter, but its rate would mean nothing.",
            queries=(_gpu("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),),
        ),
        Panel(
            title="SM clock",
            unit="rotmhz",
            low=0,
            description="It falls when a GPU is too hot or draws too much.",
            queries=(_gpu("DCGM_FI_DEV_SM_CLOCK"),),
        ),
        Panel(
            title="Last XID",
            unit="none",
            low=0,
            bad_above=1,
            description="Number of the driver's last error; 0 = none. HeadraceGpuError tells of new ones.",
            queries=(
                _gpu("DCGM_FI_DEV_XID_ERRORS"),
                _gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", f"{_GPU} rows not remapped"),
            ),
        ),
    ),
)
