"""Files that are whole or not there: atomic writes, checksums inside text, the identity of a run."""
