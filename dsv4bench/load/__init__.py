"""How does a server behave under load? Target and workload in, `RequestRecord`s and `Cell`s out."""
