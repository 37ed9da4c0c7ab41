"""Files: atomic writes, checksums inside text, the identity of a run."""
