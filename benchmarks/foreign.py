"""Programs that were written for Launchpad's own launcher, as functions without arguments."""

import launchpad as lp
from launchpad.examples.consumer_producers.program import make_program

from tests.launchers.test_foreign_programs import d4pg_program

__all__ = ["consumer_producers", "d4pg_program"]


def consumer_producers() -> lp.Program:
    """Launchpad's example with six producers."""
    return make_program(num_producers=6)
