"""Settings shared by all tests."""

import os

import pytest
import torch
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)  # the test processes share the cores already
settings.register_profile("kreiss", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("kreiss")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
