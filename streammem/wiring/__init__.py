"""The only room that knows every backend: what is plugged where, embedded and as a stream."""
