"""What a level keeps of the GPUs' clocks: those of the GPUs that had work."""

from __future__ import annotations

from dsv4bench.records.server import Engine, GpuSample, ServerInfo
from dsv4bench.runs.telemetry import Telemetry
from dsv4bench.server.target import parse_url


def telemetry(*samples: GpuSample) -> Telemetry:
    info = ServerInfo(url="http://127.0.0.1:9", engine=Engine.GENERIC, model="m")
    watched = Telemetry(parse_url(info.url), info, "r0-c8-i256", on_this_host=False)
    watched._gpus = [(0.0, list(samples))]
    return watched


def gpu(index: int, mhz: int, util: float | None, *flags: str) -> GpuSample:
    return GpuSample(index=index, sm_clock_mhz=mhz, power_w=mhz / 10, util_frac=util, throttle=list(flags))


def test_idle_gpus_do_not_lower_the_clock() -> None:
    busy = [gpu(0, 1980, 0.9), gpu(0, 1960, 0.0, "sw_power_cap")]
    idle = [gpu(1, 345, 0.0, "sw_thermal"), gpu(2, 345, None)]
    seen = telemetry(*busy, *idle).view(None)
    assert (seen.gpu_sm_clock_mean_mhz, seen.gpu_power_mean_w) == (1970.0, 197.0)
    assert seen.gpu_throttle == ["sw_power_cap"]


def test_where_no_load_is_told_all_gpus_count() -> None:
    seen = telemetry(gpu(0, 1000, None), gpu(1, 2000, None, "hw_thermal")).view(None)
    assert (seen.gpu_sm_clock_mean_mhz, seen.gpu_throttle) == (1500.0, ["hw_thermal"])
