"""Runs TensorFlow's scripts under watch, in one process that has the two logical CPUs some of them want.

python -m tests.doctor.tensorflow_scripts FOLDER
"""

import sys
from pathlib import Path

import tensorflow as tf
from tests.doctor.watch_scripts import SCRIPTS, watch_script

if __name__ == "__main__":
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)
    for script in sorted((SCRIPTS / "tensorflow").glob("*.py")):
        watch_script(script).save(Path(sys.argv[1]) / f"{script.stem}.capture")
