"""`python -m tbuda_lab` is the `tbuda` command."""

import sys

from tbuda_lab.cli import main

sys.exit(main())
