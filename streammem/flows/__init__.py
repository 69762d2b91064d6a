"""DOES. Async, one job a file: read through ports, ask the core, write through ports. Each is safe to run twice."""
