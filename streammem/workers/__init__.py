"""RUNS. One thin worker for each role: decode, call a flow, acknowledge or dead-letter. The only room that imports faust."""
