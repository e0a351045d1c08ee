"""In what order is it done? One module a verb; the only room that joins load, server and store."""
