"""One thread for torch: the tensors here are small, and a second thread would only wait for the first."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
