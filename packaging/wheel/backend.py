"""scikit-build-core, and auditwheel after it: the wheel that pip gets is tagged manylinux_2_28_x86_64 because it was checked."""
import os
import subprocess
import sys
import tempfile

from scikit_build_core.build import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel  # noqa: F401
from scikit_build_core import build

TAG = "manylinux_2_28_x86_64"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as unchecked:
        name = build.build_wheel(unchecked, config_settings, metadata_directory)
        subprocess.run([sys.executable, "-m", "auditwheel", "repair", "--plat", TAG, "--only-plat", "--wheel-dir", wheel_directory,
                        os.path.join(unchecked, name)], check=True)
    return next(file for file in os.listdir(wheel_directory) if file.endswith(f"{TAG}.whl"))
