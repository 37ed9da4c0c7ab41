"""The verbs of the command line; none imports torch to show its help."""
