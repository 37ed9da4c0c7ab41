"""Studies of many runs: experiments reproduced at a scale, and searches of settings; results keyed by settings."""
