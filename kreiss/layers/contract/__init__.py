"""The interface of `torch.nn.RNN`: base class, computed matrices, checks, conversion, loading, streaming."""
