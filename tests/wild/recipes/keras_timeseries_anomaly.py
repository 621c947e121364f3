"""Make `examples/timeseries/timeseries_anomaly_detection.py` of keras-team/keras-io run offline.

Two series of random values, one value for every five minutes; the second has a jump.
"""

from pathlib import Path

import pandas as pd
from tests.wild.made_up import numbers

ARGUMENTS: list[str] = []
ENVIRONMENT: dict[str, str] = {"MPLBACKEND": "Agg"}
SETTINGS: dict[str, str] = {"epochs": "4", "master_url_root": '""'}
STEP: int | str = "fit"


def prepare(folder: Path) -> None:
    for name in ("artificialNoAnomaly/art_daily_small_noise.csv", "artificialWithAnomaly/art_daily_jumpsup.csv"):
        path = folder / name
        path.parent.mkdir()
        times = pd.date_range("2014-04-01", periods=2400, freq="5min")
        values = numbers().normal(size=2400)
        values[1200:1900] *= 20 if "jump" in name else 1
        pd.DataFrame({"timestamp": times, "value": values}).to_csv(path, index=False)
