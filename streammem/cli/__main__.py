"""`python -m streammem.cli` is `streammem`."""

import sys

from streammem.cli import main

sys.exit(main())
