"""`python -m kreiss`, which `torchrun -m kreiss` needs too."""

from kreiss.cli import main

main()
