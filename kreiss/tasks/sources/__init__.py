"""Where the data of tasks come from: files found, checked, fetched and unpacked, tables, corpora and sound."""
