"""Several devices of one machine: what comes out is what one device makes, up to rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

PROGRAM = Path(__file__).parent / "devices_program.py"


def results(devices: int) -> dict:
    """Return what the program prints with so many devices, all of them this machine's processor."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_devices_share_the_rows():
    one, several = results(1), results(8)
    assert (one.pop("devices"), several.pop("devices")) == (1, 8)
    for case, expected in one.items():
        np.testing.assert_allclose(several[case], expected, rtol=1e-6, err_msg=case)
