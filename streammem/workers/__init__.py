"""RUNS. A thin worker for each role: decode, call a flow, acknowledge or dead-letter. Only here is faust imported."""
