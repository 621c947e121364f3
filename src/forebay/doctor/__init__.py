"""The doctor: watches a training script and says what holds it back, which line does it, and what each cure would win.

from forebay.doctor import watch
with watch() as seen:
    train()
seen.show()
"""

from forebay.doctor.watching import Watch, watch

__all__ = ["Watch", "watch"]
