"""REACHES. One technology a file, each through the same contract tests."""
