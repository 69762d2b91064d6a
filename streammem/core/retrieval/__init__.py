"""The four stages of retrieval, one a file: pure functions from what was fetched to what to fetch or keep."""
