"""Many runs as one: experiments reproduced at a scale, and searches of settings; results keyed by what was run."""
