"""`python -m forebay` runs the command line of Forebay."""

import sys

from forebay.cli.main import main

sys.exit(main())
