"""The program with random numbers that depend on how many blocks a rank holds: wrong on purpose."""

import sys

from omniinput_hpc.cli.run import main
from omniinput_hpc.tempering.ladder import Block, Grid

if __name__ == "__main__":
    n_held = [1]

    def noted(self, rank, blocks=Grid.blocks):
        n_held[0] = len(blocks(self, rank))
        return blocks(self, rank)

    Grid.blocks = noted
    Block.key = property(lambda self: (self.number % n_held[0],))
    sys.exit(main())
