"""Entry point of `python -m forebay`."""

import sys

from forebay.cli.main import main

sys.exit(main())
