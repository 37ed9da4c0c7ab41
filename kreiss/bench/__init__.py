"""Measurements of speed and memory on this machine."""
