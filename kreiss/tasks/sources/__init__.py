"""Data of tasks: finding, checking, downloading and unpacking files; tables, corpora and sound."""
