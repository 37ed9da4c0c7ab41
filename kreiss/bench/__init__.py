"""Speed and memory on this machine: contenders, rounds, the roof."""
