"""Analysis of networks: layers of this package, of torch.nn, or step functions."""
