"""Numbers about networks, trained or not: any layer here, torch.nn's, or a step function."""
