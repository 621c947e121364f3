"""The doctor: watches a training script and says what holds it back, which line does it, and what each cure would win.

with forebay.doctor.watch() as capture:
    train()
print(capture.verdict.main)
"""

from forebay.doctor.watching import Watch, watch

__all__ = ["Watch", "watch"]
