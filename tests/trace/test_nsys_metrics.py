"""GPU_METRICS: a device's percents over time, by name, with the quantum of an integer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nsys_made import PID, Made, kernel

from dsv4bench.trace.nsys import read_nsys_sqlite

TYPE = 281479271677952  # what nsys writes for the first GPU


def with_metrics(path: Path) -> Made:
    made = Made(path)
    made.table("TARGET_INFO_GPU_METRICS", "typeId INT, sourceId INT, typeName TEXT, metricId INT, metricName TEXT")
    names = [
        (TYPE, 5, "Tensor Active [Throughput %]"),
        (TYPE, 0, "GPC Clock Frequency [MHz]"),
        (TYPE | 3, 5, "DRAM Read Bandwidth [Throughput %]"),  # the same id means another metric of another type
    ]
    made.db.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, '', ?, ?)", names)
    made.table("GPU_METRICS", "rawTimestamp INT, timestamp INT, typeId INT, metricId INT, value INT")
    rows = [(200, TYPE, 5, 7), (100, TYPE, 5, 3), (100, TYPE, 0, 1980), (100, TYPE | 3, 5, 81), (300, TYPE, 5, None)]
    made.db.executemany("INSERT INTO GPU_METRICS VALUES (0, ?, ?, ?, ?)", rows)
    return made


def test_percents_by_name_in_order_of_time(tmp_path: Path) -> None:
    made = with_metrics(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500))
    (trace,) = read_nsys_sqlite(made.done(), "A")
    first, second = trace.samples
    assert (first.device, first.label, first.quantum_frac) == (0, "A", 0.01)
    assert first.time_ns.tolist() == [100, 200]
    assert list(first.metrics) == ["Tensor Active [Throughput %]"]
    assert first.metrics["Tensor Active [Throughput %]"].tolist() == [3.0, 7.0]
    assert second.device == 3
    assert second.metrics["DRAM Read Bandwidth [Throughput %]"].tolist() == [81.0]


def test_a_sample_that_lacks_a_metric_is_nan(tmp_path: Path) -> None:
    made = with_metrics(tmp_path / "x.sqlite")
    made.db.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 1, '', 6, 'SMs Active [Throughput %]')", (TYPE,))
    made.db.execute("INSERT INTO GPU_METRICS VALUES (0, 200, ?, 6, 50)", (TYPE,))
    made.kernels(kernel(1000, 1500))
    (trace,) = read_nsys_sqlite(made.done())
    assert np.array_equal(trace.samples[0].metrics["SMs Active [Throughput %]"], [np.nan, 50.0], equal_nan=True)


def test_samples_stand_under_the_number_of_their_gpus_kernels(tmp_path: Path) -> None:
    made = with_metrics(tmp_path / "x.sqlite")
    made.kernels(kernel(1000, 1500))
    made.gpus(3)
    made.cuda_devices((3, 0, PID))
    (trace,) = read_nsys_sqlite(made.done())
    by_metric = {next(iter(samples.metrics)): samples.device for samples in trace.samples}
    assert by_metric["DRAM Read Bandwidth [Throughput %]"] == 0, "GPU 3 is the process' device 0"


def test_metrics_alone_are_given_with_the_cause(tmp_path: Path) -> None:
    (trace,) = read_nsys_sqlite(with_metrics(tmp_path / "x.sqlite").done())
    assert (len(trace), len(trace.samples)) == (0, 2)
    assert trace.warnings[0].startswith("the file holds GPU metrics and no kernel")
