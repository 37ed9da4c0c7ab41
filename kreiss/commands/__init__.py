"""The verbs of the command line, one file for those that belong together; none imports torch to show its help."""
