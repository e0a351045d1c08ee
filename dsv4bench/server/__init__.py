"""Who is at the other end: where the server is, what it says about itself, how it is asked and started."""
