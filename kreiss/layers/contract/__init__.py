"""What carries the contract of `torch.nn.RNN`: base, computed matrices, checks, conversion, loading, streaming."""
