"""What did the user type? One file a verb: options, one call into `runs`, a renderer, an exit code."""
