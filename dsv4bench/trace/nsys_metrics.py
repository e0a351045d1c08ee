"""GPU_METRICS of an nsys export: a device's counters over time, in percent of peak.

Values are integer percents, so a true 0.4 % reads 0 in most samples: the quantum, 0.01, goes with them. Ids are not
stable between versions: a metric is found by its (typeId, metricId) and known by its name. Metrics in other units
(clocks, warps) are left out. The device is the low byte of typeId.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4bench.records.trace import DeviceSamples, Ints
from dsv4bench.trace.nsys_database import NsysDatabase

SAMPLES = "GPU_METRICS"
METRICS = "TARGET_INFO_GPU_METRICS"
_QUANTUM_FRAC = 0.01
_DEVICE_MASK = 0xFF
_NONE = np.iinfo(np.int64).min


def read_samples(db: NsysDatabase, file: str, label: str | None) -> list[DeviceSamples]:
    """One DeviceSamples a device, in order of time; none where the capture had no GPU metrics."""
    names = _percent_metrics(db)
    if not names or not {"timestamp", "typeId", "metricId", "value"} <= set(db.columns(SAMPLES)):
        return []
    ids = sorted({metric for _, metric in names})
    columns = [("timestamp", _NONE), ("typeId", 0), ("metricId", 0), ("value", _NONE)]
    blocks = [_percent_rows(block, ids) for block in db.blocks(SAMPLES, columns)]
    rows = np.concatenate(blocks) if blocks else np.zeros((0, 4), np.int64)
    found = []
    for type_id in np.unique(rows[:, 1]).tolist():
        of_type = {metric: name for (owner, metric), name in names.items() if owner == type_id}
        if of_type:
            times, metrics = _table(rows[rows[:, 1] == type_id], of_type)
            device = type_id & _DEVICE_MASK
            found.append(DeviceSamples(file, device, times, metrics, quantum_frac=_QUANTUM_FRAC, label=label))
    return found


def _percent_rows(block: Ints, ids: list[int]) -> Ints:
    rows: Ints = block[np.isin(block[:, 2], ids) & (block[:, 0] != _NONE) & (block[:, 3] != _NONE)]
    return rows


def _percent_metrics(db: NsysDatabase) -> dict[tuple[int, int], str]:
    if not {"typeId", "metricId", "metricName"} <= set(db.columns(METRICS)):
        return {}
    return {
        (type_id, metric): name
        for type_id, metric, name in db.rows(f"SELECT typeId, metricId, metricName FROM {METRICS}")
        if isinstance(type_id, int) and isinstance(metric, int) and isinstance(name, str) and "%" in name
    }


def _table(rows: Ints, names: dict[int, str]) -> tuple[Ints, dict[str, npt.NDArray[np.float64]]]:
    """Times, and a value a time for each metric: NaN where that sample lacks it."""
    times = np.unique(rows[:, 0])
    metrics = {}
    for metric, name in names.items():
        own = rows[rows[:, 2] == metric]
        if len(own):
            values = np.full(len(times), np.nan)
            values[np.searchsorted(times, own[:, 0])] = own[:, 3]
            metrics[name] = values
    return times, metrics
